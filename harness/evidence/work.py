"""Estimates how much each op computes, from the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from math import prod, sqrt

from harness._tensorflow import CollectedGraph
from harness.evidence.op_types import written_type
from harness.evidence.passes import passes
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
    given, made = list(inputs), list(outputs)
    read, written = _known(map(_elements, given)), _known(map(_elements, made))
    product = any(word in op_type for word in _PRODUCTS)
    if not written and len(read) < len(given) and (product or "Conv" in op_type):
        return 0.0  # its rows are unknown, and its weights do not say how many there are
    if product and len(read) > 1 and written:
        # A product of matrices has mk, kn and mn elements, and mkn multiplications; of a batch, each has its own.
        alike = _batch([*given[:2], made[0]])
        return 2.0 * alike * sqrt(read[0] / alike * read[1] / alike * written[0] / alike)
    if "Conv" in op_type and len(given) > 1 and made:
        return _of_convolution(op_type, given, made[0])
    return (_FUNCTION if op_type in _FUNCTIONS else 1.0) * max([*read, *written], default=0)


def _batch(shapes: Sequence[Shape]) -> int:
    """The number of products of matrices: the sizes that all three shapes of one rank begin with, but for two axes."""
    known = [shape or () for shape in shapes]
    if len({*map(len, known)}) > 1:
        return 1
    alike = takewhile(lambda sizes: len({*sizes}) == 1, zip(*(shape[:-2] for shape in known), strict=True))
    return prod(sizes[0] or 1 for sizes in alike)


def _of_convolution(op_type: str, given: Sequence[Shape], made: Shape) -> float:
    """Each number of the output is a sum over the window and the channels that it reads; so are both gradients."""
    output, window = (given[-1], made) if "BackpropFilter" in op_type else (made, given[1])
    if "BackpropInput" in op_type:
        output = given[-1]
    size, weights = _elements(output), _elements(window)
    if size is None or weights is None or not window:
        return 0.0
    channels = (window[-1] or 1) * ((window[-2] or 1) if "Depthwise" in op_type and len(window) > 1 else 1)
    return 2.0 * size * weights / channels


def work_of(
    graph: CollectedGraph, written: Sequence[UserOp], name: str, shapes: Sequence[Shape] = ()
) -> dict[str, float]:
    """The work of the ops of one executed function; arguments as for ``sizes.transfers_of``.

    An op in a loop works in each pass. What was fused into a product counts as an op on each element of its result, and
    what the optimizer took away as one on each element of the largest tensor that it would have read.
    """
    whole = imported(graph.after, shapes)
    if whole is None:
        return {}
    found: dict[str, float] = {}
    made: dict[str, Shape] = {}
    fused: list[str] = []
    times = passes(graph.after)
    for op in whole.get_operations():
        path, kind, outputs = user_path(op.name), written_type(op.type), [shape_of(tensor) for tensor in op.outputs]
        found[path] = estimate(kind, map(shape_of, op.inputs), outputs) * times.get(op.name, 1)
        if outputs:
            made[path] = outputs[0]
        if kind.startswith("_Fused"):
            fused.append(path)
    ops = {each.path: each for each in written}
    for path in fused:
        _move_to_product(path, ops, found, made)
    for each in written:
        if each.path not in found:
            read = [made.get(path) for path, _ in each.inputs]
            made[each.path] = max(read, key=lambda shape: _elements(shape) or 0, default=None)
            found[each.path] = estimate(each.type, read, [made[each.path]])
    return {f"{name}/{path}": work for path, work in found.items()}


def _move_to_product(path: str, ops: Mapping[str, UserOp], found: dict[str, float], made: dict[str, Shape]) -> None:
    """Give the work of an op that a product was fused into to the product."""
    passed = [path]
    while (op := ops.get(passed[-1])) is not None and op.inputs and not _is_product(op.type):
        passed.append(op.inputs[0][0])
    if op is None or passed[-1] in found or not _is_product(op.type):
        return
    work, shape = found[path], made.get(path)
    for each in passed:
        found[each], made[each] = float(_elements(shape) or 0), shape
    found[passed[-1]] = work


def _is_product(op_type: str) -> bool:
    return "Conv" in op_type or any(word in op_type for word in _PRODUCTS)


def _elements(shape: Shape) -> int | None:
    return None if shape is None or any(size is None for size in shape) else prod(size or 0 for size in shape)


def _known(sizes: Iterable[int | None]) -> list[int]:
    return [size for size in sizes if size is not None]
