"""The transfers of a trace. Their sizes are worked out when they are first looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from harness.evidence.op import Transfer

Part = Transfer | Callable[[], list[Transfer]]


class Transfers(Sequence[Transfer]):
    """An immutable sequence of transfers; equal to any other sequence of the same transfers.

    Those of a function's graph are made when they are first asked for: how large a tensor is follows from the shapes
    in the graph, which costs more than everything else in a trace together.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = list(parts)
        self._all: tuple[Transfer, ...] | None = None

    def _resolved(self) -> tuple[Transfer, ...]:
        if self._all is None:
            found: list[Transfer] = []
            for part in self._parts:
                if isinstance(part, Transfer):
                    found.append(part)
                else:
                    found.extend(part())
            self._all = tuple(found)
            self._parts = []
        return self._all

    @overload
    def __getitem__(self, index: int) -> Transfer: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Transfer, ...]: ...
    def __getitem__(self, index: int | slice) -> Transfer | tuple[Transfer, ...]:
        return self._resolved()[index]

    def __len__(self) -> int:
        return len(self._resolved())

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self._resolved())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._resolved() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._resolved())

    def __repr__(self) -> str:
        return f"Transfers({list(self._resolved())!r})"
