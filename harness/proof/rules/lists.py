"""Lists of tensors, as tensors with one more axis, the first."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.lazy import tf
from harness.proof.algebra import Algebra
from harness.proof.evaluation import Boxed, Entry, Evaluation
from harness.proof.sizes import Size, Unprovable
from harness.proof.terms import Form, Map, Poly

#: The length of a list that grows in a loop: a number that is no size of a real axis.
GROWING = 1_000_003


def uninitialised(alg: Algebra, p: Any) -> bool:
    """Whether a value is a list in which nothing was put."""
    atoms = [alg.atoms[i].op for mono, _ in p.terms for i in mono] if isinstance(p, Poly) else []
    return atoms == ["uninitialised"] and len(p.terms) == 1


def repeats(alg: Algebra, p: Poly) -> bool:
    """Whether a growing list has one value over and over."""
    if not p.shape or p.shape[0] != GROWING or uninitialised(alg, p):
        return False
    got = alg.unslice(p, 0)
    return got is not None and got[0] is None


def _empty(ev: Evaluation, op: Any, count: int, shape: Poly) -> Poly:
    value = ev.alg.value(shape)
    known = value is not None and value.ndim and all(isinstance(each, Size) or each >= 0 for each in value)
    sizes = tuple(each if isinstance(each, Size) else int(each) for each in value) if known else ()
    dtype = tf.as_dtype(op.get_attr("element_dtype")).name
    return ev.alg.broadcast(ev.alg.of(ev.alg.atom("uninitialised", (), (), (), dtype)), (count, *sizes))


def _reserve(ev: Evaluation, op: Any, shape: Poly, count: Poly) -> Poly:
    (many,) = ev.ints(count)
    if isinstance(many, Size):
        raise Unprovable("a list with an entry for each row")
    return _empty(ev, op, many, shape)


def _empty_list(ev: Evaluation, op: Any, shape: Poly, most: Poly) -> Poly:
    return _empty(ev, op, GROWING, shape)


def _same(ev: Evaluation, op: Any, x: Poly, *rest: Poly) -> Poly:
    if not x.shape or x.shape[0] == GROWING:
        raise Unprovable("a list of unknown length")
    return x


def _element_shape(ev: Evaluation, op: Any, x: Poly) -> Poly:
    if uninitialised(ev.alg, x):
        raise Unprovable("the shape of the entries of an empty list")
    return ev.alg.numbers(np.array(x.shape[1:], object), op.outputs[0].dtype.name)


def _length(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.const(np.array(_same(ev, op, x).shape[0], np.int32))


def _get(ev: Evaluation, op: Any, x: Poly, i: Poly, shape: Poly) -> Poly:
    maps: list[Map] = [((k + 1, None), k) for k in range(len(x.shape) - 1)]
    return ev.alg.apply("ListGet", (), [x, i], x.shape[1:], x.dtype, Form(maps))


def _filled(ev: Evaluation, x: Poly, item: Poly) -> Poly:
    if uninitialised(ev.alg, x):
        return ev.alg.broadcast(ev.alg.core(x), (x.shape[0], *item.shape))
    if x.shape[1:] != item.shape:
        raise Unprovable("a list with entries of several shapes")
    return x


def _set(ev: Evaluation, op: Any, x: Poly, i: Poly, item: Poly) -> Poly:
    at = ev.alg.value(i)
    if op.get_attr("resize_if_index_out_of_bounds") and (at is None or not 0 <= at < x.shape[0]):
        raise Unprovable("a list that may grow")
    x = _filled(ev, x, item)
    maps: list[Map] = [((k + 1, None, k), k + 1) for k in range(len(x.shape) - 1)]
    return ev.alg.apply("ListSet", (), [x, i, item], x.shape, x.dtype, Form(maps))


def _push(ev: Evaluation, op: Any, x: Poly, item: Poly) -> Poly:
    x = _filled(ev, x, item)
    maps: list[Map] = [((k + 1, k), k + 1) for k in range(len(x.shape) - 1)]
    return ev.alg.apply("ListPush", (), [x, item], x.shape, x.dtype, Form(maps))


def _pop(ev: Evaluation, op: Any, x: Poly, shape: Poly) -> list[Poly]:
    if repeats(ev.alg, x):
        return [x, ev.alg.make(dict(x.terms), x.shape[1:], x.dtype)]
    alone = ev.alg.alone(x)
    if alone is not None and alone.op == "ListPush":
        return list(alone.args)
    maps: list[Map] = [((k + 1,), k) for k in range(len(x.shape) - 1)]
    rest: list[Map] = [((k,), k) for k in range(1, len(x.shape))]
    item = ev.alg.apply("ListLast", (), [x], x.shape[1:], x.dtype, Form(maps))
    return [ev.alg.apply("ListRest", (), [x], x.shape, x.dtype, Form(rest)), item]


def _boxed(ev: Evaluation, op: Any, *values: Any) -> Boxed:
    return Boxed(values)


def _unboxed(ev: Evaluation, op: Any, box: Any) -> list[Any]:
    if not isinstance(box, Boxed):
        raise Unprovable("what a branch that was not taken would give")
    return list(box.values)


RULES: dict[str, Entry] = {
    "TensorListReserve": _reserve,
    "EmptyTensorList": _empty_list,
    "TensorListFromTensor": _same,
    "TensorListStack": _same,
    "TensorListElementShape": _element_shape,
    "TensorListLength": _length,
    "TensorListGetItem": _get,
    "TensorListSetItem": _set,
    "TensorListPushBack": _push,
    "TensorListPopBack": _pop,
    "OptionalFromValue": _boxed,
    "OptionalNone": _boxed,
    "OptionalGetValue": _unboxed,
}
