"""Tells ops that compute from ops that only move, view or join tensors; placement is judged by the former."""

from __future__ import annotations

from collections.abc import Iterable

from harness._tensorflow import HOST_DTYPES
from harness.evidence.op import Op
from harness.evidence.roles import LOOKUPS as LOOKUPS
from harness.evidence.trace import Trace

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


def proven(trace: Trace) -> list[Op]:
    """Return the ops that compute and whose device is known."""
    return [op for op in trace.ops if op.device is not None and computes(op)]
