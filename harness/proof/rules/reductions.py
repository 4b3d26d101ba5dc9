"""Operations that go along axes: sums, means, maxima, products, running sums, softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from harness.proof.evaluation import Entry, Evaluation, Rule, axis_of, distinct, is_float
from harness.proof.sizes import Unprovable, inverse, product
from harness.proof.terms import Form, Map, Poly


def _axes(ev: Evaluation, x: Poly, axes: Poly) -> tuple[int, ...]:
    return distinct([axis_of(k, len(x.shape)) for k in ev.ints(axes)])


def _sum(ev: Evaluation, op: Any, x: Poly, axes: Poly) -> Poly:
    return ev.alg.sum(x, _axes(ev, x, axes), keep=op.get_attr("keep_dims"))


def _mean(ev: Evaluation, op: Any, x: Poly, axes: Poly) -> Poly:
    over = _axes(ev, x, axes)
    count = product(x.shape[k] for k in over)
    if count == 0 or not is_float(x):
        raise Unprovable("the mean of no rows" if count == 0 else "a mean of integers")
    return ev.alg.scale(ev.alg.sum(x, over, keep=op.get_attr("keep_dims")), inverse(count))


def _l2_loss(ev: Evaluation, op: Any, x: Poly) -> Poly:
    return ev.alg.scale(ev.alg.sum(ev.alg.mul(x, x), range(len(x.shape))), Fraction(1, 2))


def _extreme(ev: Evaluation, op: Any, x: Poly, axes: Poly) -> Poly:
    return largest(ev, op.type, x, _axes(ev, x, axes), bool(op.get_attr("keep_dims")))


def largest(ev: Evaluation, kind: str, x: Poly, over: tuple[int, ...], keep: bool) -> Poly:
    """The largest (``Max``) or smallest (``Min``) along axes; with ``keep`` they stay, of size 1."""
    alg, name = ev.alg, {"Max": "Maximum", "Min": "Minimum"}[kind]
    if any(x.shape[k] == 0 for k in over):
        raise Unprovable(f"{kind} of no rows")
    out = tuple(size for k, size in enumerate(x.shape) if k not in over)
    shape = tuple(1 if k in over else size for k, size in enumerate(x.shape)) if keep else out
    alone = alg.alone(x)
    if alone is not None and alone.op == "Concat" and alone.attrs in over:
        return alg.maximum(name, [largest(ev, kind, arg, over, keep) for arg in alone.args], shape)
    if alone is not None and alone.op == "Reshape" and len(over) == len(x.shape):
        axes = tuple(range(len(alone.args[0].shape)))
        return alg.reshape(largest(ev, kind, alone.args[0], axes, False), shape)
    for k in over:
        got = alg.unslice(x, k)
        if got is not None and (rows := got[0]) is not None:
            (start, end, size), whole = rows, got[1]
            key = (name, whole.id, over, k, keep)
            base = alg.base(key, partial(largest, ev, kind, whole, over, keep), partial=alg.partial(whole))
            return alg.extreme(name, base, start, end, size, shape, x.dtype)
    if all(x.shape[k] == 1 for k in over):
        return alg.reshape(x, shape)
    rest = [k for k in range(len(x.shape)) if k not in over]
    maps: list[Map] = [((k,), at) for at, k in enumerate(rest)]
    form = Form(maps, (), lambda whole: largest(ev, kind, whole[0], over, False), total=True)
    return alg.reshape(alg.apply(kind, over, [x], out, x.dtype, form), shape)


def _reduction(ev: Evaluation, op: Any, x: Poly, axes: Poly) -> Poly:
    over = _axes(ev, x, axes)
    shape = tuple(size for k, size in enumerate(x.shape) if k not in over)
    kept = tuple(1 if k in over else size for k, size in enumerate(x.shape))
    maps: list[Map] = [((k,), at) for at, k in enumerate(k for k in range(len(x.shape)) if k not in over)]
    made = ev.alg.apply(op.type, over, [x], shape, x.dtype, Form(maps, total=True))
    return ev.alg.reshape(made, kept) if op.get_attr("keep_dims") else made


def _along(linear: bool, gone: bool) -> Callable[..., Poly]:
    """Along one axis, which the result has or not."""

    def rule(ev: Evaluation, op: Any, x: Poly, axis: Poly) -> Poly:
        at = ev.axis(axis, len(x.shape))
        maps: list[Map] = [((k,), k - (gone and k > at)) for k in range(len(x.shape)) if k != at]
        shape = tuple(size for k, size in enumerate(x.shape) if not gone or k != at)
        attrs = (ev.attributes(op), at)
        form = Form(maps, (0,) if linear else (), total=True)
        return ev.alg.apply(op.type, attrs, [x], shape, op.outputs[0].dtype.name, form)

    return rule


def rows_but(*out: int) -> Callable[[Any, Sequence[Poly], int], list[Map]]:
    """Row-wise along all axes of the first argument but these; the other arguments have no rows."""

    def maps(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
        rank, rest = len(args[0].shape), (None,) * (len(args) - 1)
        return [((k, *rest), k) for k in range(rank) if k not in [each % rank for each in out]]

    return maps


def _of_logits(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    """The loss and its gradient for each row of logits and labels, where neither is broadcast."""
    return [((0, 0), 0)] if args[0].shape[:1] == args[1].shape[:1] else []


RULES: dict[str, Entry] = {
    "Sum": _sum,
    "Mean": _mean,
    "L2Loss": _l2_loss,
    "Max": _extreme,
    "Min": _extreme,
    "Prod": _reduction,
    "EuclideanNorm": _reduction,
    "All": _reduction,
    "Any": _reduction,
    "ArgMax": _along(linear=False, gone=True),
    "ArgMin": _along(linear=False, gone=True),
    "Cumsum": _along(linear=True, gone=False),
    "Cumprod": _along(linear=False, gone=False),
    "CumulativeLogsumexp": _along(linear=False, gone=False),
    "Softmax": Rule(rows_but(-1), total=True),
    "LogSoftmax": Rule(rows_but(-1), total=True),
    "SoftmaxCrossEntropyWithLogits": Rule(_of_logits, total=True),
    "SparseSoftmaxCrossEntropyWithLogits": Rule(_of_logits),
}
