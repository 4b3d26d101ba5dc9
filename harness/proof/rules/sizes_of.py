"""Shapes, sizes, values that are the same everywhere, and arithmetic of sizes that depend on the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.proof.evaluation import Entry, Evaluation, axis_of, numpy_type
from harness.proof.sizes import Size, Unprovable, differs, less, product
from harness.proof.terms import Poly


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
        raise Unprovable("shapes that do not broadcast")
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
    return tuple(axis_of(int(k), rank) for k in np.asarray(axes).reshape(-1))


def _product_of(op: Any, x: Any, axes: Any) -> Any:
    return np.multiply.reduce(x, axis=_axes(axes, x.ndim), keepdims=op.get_attr("keep_dims"))


def _sum_of(op: Any, x: Any, axes: Any) -> Any:
    return np.add.reduce(x, axis=_axes(axes, x.ndim), keepdims=op.get_attr("keep_dims"))


def _running_sum(op: Any, x: Any, axis: Any) -> Any:
    if op.get_attr("exclusive") or op.get_attr("reverse"):
        raise Unprovable("a running sum of sizes from the end")
    return np.add.accumulate(x, axis=int(axis))


#: Integer operations on sizes that depend on the number of rows, by element.
SIZE_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "FloorDiv": _pairwise(lambda x, y: x // y),
    "FloorMod": _pairwise(lambda x, y: x % y),
    "Maximum": _pairwise(lambda x, y: y if less(x, y) else x),
    "Minimum": _pairwise(lambda x, y: x if less(x, y) else y),
    "Less": _pairwise(less),
    "Greater": _pairwise(lambda x, y: less(y, x)),
    "LessEqual": _pairwise(lambda x, y: not less(y, x)),
    "GreaterEqual": _pairwise(lambda x, y: not less(x, y)),
    "Equal": _pairwise(lambda x, y: not differs(x, y)),
    "NotEqual": _pairwise(differs),
    "SelectV2": lambda op, condition, x, y: np.where(condition, x, y),
    "Prod": _product_of,
    "Sum": _sum_of,
    "Cumsum": _running_sum,
}


def of_sizes(ev: Evaluation, op: Any, values: Sequence[Any]) -> Poly | None:
    """The result of an integer operation of which some argument depends on the number of rows; None if not known."""
    if op.type not in SIZE_ARITHMETIC:
        return None
    made = np.asarray(SIZE_ARITHMETIC[op.type](op, *values), object)
    dtype = op.outputs[0].dtype.name
    if dtype == "bool":
        return ev.alg.const(made.astype(bool))
    return ev.alg.numbers(made, dtype)


def depends_on_rows(value: Any) -> bool:
    """Whether a constant depends on the number of rows."""
    return value.dtype == object and any(isinstance(each, Size) for each in value.reshape(-1))


RULES: dict[str, Entry] = {
    **dict.fromkeys(
        "Identity IdentityN StopGradient PreventGradient EnsureShape CheckNumerics CheckNumericsV2 Snapshot".split(),
        _same,
    ),
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
