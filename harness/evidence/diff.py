"""What differs between two traces: what moved where, what came, what went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.evidence.op import Evidence, Op, Transfer
from harness.plural import plural

_COUNTED = frozenset({"forward", "gradient", "update", "collective", "variable"})


@dataclass(frozen=True, slots=True)
class Move:
    """An op that ran on another device."""

    before: Op
    after: Op

    def __str__(self) -> str:
        return f"{self.after.name} ({self.after.type}) moved from {_place(self.before)} to {_place(self.after)}"


@dataclass(frozen=True)
class TraceDiff:
    """The difference of two traces; falsy where there is none."""

    moved: tuple[Move, ...]
    added: tuple[Op, ...]
    removed: tuple[Op, ...]
    transfers_added: tuple[Transfer, ...]
    transfers_removed: tuple[Transfer, ...]

    def __bool__(self) -> bool:
        return bool(self.moved or self.added or self.removed or self.transfers_added or self.transfers_removed)

    def __str__(self) -> str:
        lines = [str(move) for move in self.moved]
        lines += [f"{op.name} ({op.type}) is new, on {_place(op)}" for op in self.added]
        lines += [f"{op.name} ({op.type}) is gone; it was on {_place(op)}" for op in self.removed]
        lines += [f"{_copy(transfer)} is new" for transfer in self.transfers_added]
        lines += [f"{_copy(transfer)} is gone" for transfer in self.transfers_removed]
        return "\n".join(lines) or "no difference"


def diff(before: Evidence, after: Evidence) -> TraceDiff:
    """Compare op by op, by name, and transfer by transfer.

    Constants and control ops are left out: TensorFlow's optimizer may fold them in one run and not in the next
    version, and where they are decides nothing. The same holds for ops of which it is not known where they ran in
    either trace.
    """
    old = {op.name: op for op in before.ops if op.role in _COUNTED}
    new = {op.name: op for op in after.ops if op.role in _COUNTED}
    return TraceDiff(
        moved=tuple(Move(old[name], op) for name, op in new.items() if name in old and old[name].device != op.device),
        added=tuple(op for name, op in new.items() if name not in old and op.device is not None),
        removed=tuple(op for name, op in old.items() if name not in new and op.device is not None),
        transfers_added=_more(after.transfers, before.transfers),
        transfers_removed=_more(before.transfers, after.transfers),
    )


def _more(here: Sequence[Transfer], there: Sequence[Transfer]) -> tuple[Transfer, ...]:
    rest = Counter(here) - Counter(there)
    return tuple(rest.elements())


def _place(op: Op) -> str:
    return op.device.short if op.device is not None else "nowhere (optimised away)"


def _copy(transfer: Transfer) -> str:
    size = "unknown size" if transfer.size_bytes is None else plural(transfer.size_bytes, "byte")
    return f"copy of {transfer.tensor} ({size}) from {transfer.source.short} to {transfer.destination.short}"
