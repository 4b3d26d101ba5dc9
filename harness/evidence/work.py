"""Estimates how much each op computes, from the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod, sqrt

from harness._tensorflow import CollectedGraph
from harness.evidence.op_types import written_type
from harness.evidence.placed import user_path
from harness.evidence.sizes import Shape, imported, shape_of
from harness.evidence.userops import UserOp

#: Arithmetic operations per element of an elementwise function, which is made of some ten instructions; else one.
_FUNCTION = 10.0
_FUNCTIONS = frozenset(
    {
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atan2",
        "Atanh",
        "Cos",
        "Cosh",
        "Digamma",
        "Elu",
        "Erf",
        "Erfc",
        "Erfinv",
    }
    | {"Exp", "Expm1", "Lgamma", "Log", "Log1p", "LogSoftmax", "Ndtri", "Pow", "Selu", "Sigmoid", "Sin", "Sinh"}
    | {"Softmax", "Softplus", "Softsign", "Tan", "Tanh", "Xlogy"}
)
_PRODUCTS = ("MatMul", "Einsum", "XlaDot")


def estimate(op_type: str, inputs: Iterable[Shape], outputs: Iterable[Shape]) -> float:
    """The number of arithmetic operations, to an order of magnitude; 0 where a shape is unknown."""
    every = list(inputs)
    given = [shape for shape in every if shape is not None]
    read, written = _known(map(_elements, given)), _known(map(_elements, outputs))
    if not written and len(read) < len(every) and any(word in op_type for word in (*_PRODUCTS, "Conv")):
        return 0.0  # its rows are unknown, and its weights do not say how many there are
    if any(word in op_type for word in _PRODUCTS) and len(read) > 1 and written:
        # A product of matrices has mk, kn and mn elements, and mkn multiplications.
        return 2.0 * sqrt(read[0] * read[1] * written[0])
    if "Conv" in op_type and len(read) > 1 and written and given[1]:
        return 2.0 * written[0] * read[1] / max(given[1][-1] or 1, 1)
    return (_FUNCTION if op_type in _FUNCTIONS else 1.0) * max([*read, *written], default=0)


def work_of(
    graph: CollectedGraph, written: Sequence[UserOp], name: str, shapes: Sequence[Shape] = ()
) -> dict[str, float]:
    """The work of the ops of one executed function; arguments as for ``sizes.transfers_of``.

    What the optimizer took away counts as an op on each element of the largest tensor that it would have read.
    """
    whole = imported(graph.after, shapes)
    if whole is None:
        return {}
    found: dict[str, float] = {}
    made: dict[str, Shape] = {}
    for op in whole.get_operations():
        path, outputs = user_path(op.name), [shape_of(tensor) for tensor in op.outputs]
        found[f"{name}/{path}"] = estimate(written_type(op.type), map(shape_of, op.inputs), outputs)
        if outputs:
            made[path] = outputs[0]
    for each in written:
        if f"{name}/{each.path}" not in found:
            read = [made.get(path) for path, _ in each.inputs]
            made[each.path] = max(read, key=lambda shape: _elements(shape) or 0, default=None)
            found[f"{name}/{each.path}"] = estimate(each.type, read, [made[each.path]])
    return found


def _elements(shape: Shape) -> int | None:
    return None if shape is None or any(size is None for size in shape) else prod(size or 0 for size in shape)


def _known(sizes: Iterable[int | None]) -> list[int]:
    return [size for size in sizes if size is not None]
