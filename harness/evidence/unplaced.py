"""Says why no device is known of an op: what became of it, as far as the trace tells."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from harness.evidence.arithmetic import CALLS, sources_of
from harness.evidence.op import Evidence, Op
from harness.plural import plural

_SHAPES = frozenset({"BroadcastGradientArgs", "Rank", "Shape", "ShapeN", "Size"})
_HANDS_ON = frozenset({"Identity", "IdentityN", "PreventGradient", "Snapshot", "StopGradient"})

#: Each reason, as a noun for one op and for several.
_DATA = ("op of tf.data, which does not report devices", "ops of tf.data, which does not report devices")
_MESH = ("op on several devices at once", "ops on several devices at once")
_SILENT = ("op of which TensorFlow reports no device", "ops of which TensorFlow reports no device")
_UNKNOWN_CALL = ("function of which TensorFlow reports no graph", "functions of which TensorFlow reports no graph")
_CALL = ("function call, whose ops are listed themselves", "function calls, whose ops are listed themselves")
_CONSTANT = ("constant, kept in what reads it", "constants, kept in what reads them")
_FOLDED = ("op computed from constants before the graph ran", "ops computed from constants before the graph ran")
_MERGED = ("op merged with an equal one", "ops merged with equal ones")
_HANDED_ON = ("identity or signal that only hands on", "identities and signals that only hand on")
_UNREAD = ("op whose result nothing reads", "ops whose results nothing reads")
_REWRITTEN = ("op rewritten by the graph optimizer", "ops rewritten by the graph optimizer")


def reasons(evidence: Evidence) -> list[str]:
    """``86 constants, kept in what reads them`` and the like, the most frequent first; empty if all are placed."""
    counts = Counter(_Unplaced(evidence).reason(op) for op in evidence.ops if op.device is None)
    return [plural(count, *noun) for noun, count in counts.most_common()]


class _Unplaced:
    def __init__(self, evidence: Evidence) -> None:
        self.by_name = {op.name: op for op in evidence.ops}
        self.readers: dict[str, list[Op]] = defaultdict(list)
        for op in evidence.ops:
            for name, _ in sources_of(op):
                self.readers[name].append(op)
        self.kept = {_written(op) for op in evidence.ops if op.device is not None and op.inputs}
        self.calls = {
            "/".join(parts[:length])
            for op in evidence.ops
            for parts in [op.name.split("/")]
            for length in range(1, len(parts))
        }
        #: Ops whose results were known beforehand: static shapes, and what is computed from such constants alone.
        self.folded: set[str] = set()
        for op in evidence.ops:
            if op.device is None and (op.type in _SHAPES or self.has_constants_alone(op)):
                self.folded.add(op.name)

    def reason(self, op: Op) -> tuple[str, str]:
        if op.role == "data":
            return _DATA
        if op.executed_type is not None:
            return _MESH
        if op.type in CALLS:
            return _CALL if "/" in op.name or op.name in self.calls else _UNKNOWN_CALL
        if "/" not in op.name:
            return _SILENT
        if op.role == "constant" and not op.inputs:
            return _CONSTANT
        if op.role == "control" or op.type in _HANDS_ON:
            return _HANDED_ON
        if op.name in self.folded:
            return _FOLDED
        if _written(op) in self.kept:
            return _MERGED
        return _REWRITTEN if self.is_read(op) else _UNREAD

    def has_constants_alone(self, op: Op) -> bool:
        """Whether an op reads constants and what is computed from them, and nothing else."""
        names = [name for name, _ in sources_of(op)]
        roles = [self.by_name[name].role if name in self.by_name else None for name in names]
        known = [role == "constant" or name in self.folded for name, role in zip(names, roles, strict=True)]
        return all(known) if names else op.role == "constant"

    def is_read(self, op: Op) -> bool:
        """Whether an op that ran reads the result, first or behind others that are gone."""
        return any(reader.device is not None for reader in _behind(op, self.readers))


def _written(op: Op) -> tuple[str, tuple[tuple[str, int], ...], tuple[str, ...]]:
    return op.type, tuple(sources_of(op)), op.dtypes


def _behind(op: Op, readers: dict[str, list[Op]]) -> Iterator[Op]:
    waiting, seen = [op], {op.name}
    while waiting:
        for reader in readers[waiting.pop().name]:
            if reader.name not in seen:
                seen.add(reader.name)
                yield reader
                if reader.device is None:
                    waiting.append(reader)
