"""Rows looked up by numbers, and sums by numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.proof.evaluation import Entry, Evaluation, Rule
from harness.proof.rules.moves import MOST_ROWS, reshaped, rows_of
from harness.proof.rules.reductions import rows_but
from harness.proof.sizes import Unprovable, product
from harness.proof.terms import BITS, SUM, Form, Map, Poly


def _gather(ev: Evaluation, op: Any, table: Poly, ids: Poly, axis: Poly) -> Poly:
    return gather(ev, table, ids, ev.axis(axis, len(table.shape)), op.get_attr("batch_dims"))


def gather(ev: Evaluation, table: Poly, ids: Poly, axis: int, batch: int) -> Poly:
    """The rows ``ids`` of a table along an axis."""
    rank = len(ids.shape)
    batch = batch + rank if batch < 0 else batch
    value = ev.alg.value(ids)
    if value is not None and value.dtype != object and rank <= 1 and value.size and not batch:
        rows = [int(each) for each in value.reshape(-1)]
        size = table.shape[axis]
        if rows == list(range(rows[0], rows[0] + len(rows))) and rows[0] >= 0 and rows[-1] < size:
            made = ev.alg.slice(table, axis, rows[0], rows[-1] + 1)
            return made if rank else ev.alg.reshape(made, table.shape[:axis] + table.shape[axis + 1 :])
        if (
            not axis
            and rank
            and len(rows) <= MOST_ROWS
            and all(0 <= row < size for row in rows)
            and ev.alg.seams(table, 0)
        ):
            return rows_of(ev, table, rows)
        known = ev.alg.value(table) if table.dtype in BITS else None
        if known is not None and all(0 <= row < size for row in rows):
            found = np.take(known, value, axis)
            return ev.alg.numbers(found, table.dtype)
    shape = (*table.shape[:axis], *ids.shape[batch:], *table.shape[axis + 1 :])
    maps: list[Map] = [((k, k), k) for k in range(batch)]
    maps += [((None, k), axis + k - batch) for k in range(batch, rank)]
    maps += [((k, None), k) for k in range(batch, axis)]
    maps += [((k, None), k + rank - batch - 1) for k in range(axis + 1, len(table.shape))]
    form = Form(maps, (0,), lambda whole: gather(ev, whole[0], whole[1], axis, batch), total=True)
    # Numbers outside of the table are an error, if the lookup is made.
    if batch and isinstance(table.shape[axis], int) and not ev.level and not ev.undecided:
        rows, each = product(ids.shape[:batch]), product(ids.shape[batch:])
        key = ("in range", ev.alg.reshape(ids, (rows * each,)).id, rows, table.shape[axis])
        ev.alg.done[key] = ev.alg.reshape(ids, (rows, each))
    return ev.alg.apply("Gather", (axis, batch), [table, ids], shape, table.dtype, form)


def _resource_gather(ev: Evaluation, op: Any, ref: Any, ids: Poly) -> Poly:
    return gather(ev, ev.read(ref), ids, 0, op.get_attr("batch_dims"))


def _one_hot(ev: Evaluation, op: Any, ids: Poly, depth: Poly, on: Poly, off: Poly) -> Poly:
    (many,), rank = ev.ints(depth), len(ids.shape)
    at = op.get_attr("axis") % (rank + 1)
    shape = (*ids.shape[:at], many, *ids.shape[at:])
    maps: list[Map] = [((k, None, None), k + (k >= at)) for k in range(rank)]
    return ev.alg.apply("OneHot", (many, at), [ids, on, off], shape, on.dtype, Form(maps, total=True))


def _bincount(ev: Evaluation, op: Any, x: Poly, size: Poly, weights: Poly) -> Poly:
    (many,) = ev.ints(size)
    if len(x.shape) != 1 or 0 not in weights.shape or op.get_attr("binary_output"):
        raise Unprovable("counts with weights, of several rows, or of whether there is one")
    form = Form([((0,), SUM)], total=True)
    return ev.alg.apply("DenseBincount", many, [x], (many,), op.outputs[0].dtype.name, form)


def _segments(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    ids = len(args[1].shape)
    rest: list[Map] = [((k, None), k - ids + 1) for k in range(ids, len(args[0].shape))]
    return [*(((k, k), SUM) for k in range(ids)), *rest]


def _segments_shape(ev: Evaluation, op: Any, args: Sequence[Poly]) -> Sequence[Any]:
    return (*ev.ints(args[2]), *args[0].shape[len(args[1].shape) :])


_SEGMENTS = Rule(_segments, (0,), only_shape=(2,), total=True, shape=_segments_shape)


def _segment_sum(ev: Evaluation, op: Any, values: Poly, ids: Poly, count: Poly) -> Any:
    """A sum by segment numbers; row by row, where these are numbers within each row, and the rows follow each other.

    So is the gradient of a lookup in each row, which adds to the numbers where the row begins.
    """
    if (found := _rows_of_numbers(ev, ids, count)) is None:
        return ev.by_rule(op, [ev.alg.row_of_part(values), ids, count], _SEGMENTS)
    within, size = found
    rows, rest = within.shape[0], values.shape[1:]
    own = reshaped(ev, values, (*within.shape, *rest))
    maps: list[Map] = [((0, 0), 0), *(((k, None), k) for k in range(2, len(own.shape)))]
    form = Form(maps, (0,), total=True)
    made = ev.alg.apply("SegmentsOfRows", size, [own, within], (rows, size, *rest), values.dtype, form)
    return reshaped(ev, made, (rows * size, *rest))


def _rows_of_numbers(ev: Evaluation, ids: Poly, count: Poly) -> tuple[Poly, int] | None:
    """(the numbers within each row, how many a row has), where ``ids`` are these plus where each row begins."""
    many = ev.alg.value(count)
    if len(ids.shape) != 1 or many is None or many.dtype == object:
        return None
    for mono, coef in [*ids.terms, ((), 0)]:  # of a single row, nothing is added
        starts = ev.alg.value(ev.alg.make({mono: coef}, ids.shape, ids.dtype))
        if starts is None or starts.dtype == object:
            continue
        size = int(starts[starts > 0].min(initial=int(many)))
        rows = int(many) // size if size else 0
        if not rows or int(many) % size or ids.shape[0] % rows:
            continue
        if np.array_equal(starts, np.repeat(np.arange(rows) * size, ids.shape[0] // rows)):
            terms = {m: c for m, c in ids.terms if m != mono or not coef}
            within = ev.alg.make(terms, ids.shape, ids.dtype)
            if (found := ev.alg.done.get(("in range", within.id, rows, size))) is not None:
                return found, size
    return None


def _scatter(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    return [((k, k), SUM) for k in range(len(args[0].shape) - 1)]


def _band(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    return [((k, None, None), k) for k in range(len(args[0].shape) - 2)]


RULES: dict[str, Entry] = {
    "GatherV2": _gather,
    "ResourceGather": _resource_gather,
    "OneHot": _one_hot,
    "DenseBincount": _bincount,
    "UnsortedSegmentSum": _segment_sum,
    "ScatterNd": Rule(_scatter, (1,), only_shape=(2,), total=True, shape=lambda ev, op, args: ev.ints(args[2])),
    "TopKV2": Rule(rows_but(-1), total=True),
    "MatrixBandPart": Rule(_band, (0,), total=True),
}
