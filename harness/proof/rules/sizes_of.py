"""Shapes, sizes, values that are the same everywhere, and arithmetic of sizes that depend on the number of rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.proof.bodies import run_kernel
from harness.proof.evaluation import Entry, Evaluation, axis_of, distinct, numpy_type
from harness.proof.sizes import Fails, Size, Unprovable, differs, less, product
from harness.proof.terms import Poly, broadcast_shape


def _same(ev: Evaluation, op: Any, *args: Any) -> list[Any]:
    return list(args[: len(op.outputs)])


def _shape(ev: Evaluation, op: Any, *args: Poly) -> list[Poly]:
    return [ev.alg.numbers(np.array(arg.shape, object), op.outputs[0].dtype.name) for arg in args]


def _size(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.numbers(np.array(product(x.shape), object), op.outputs[0].dtype.name)


def _rank(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.const(np.array(len(x.shape), np.int32))


def _zeros_like(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.broadcast(ev.alg.const(np.zeros((), numpy_type(x.dtype))), x.shape)


def _ones_like(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.broadcast(ev.alg.const(np.ones((), numpy_type(x.dtype))), x.shape)


def _fill(ev: Evaluation, op: Any, shape: Poly, value: Poly) -> Poly:
    return ev.alg.broadcast(value, ev.ints(shape))


def _broadcast_to(ev: Evaluation, op: Any, x: Poly, shape: Poly) -> Poly:
    wanted = tuple(ev.ints(shape))
    made = ev.alg.broadcast(x, wanted)
    if made.shape != wanted:
        raise Unprovable("a broadcast to a smaller shape")
    return made


def _gradient_args(ev: Evaluation, op: Any, one: Poly, other: Poly) -> list[Poly]:
    """The axes along which each of two shapes is broadcast to their common one."""
    shapes = [ev.ints(one), ev.ints(other)]
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
    if any(a != b and a != 1 and b != 1 for a, b in zip(*padded, strict=True)):
        raise Fails("shapes that do not broadcast")
    axes = [[k for k in range(rank) if own[k] == 1] for own in padded]
    return [ev.alg.const(np.array(each, op.outputs[0].dtype.as_numpy_dtype)) for each in axes]


def _concat_offset(ev: Evaluation, op: Any, axis: Poly, *shapes: Poly) -> list[Poly]:
    """Where each of several values begins in their concatenation."""
    at, offset = ev.axis(axis, shapes[0].shape[0]), np.zeros(shapes[0].shape, object)
    offsets = []
    for shape in shapes:
        offsets.append(ev.alg.numbers(offset.copy(), "int32"))
        offset[at] = offset[at] + ev.ints(shape)[at]
    return offsets


def _pairwise(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda op, x, y: np.frompyfunc(fn, 2, 1)(x, y)


def _axes(axes: Any, rank: int) -> tuple[int, ...]:
    return distinct([axis_of(int(k), rank) for k in np.asarray(axes).reshape(-1)])


def _larger(x: Any, y: Any) -> Any:
    return y if less(x, y) else x


def _smaller(x: Any, y: Any) -> Any:
    return x if less(x, y) else y


def _reduced(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def over_axes(op: Any, x: Any, axes: Any) -> Any:
        gone = _axes(axes, x.ndim)
        for axis in gone:
            x = np.frompyfunc(fn, 2, 1).reduce(x, axis=axis, keepdims=True)
        return x if op.get_attr("keep_dims") else x.reshape([n for k, n in enumerate(x.shape) if k not in gone])

    return over_axes


def _running(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def along_axis(op: Any, x: Any, axis: Any) -> Any:
        if op.get_attr("exclusive") or op.get_attr("reverse"):
            raise Unprovable("a running total of sizes from the end, or without the own one")
        return np.frompyfunc(fn, 2, 1).accumulate(x, axis=int(axis))

    return along_axis


def _common_shape(op: Any, one: Any, other: Any) -> Any:
    return broadcast_shape(one.tolist(), other.tolist())


#: Integer operations on sizes that depend on the number of rows, by element.
SIZE_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "FloorDiv": _pairwise(lambda x, y: x // y),
    "FloorMod": _pairwise(lambda x, y: x % y),
    "Maximum": _pairwise(_larger),
    "Minimum": _pairwise(_smaller),
    "Less": _pairwise(less),
    "Greater": _pairwise(lambda x, y: less(y, x)),
    "LessEqual": _pairwise(lambda x, y: not less(y, x)),
    "GreaterEqual": _pairwise(lambda x, y: not less(x, y)),
    "Equal": _pairwise(lambda x, y: not differs(x, y)),
    "NotEqual": _pairwise(differs),
    "SelectV2": lambda op, condition, x, y: np.where(condition, x, y),
    "Abs": lambda op, x: np.frompyfunc(lambda each: _larger(each, -each), 1, 1)(x),
    "Prod": _reduced(operator.mul),
    "Sum": _reduced(operator.add),
    "Max": _reduced(_larger),
    "Min": _reduced(_smaller),
    "Cumsum": _running(operator.add),
    "Cumprod": _running(operator.mul),
    "BroadcastArgs": _common_shape,
}
#: Operations that only move elements of some of their arguments, whose numbers are these.
MOVED: dict[str, Callable[[int], Sequence[int]]] = {
    "DynamicStitch": lambda count: range(count // 2, count),
    "TensorScatterUpdate": lambda count: (0, 2),
    **dict.fromkeys(("Tile", "ReverseV2", "Roll", "GatherNd"), lambda count: (0,)),
}


def _moved(op: Any, values: Sequence[Any]) -> Any:
    """What an operation makes of sizes that it only moves: its kernel moves their numbers in a list of them.

    None where what says how to move them depends on the number of rows.
    """
    data = MOVED[op.type](len(values))
    sizes: list[Any] = []
    given = []
    for at, value in enumerate(values):
        if at in data:
            given.append(np.arange(len(sizes) + 1, len(sizes) + value.size + 1).reshape(value.shape))
            sizes.extend(value.reshape(-1))
        elif depends_on_rows(value):
            return None
        else:
            given.append(value)
    (numbers,) = run_kernel(op, given)
    made = np.empty(numbers.shape, object)
    for at, number in np.ndenumerate(numbers):
        if not 0 < number <= len(sizes):
            raise Unprovable(f"{op.type} gives an element that it was not given")
        made[at] = sizes[number - 1]
    return made


def of_sizes(ev: Evaluation, op: Any, values: Sequence[Any]) -> Poly | None:
    """The result of an integer operation of which some argument depends on the number of rows; None if not known."""
    if op.type in MOVED:
        made = _moved(op, values)
    elif op.type in SIZE_ARITHMETIC:
        made = np.asarray(SIZE_ARITHMETIC[op.type](op, *values), object)
    else:
        made = None
    if made is None:
        return None
    dtype = op.outputs[0].dtype.name
    if dtype == "bool":
        return ev.alg.const(made.astype(bool))
    return ev.alg.numbers(made, dtype)


def depends_on_rows(value: Any) -> bool:
    """Whether a constant depends on the number of rows."""
    return value.dtype == object and any(isinstance(each, Size) for each in value.reshape(-1))


#: In a traced function nothing is fed in place of a default.
_PASSED_ON = """
    Identity IdentityN StopGradient PreventGradient EnsureShape CheckNumerics CheckNumericsV2 Snapshot
    PlaceholderWithDefault
"""

RULES: dict[str, Entry] = {
    **dict.fromkeys(_PASSED_ON.split(), _same),
    "Shape": _shape,
    "ShapeN": _shape,
    "Size": _size,
    "Rank": _rank,
    "ZerosLike": _zeros_like,
    "OnesLike": _ones_like,
    "Fill": _fill,
    "BroadcastTo": _broadcast_to,
    "BroadcastGradientArgs": _gradient_args,
    "ConcatOffset": _concat_offset,
}
