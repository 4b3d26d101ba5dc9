"""What a trace holds: ops and transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal, Protocol, overload

from harness.devices.name import DeviceName

Role = Literal["forward", "gradient", "update", "collective", "constant", "variable", "data", "control"]


@dataclass(frozen=True, slots=True)
class Op:
    """One op.

    ``type`` is the op type as the user wrote it, ``executed_type`` as it ran: the same, that of the op that it
    was fused into (``_FusedMatMul``), or ``None`` where it was optimised away. Which library's kernel ran is left out.
    ``device`` is where it ran (``None``: not known, so nothing is proven), ``requested`` what its scope asked for.
    ``forward`` names the forward op that a gradient op belongs to. ``inputs`` names the ops that made its inputs, where
    they are known; ``argument[2]`` is a tensor that the traced function was given. ``ports`` says which output of that
    op each input is (-1: none, it is only waited for); empty means the first of each. ``unit`` names the XLA cluster
    that it is part of. ``branch`` names the condition that decides when a graph runs whether the op runs at all:
    ``device`` is then where it was placed, and TensorFlow does not tell which branch was taken.
    """

    name: str
    type: str
    executed_type: str | None
    device: DeviceName | None
    requested: DeviceName | None
    role: Role
    forward: str | None = None
    dtypes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    unit: str | None = None
    ports: tuple[int, ...] = ()
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor that was copied from one device to another. ``size_bytes`` is ``None`` where it is not known."""

    source: DeviceName
    destination: DeviceName
    tensor: str
    size_bytes: int | None = None

    @property
    def bytes(self) -> int | None:
        """Same as ``size_bytes``."""
        return self.size_bytes


class Evidence(Protocol):
    """What is stored, shown and compared of a trace."""

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops in the order in which they ran, those of a function together."""

    @property
    def transfers(self) -> Sequence[Transfer]:
        """The copies between devices."""


Part = Transfer | Callable[[], list[Transfer]]


class Transfers(Sequence[Transfer]):
    """An immutable sequence of transfers; equal to any other sequence of the same transfers.

    Those of a function's graph are made when they are first asked for: how large a tensor is follows from the shapes
    in the graph, which costs more than everything else in a trace together.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    @cached_property
    def _all(self) -> tuple[Transfer, ...]:
        parts = ([part] if isinstance(part, Transfer) else part() for part in self._parts)
        return tuple(chain.from_iterable(parts))

    @overload
    def __getitem__(self, index: int) -> Transfer: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Transfer, ...]: ...
    def __getitem__(self, index: int | slice) -> Transfer | tuple[Transfer, ...]:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return f"Transfers({list(self._all)!r})"
