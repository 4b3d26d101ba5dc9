"""What a step does, as tasks for the model of time: the ops that ran in its trace, with their arithmetic and bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod

from harness.advice.step_time import Task
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.hardware.operations import itemsize

#: Ops that hand on the memory that they are given.
_VIEWS = frozenset(
    {"EnsureShape", "ExpandDims", "Identity", "IdentityN", "NoOp", "Rank", "ReadVariableOp", "Reshape", "Shape"}
    | {"ShapeN", "Size", "Squeeze", "StopGradient", "StridedSlice", "VarHandleOp", "PreventGradient"}
)
#: Ops that need no more of a tensor than its shape: where the optimizer took them away, it knew the shape.
_OF_SHAPES = frozenset({"BroadcastGradientArgs", "OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"})
#: Ops that read as much as they write, and not all that they are given.
_PARTS = ("Gather", "Slice", "IteratorGetNext", "TensorListGetItem")
_PRODUCTS = ("MatMul", "Einsum", "Conv")
#: Roles of ops whose results are there before the step computes anything.
_THERE = frozenset({"variable", "constant"})
_LOOPS = frozenset({"While", "StatelessWhile", "LoopCond"})

Source = tuple[str, int]


class NotCounted(ValueError):
    """What a step does is not known from its trace; the text says why."""


def tasks_of(trace: Trace) -> tuple[Task, ...]:
    """Return the tasks of a traced step, in the order of its graph.

    Ops that the optimizer took away, or that are part of another one, are no tasks, and what they were given goes to
    those that read them. Raise NotCounted where the number of the passes of a loop is not known, or no shapes are.
    """
    if loop := next((op for op in trace.ops if op.type in _LOOPS or op.executed_type in _LOOPS), None):
        raise NotCounted(f"how often the loop {loop.name} runs is not known")
    if not trace.shapes:
        raise NotCounted("the shapes of its tensors are not known")
    counted = _Counted(trace)
    return tuple(counted.tasks())


class _Counted:
    def __init__(self, trace: Trace) -> None:
        self.trace, self.shapes = trace, trace.shapes
        self.ops = {op.name: op for op in trace.ops}
        self.runs = {op.name for op in trace.ops if op.device is not None and op.name in trace.shapes}
        self._sources: dict[Source, tuple[Source, ...]] = {}

    def tasks(self) -> list[Task]:
        groups: dict[str, list[str]] = defaultdict(list)
        made: list[Task] = []
        rooted: set[str] = set()
        given = self._arguments()
        made += [Task(name, source, view=True) for name, source, _, _ in given]
        for op in self.trace.ops:
            if op.name not in self.runs or op.device is None:
                continue
            device = op.device.short
            reads = self.read_by(op)
            inputs: dict[str, float] = {}
            for name, port in reads:
                inputs[name] = max(inputs.get(name, 0.0), self.size(name, port))
            if any(name in rooted for name in inputs) or op.role in _THERE:
                rooted |= set() if op.role in _THERE else {op.name}
            else:
                rooted.add(op.name)
                inputs |= {name: size for name, _, to, size in given if to == device}
            if op.role == "collective":
                groups[device].append(op.name)
            made.append(
                Task(
                    op.name,
                    device,
                    inputs,
                    self.flop(op),
                    self.traffic(op, reads),
                    op.dtypes[0] if op.dtypes else "float32",
                    op.type in _VIEWS or op.role == "constant",
                )
            )
        # The first collective of each device belongs to the first one of all others, and so on.
        together = {name: names for names in zip(*groups.values(), strict=False) for name in names}
        return [
            Task(t.name, t.device, t.inputs, 0.0, t.traffic_bytes, t.dtype, False, together[t.name])
            if t.name in together
            else t
            for t in made
        ]

    def _arguments(self) -> list[tuple[str, str, str, float]]:
        """What is copied and made by no op: name, source, destination, bytes."""
        return [
            (f"{each.tensor} to {each.destination.short}", each.source.short, each.destination.short, each.size_bytes)
            for each in self.trace.transfers
            if each.tensor not in self.ops and each.size_bytes is not None
        ]

    def read_by(self, op: Op) -> list[Source]:
        """The outputs of tasks that an op reads or, with port -1, waits for."""
        found: dict[Source, None] = {}
        for name, port in zip(op.inputs, op.ports or (0,) * len(op.inputs), strict=True):
            found |= dict.fromkeys(self.sources(name, port))
        return list(found)

    def sources(self, name: str, port: int) -> tuple[Source, ...]:
        if name not in self.ops:
            return ()
        if name in self.runs:
            return ((name, port),)
        key = (name, port)
        if key not in self._sources:
            self._sources[key] = ()  # of a circle, which only loops have
            op = self.ops[name]
            if op.type in _OF_SHAPES:
                return ()
            ports = op.ports or (0,) * len(op.inputs)
            pairs = list(zip(op.inputs, ports, strict=True))
            if op.type == "IdentityN" and 0 <= port < len(pairs):
                pairs = [pairs[port]]
            found: dict[Source, None] = {}
            for each, its in pairs:
                found |= dict.fromkeys((n, p if port >= 0 else -1) for n, p in self.sources(each, its))
            self._sources[key] = tuple(found)
        return self._sources[key]

    def shape(self, name: str, port: int) -> Sequence[int] | None:
        shapes = self.shapes.get(name, ())
        shape = shapes[port] if 0 <= port < len(shapes) else None
        if shape is None or None in shape:
            return None
        return [int(size or 0) for size in shape]

    def size(self, name: str, port: int) -> float:
        """The bytes of an output; 0 where it is not known."""
        shape, dtypes = self.shape(name, port), self.ops[name].dtypes
        if shape is None or port >= len(dtypes):
            return 0.0
        return float(prod(shape) * _item_bytes(dtypes[port]))

    def traffic(self, op: Op, reads: Sequence[Source]) -> float:
        """What an op reads and writes, in bytes."""
        given = [self.size(*each) for each in reads]
        written = sum(self.size(op.name, port) for port in range(len(op.dtypes)))
        if op.role == "update":
            # Each variable is read and written, and the change is read.
            return (2 * max(1, len(self.trace.variables.get(op.name, ()))) + 1) * max(given, default=0.0)
        if any(part in op.type for part in _PARTS):
            return 2 * written
        return written if op.role == "collective" else sum(given) + written

    def flop(self, op: Op) -> float:
        """The arithmetic of a product or a convolution; of others the memory decides."""
        kind = op.executed_type or op.type
        return self.trace.work.get(op.name, 0.0) if any(part in kind for part in _PRODUCTS) else 0.0


def _item_bytes(dtype: str) -> int:
    try:
        return itemsize(dtype)
    except TypeError:  # strings and handles
        return 0
