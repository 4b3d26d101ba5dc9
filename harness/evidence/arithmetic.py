"""Tells ops that compute from ops that only move, view or join tensors; placement is judged by the former."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness._tensorflow import HOST_DTYPES
from harness.evidence.op import Evidence, Op

#: Ops that join or split tensors: on the host, or in their scope.
JOINS = frozenset({"AddN", "Concat", "ConcatV2", "Pack", "ParallelConcat"})
SPLITS = frozenset({"Split", "SplitV", "Unpack"})
#: Calls: the ops inside do the work.
CALLS = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile", "Case"}
    | {"StatelessCase"}
)
#: Lookups in a hash table: TensorFlow runs them where the table is.
TABLES = frozenset({"LookupTableFindV2"})
#: Calls of Python functions, which run on the host.
PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless", "numpy_function"})
#: Ops that move or view data; on another device than their neighbours, they are no fault.
MOVEMENT = (
    JOINS
    | SPLITS
    | CALLS
    | frozenset(
        {"ConcatOffset", "ExpandDims", "Identity", "IdentityN", "Rank", "Reshape", "Shape", "ShapeN", "Size", "Slice"}
        | {"Squeeze", "StridedSlice", "Cast", "Placeholder", "StopGradient", "Fill", "Range", "OnesLike", "ZerosLike"}
        | {"OptionalFromValue", "OptionalGetValue", "OptionalNone", "OptionalHasValue", "BroadcastGradientArgs"}
        | {"BroadcastTo", "Pad", "Snapshot", "EnsureShape"}
        | {"TensorListReserve", "TensorListSetItem", "TensorListStack", "TensorListGetItem", "EmptyTensorList"}
        | {"TensorListPushBack", "TensorListPopBack", "TensorListElementShape", "TensorListLength"}
        | {"TensorListFromTensor", "TensorScatterUpdate"}
        # A hash table or a queue is on one device, often the host, and so is what reads it or writes to it.
        | {"LookupTableExportV2", "LookupTableFindV2", "LookupTableImportV2", "LookupTableInsertV2"}
        | {"LookupTableRemoveV2", "LookupTableSizeV2", "QueueCloseV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"}
        | {"QueueDequeueV2", "QueueEnqueueManyV2", "QueueEnqueueV2", "QueueIsClosedV2", "QueueSizeV2"}
        # A random generator's counter is a variable: these ops read it and move it on, where it is.
        | {"RngReadAndSkip", "RngSkip"}
    )
)


def computes(op: Op) -> bool:
    """Whether an op does arithmetic on tensors that live on its device: what placement is judged by.

    Tensors of int32, of strings and of shapes live in host memory wherever their op is (FAULTS P04).
    """
    return op.role in ("forward", "gradient") and op.type not in MOVEMENT and on_device(op)


def on_device(op: Op) -> bool:
    """Whether an op has an output that lives on its device, not in host memory."""
    return not op.dtypes or not HOST_DTYPES.issuperset(op.dtypes)


def floats(dtypes: Iterable[str]) -> bool:
    """Whether one of these dtypes is a floating or a complex one."""
    return any(dtype.startswith(("float", "bfloat", "half", "complex")) for dtype in dtypes)


def moved(op: Op) -> bool:
    """Whether an op ran elsewhere than its scope asked."""
    return op.device is not None and op.requested is not None and not op.device.matches(op.requested)


def proven(evidence: Evidence) -> list[Op]:
    """Return the ops that compute and whose device is known."""
    return [op for op in evidence.ops if op.device is not None and computes(op)]


def sources_of(op: Op) -> list[tuple[str, int]]:
    """The tensors that an op reads and does not merely wait for: what made each, and the number of its output."""
    return [(name, port) for name, port in zip(op.inputs, op.ports or [0] * len(op.inputs), strict=True) if port >= 0]


def gradients_elsewhere(evidence: Evidence) -> Iterator[tuple[Op, Op]]:
    """Backward ops that ran on another device than their forward ops, each with its forward op."""
    by_name = {op.name: op for op in evidence.ops}
    for op in evidence.ops:
        forward = by_name.get(op.forward or "")
        if op.device is None or op.role != "gradient" or forward is None or not computes(op):
            continue
        if forward.device is None or forward.device == op.device or not computes(forward):
            continue
        if forward.requested is not None and moved(forward) and op.device.matches(forward.requested):
            continue  # the forward op is what is elsewhere
        yield op, forward
