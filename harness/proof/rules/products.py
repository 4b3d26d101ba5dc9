"""Matrix products: rows of the result for rows of one argument, a part of the sum for rows of both."""

from __future__ import annotations

from typing import Any

from harness.proof.evaluation import Entry, Evaluation
from harness.proof.sizes import Unprovable
from harness.proof.terms import SUM, Form, Map, Poly, broadcast_shape


def _mat_mul(ev: Evaluation, op: Any, a: Poly, b: Poly) -> Poly:
    return mat_mul(ev, a, b, bool(op.get_attr("transpose_a")), bool(op.get_attr("transpose_b")))


def _batch_mat_mul(ev: Evaluation, op: Any, a: Poly, b: Poly) -> Poly:
    if a.dtype != b.dtype or op.outputs[0].dtype.base_dtype.name != a.dtype:
        raise Unprovable("a product of two types")
    return mat_mul(ev, a, b, bool(op.get_attr("adj_x")), bool(op.get_attr("adj_y")))


def mat_mul(ev: Evaluation, a: Poly, b: Poly, ta: bool, tb: bool) -> Poly:
    """The product of matrices, with leading axes or without, each transposed or not."""
    for _ in range(2):  # without transposed arguments
        a, ta = _untransposed(ev, a, ta)
        b, tb = _untransposed(ev, b, tb)
    p, q = len(a.shape), len(b.shape)
    lead = broadcast_shape(a.shape[:-2], b.shape[:-2])
    r = len(lead) + 2
    if a.shape[-2 if ta else -1] != b.shape[-1 if tb else -2]:
        raise Unprovable("a product of matrices that do not fit")
    shape = (*lead, a.shape[-1 if ta else -2], b.shape[-2 if tb else -1])
    maps: list[Map] = []
    for k, size in enumerate(lead):
        own = [k - (r - n) if k >= r - n and s[k - (r - n)] == size else None for n, s in ((p, a.shape), (q, b.shape))]
        maps.append((tuple(own), k))
    maps.append(((p - 1 if ta else p - 2, None), r - 2))
    maps.append(((None, q - 2 if tb else q - 1), r - 1))
    maps.append(((p - 2 if ta else p - 1, q - 1 if tb else q - 2), SUM))
    form = Form(maps, (0, 1), lambda whole: mat_mul(ev, whole[0], whole[1], ta, tb), total=True)
    return ev.alg.apply("MatMul", (ta, tb), [a, b], shape, a.dtype, form)


def _untransposed(ev: Evaluation, x: Poly, flag: bool) -> tuple[Poly, bool]:
    single = ev.alg.single(x)
    rank = len(x.shape)
    if single and single.op == "Transpose" and single.attrs == (*range(rank - 2), rank - 1, rank - 2):
        return ev.alg.scale(single.args[0], x.terms[0][1]), not flag
    return x, flag


def _einsum(ev: Evaluation, op: Any, *args: Poly) -> Poly:
    equation = op.get_attr("equation").decode().replace(" ", "")
    inside, out = equation.split("->")
    labels = [list(each) for each in inside.split(",")]
    if "." in equation or any(len(set(each)) < len(each) for each in (*labels, out)):
        raise Unprovable(f"einsum {equation}")
    every = list(dict.fromkeys(label for each in labels for label in each))
    sizes: dict[str, Any] = {}
    for each, arg in zip(labels, args, strict=True):
        for label, size in zip(each, arg.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                raise Unprovable(f"einsum {equation} broadcasts")
    maps: list[Map] = [
        (
            tuple(each.index(label) if label in each else None for each in labels),
            out.index(label) if label in out else SUM,
        )
        for label in every
    ]
    names = {label: str(at) for at, label in enumerate(every)}
    key = tuple(tuple(names[label] for label in each) for each in (*labels, out))
    form = Form(maps, tuple(range(len(args))), total=True)
    return ev.alg.apply("Einsum", key, args, [sizes[label] for label in out], args[0].dtype, form)


RULES: dict[str, Entry] = {
    "MatMul": _mat_mul,
    "BatchMatMul": _batch_mat_mul,
    "BatchMatMulV2": _batch_mat_mul,
    "BatchMatMulV3": _batch_mat_mul,
    "Einsum": _einsum,
}
