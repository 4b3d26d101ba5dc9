"""The transfers of a trace. Their sizes are worked out when they are first looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import overload

from harness.evidence.op import Transfer

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
