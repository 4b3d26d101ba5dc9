"""Whether arithmetic was exact: then the results of a split program have to be equal to the last bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.evidence.op import Op
from harness.judgement.runs import Program, Result, same_bits, to_array
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide
from harness.lazy import tf

# fmt: off
#: Ops whose result is exact when their inputs are integers small enough for the dtype's significand.
EXACT_OPS = frozenset({
    "Abs", "Add", "AddN", "AddV2", "All", "Any", "Assert", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3",
    "BiasAdd", "BiasAddGrad", "BroadcastGradientArgs", "BroadcastTo", "Cast", "Concat", "ConcatOffset", "ConcatV2",
    "ConjugateTranspose", "Const", "DynamicStitch", "Einsum",
    "EnsureShape", "Equal", "ExpandDims", "Fill", "FloorDiv", "FloorMod", "Gather", "GatherNd",
    "GatherV2", "Greater", "GreaterEqual", "Identity", "IdentityN", "If", "InvertPermutation", "Less", "LessEqual",
    "LogicalAnd", "LogicalNot", "LogicalOr", "MatMul", "Max", "MaxPool", "MaxPoolGrad", "Maximum", "Min", "Minimum",
    "Mul", "Neg", "NoOp", "NotEqual", "OnesLike", "Pack", "Pad", "PadV2", "PartitionedCall", "Placeholder", "Prod",
    "Range", "Rank", "ReadVariableOp", "Relu", "ReluGrad", "Reshape", "ResourceGather", "ReverseV2", "ScatterNd",
    "Select", "SelectV2", "Shape", "ShapeN", "Sign", "Size", "Slice", "Split", "SplitV", "Square", "Squeeze",
    "StatefulPartitionedCall", "StatelessIf", "StopGradient", "StridedSlice", "StridedSliceGrad", "Sub", "Sum",
    "TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate", "Tile", "Transpose", "Unpack",
    "UnsortedSegmentSum", "Where", "ZerosLike", "_EagerConst",
})
# fmt: on
#: Bits kept free, so that no sum on the way can have outgrown the significand although the results have not.
_GUARD_BITS = 6


def were_exact(
    reference: Program,
    found: Result,
    expected: Result,
    named: Sequence[NDArray[Any]],
    ops: Iterable[Op],
    arithmetic: float,
) -> bool:
    """Whether the results had to be equal to those of the reference; ``named`` are values of variables.

    Other numbers that go in, such as constants and variables that nobody named, are looked for in the reference's graph
    where results differ.
    """
    sources = [array for leaf in reference.leaves() if (array := _array(leaf)) is not None] + list(named)
    results = [array for array in (*expected.outputs, *expected.gradients, *expected.state) if array is not None]
    types = {op.type for op in ops if op.role != "control"}
    if not is_exact(sources, results, types, arithmetic):
        return False
    same = (
        one is other or (one is not None and other is not None and same_bits(one, other))
        for part in ("outputs", "gradients", "state")
        for one, other in zip(getattr(found, part), getattr(expected, part), strict=False)
    )
    if all(same):
        return True
    try:
        more = _given(reference.graph())
    except Exception:  # noqa: BLE001 - the user's code may raise anything where it is built as a graph
        return False
    return is_exact([*sources, *more], results, types, arithmetic)


def _array(leaf: Any) -> NDArray[Any] | None:
    return to_array(leaf) if hasattr(leaf, "dtype") else None


def _given(graph: Any) -> list[NDArray[Any]]:
    """The floating numbers that a ``FuncGraph`` holds, captures and reads from variables."""
    definition = graph.as_graph_def()
    inner = (function.node_def for function in definition.library.function)
    constants = (node.attr["value"].tensor for node in chain(definition.node, *inner) if node.op == "Const")
    values = [tf.make_ndarray(constant) for constant in constants if tf.as_dtype(constant.dtype).is_floating]
    captured = [tensor for tensor, _ in graph.captures if tf.is_tensor(tensor) and tensor.dtype.is_floating]
    return values + [array for each in (*captured, *graph.variables) if (array := to_array(each)) is not None]


def is_exact(
    sources: Iterable[NDArray[Any]],
    results: Iterable[NDArray[Any]],
    op_types: Iterable[str],
    arithmetic: float = 0.0,
) -> bool:
    """Whether the arithmetic that led from ``sources`` to ``results`` by these ops was exact.

    True only if every op is exact on integers, every source is an integer multiple of one power of two, and no result
    comes near the largest multiple that the dtype holds exactly. ``arithmetic`` is the largest epsilon of the dtypes
    that the ops compute in.
    """
    if not set(op_types) <= EXACT_OPS:
        return False
    quantum = 1.0
    for values, _ in _floating(sources):
        step = _quantum(values)
        if step is None or values.max() / step > 2**8:
            return False
        quantum = min(quantum, step)
    return all(
        values.max() / quantum**2 <= 1.0 / max(epsilon, arithmetic) / 2**_GUARD_BITS
        for values, epsilon in _floating(results)
    )


def _floating(arrays: Iterable[NDArray[Any]]) -> Iterator[tuple[NDArray[np.float64], float]]:
    """The magnitudes in each floating array, with its epsilon. Complex numbers give those of both parts."""
    for array in arrays:
        if array.size and (epsilon := epsilon_of(array.dtype)):
            yield np.abs(wide(array).reshape(-1).view(np.float64)), epsilon


def _quantum(values: NDArray[np.float64]) -> float | None:
    """The largest power of two, from 1 down to 1/16, of which every value is a multiple."""
    steps = (1.0, 0.5, 0.25, 0.125, 0.0625)
    return next((step for step in steps if np.all(values / step == np.round(values / step))), None)
