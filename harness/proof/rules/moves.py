"""Operations that move data: reshapes, transpositions, slices, joins, padding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from harness.proof.evaluation import Entry, Evaluation, axis_of, distinct, is_float
from harness.proof.sizes import Size, Unprovable, less, product
from harness.proof.terms import Form, Map, Poly, replaced


def _reshape(ev: Evaluation, op: Any, x: Poly, shape: Poly) -> Poly:
    wanted = ev.ints(shape)
    if -1 in wanted:
        known = product(size for size in wanted if size != -1)
        total = product(x.shape)
        if known == 0:  # TensorFlow leaves out axes of size 0 on both sides
            known, total = (product(size for size in each if size not in (0, -1)) for each in (wanted, x.shape))
        if isinstance(known, Size) and not isinstance(total, Size):
            raise Unprovable("a reshape that depends on the number of rows")
        wanted[wanted.index(-1)] = total // known
    return reshaped(ev, x, wanted)


def reshaped(ev: Evaluation, x: Poly, wanted: Sequence[Any]) -> Poly:
    """A reshape, in which a row of a larger value and the part that it gives of the sum of all are one."""
    gone = len(x.shape) - len(wanted)
    if gone < 0 and tuple(wanted) == (1,) * -gone + x.shape and ev.alg.has_parts(x):
        # The sum over axes of one row, with these axes put back, as in gradients of what is broadcast: that row.
        rows = ev.alg.unsummed(ev.alg.broadcast(x, wanted))
        if not ev.alg.has_parts(rows):
            return rows
    if tuple(wanted) == (1, *x.shape) and (row := ev.alg.row_again(x)) is not None:
        return row
    if gone > 0 and x.shape == ((1,) * gone + tuple(wanted)) and wanted[:1] != [1] and is_float(x) and ev.alg.is_row(x):
        return ev.alg.sum(x, range(gone))
    return ev.alg.reshape(x, wanted)


def _expand_dims(ev: Evaluation, op: Any, x: Poly, axis: Poly) -> Poly:
    at = ev.axis(axis, len(x.shape) + 1)
    return ev.alg.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def _squeeze(ev: Evaluation, op: Any, x: Poly) -> Poly:
    axes = [axis_of(k, len(x.shape)) for k in op.get_attr("squeeze_dims")]
    if not axes:
        if any(isinstance(size, Size) for size in x.shape):
            raise Unprovable("squeezes all axes of size 1")
        axes = [k for k, size in enumerate(x.shape) if size == 1]
    return ev.alg.reshape(x, [size for k, size in enumerate(x.shape) if k not in axes])


def _transpose(ev: Evaluation, op: Any, x: Poly, perm: Poly) -> Poly:
    order = [axis_of(k, len(x.shape)) for k in ev.ints(perm)]
    if sorted(order) != list(range(len(x.shape))):
        raise Unprovable(f"a transposition by {order}")
    return ev.alg.transpose(x, order)


def _pack(ev: Evaluation, op: Any, *args: Poly) -> Poly:
    at = axis_of(op.get_attr("axis"), len(args[0].shape) + 1)
    return ev.alg.concat([ev.alg.reshape(arg, (*arg.shape[:at], 1, *arg.shape[at:])) for arg in args], at)


def _unpack(ev: Evaluation, op: Any, x: Poly) -> list[Poly]:
    at = axis_of(op.get_attr("axis"), len(x.shape))
    shape = x.shape[:at] + x.shape[at + 1 :]
    return [ev.alg.reshape(ev.alg.slice(x, at, i, i + 1), shape) for i in range(x.shape[at])]


def _concat(ev: Evaluation, op: Any, *args: Poly) -> Poly:
    *parts, axis = args
    if not ev.alg.are_of_same_rows(parts):
        parts = [ev.alg.row_of_part(part) for part in parts]
    return ev.alg.concat(parts, ev.axis(axis, len(parts[0].shape)))


def _split(ev: Evaluation, op: Any, axis: Poly, x: Poly) -> list[Poly]:
    at, count = ev.axis(axis, len(x.shape)), len(op.outputs)
    own, left = x.shape[at] // count, x.shape[at] % count
    if left != 0:
        raise Unprovable(f"{x.shape[at]} rows split into {count}")
    return [ev.alg.slice(x, at, i * own, (i + 1) * own) for i in range(count)]


def _split_v(ev: Evaluation, op: Any, x: Poly, sizes: Poly, axis: Poly) -> list[Poly]:
    at, own = ev.axis(axis, len(x.shape)), ev.ints(sizes)
    if -1 in own:
        rest = x.shape[at]
        for size in own:
            rest = rest - size if size != -1 else rest
        own[own.index(-1)] = rest
    ends = list(itertools.accumulate(own))
    if ends[-1] != x.shape[at]:
        raise Unprovable(f"{x.shape[at]} rows split into {own}")
    return [ev.alg.slice(x, at, end - size, end) for size, end in zip(own, ends, strict=True)]


def _slice(ev: Evaluation, op: Any, x: Poly, begin: Poly, size: Poly) -> Poly:
    for k, (start, many) in enumerate(zip(ev.ints(begin), ev.ints(size), strict=True)):
        x = ev.alg.slice(x, k, start, x.shape[k] if many == -1 else start + many)
    return x


#: So many rows are taken one by one, where they do not follow each other.
MOST_ROWS = 64


@dataclass(frozen=True, slots=True)
class _Range:
    start: Any
    stop: Any
    step: int

    @property
    def size(self) -> Any:
        if self.step == 1:
            return self.stop - self.start
        return len(range(self.start, self.stop, self.step))


def _clamped(start: Any, stop: Any, step: int, size: Any) -> _Range:
    """The range that a slice of an axis of this size stands for."""
    if step != 1:
        if any(isinstance(each, Size) for each in (start, stop, size)):
            raise Unprovable("a slice with steps that depends on the number of rows")
        return _Range(*slice(start, stop, step).indices(size))

    def inside(at: Any) -> Any:
        at = at + size if less(at, 0) else at
        return 0 if less(at, 0) else size if less(size, at) else at

    first = 0 if start is None else inside(start)
    last = size if stop is None else inside(stop)
    return _Range(first, first if less(last, first) else last, 1)


def _ranges(ev: Evaluation, op: Any, shape: Sequence[Any], given: Sequence[Poly]) -> tuple[list[_Range], list[Any]]:
    """(the range of each axis, the shape of the result)."""
    first, last, step = (ev.ints(each) for each in given)
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    mask = {name: op.get_attr(f"{name}_mask") for name in names}
    axes = sum(1 for i in range(len(first)) if not (mask["new_axis"] | mask["ellipsis"]) >> i & 1)
    ranges: list[_Range] = []
    result: list[Any] = []
    for i in range(len(first)):
        at = len(ranges)
        if mask["ellipsis"] >> i & 1:
            for k in range(len(shape) - axes):
                ranges.append(_Range(0, shape[at + k], 1))
                result.append(shape[at + k])
        elif mask["new_axis"] >> i & 1:
            result.append(1)
        elif mask["shrink_axis"] >> i & 1:
            start = first[i] + shape[at] if less(first[i], 0) else first[i]
            ranges.append(_Range(start, start + 1, 1))
        else:
            bounds = [None if mask[m] >> i & 1 else v[i] for m, v in (("begin", first), ("end", last))]
            found = _clamped(bounds[0], bounds[1], step[i], shape[at])
            ranges.append(found)
            result.append(found.size)
    for k in range(len(ranges), len(shape)):
        ranges.append(_Range(0, shape[k], 1))
        result.append(shape[k])
    return ranges, result


def _picked(ev: Evaluation, op: Any, rank: int, given: Sequence[Poly]) -> tuple[int, Poly] | None:
    """(axis, index) where one index is not constant, all other axes stay whole, and this axis goes."""
    begin, _, steps = given
    mask = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    count = begin.shape[0]
    one_goes = mask["shrink_axis"] and not mask["new_axis"]
    if ev.alg.value(begin) is not None or not one_goes or any(step != 1 for step in ev.ints(steps)):
        return None
    at = mask["shrink_axis"].bit_length() - 1
    rest = [i for i in range(count) if i != at]
    left_out = rank - count if mask["ellipsis"] else 0
    if mask["shrink_axis"] != 1 << at or any(
        not (mask["begin"] & mask["end"] | mask["ellipsis"]) >> i & 1 for i in rest
    ):
        return None
    axis = at + left_out if mask["ellipsis"] and mask["ellipsis"].bit_length() - 1 < at else at
    return axis, ev.alg.reshape(ev.alg.slice(begin, 0, at, at + 1), ())


def _strided_slice(ev: Evaluation, op: Any, x: Poly, *given: Poly) -> Poly:
    if (picked := _picked(ev, op, len(x.shape), given)) is not None:
        axis, index = picked
        picks: list[Map] = [((k, None), k - (k > axis)) for k in range(len(x.shape)) if k != axis]
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        return ev.alg.apply("Pick", axis, [x, index], shape, x.dtype, Form(picks, (0,), total=True))
    ranges, result = _ranges(ev, op, x.shape, given)
    for k, each in enumerate(ranges):
        if each.step == 1:
            x = ev.alg.slice(x, k, each.start, each.stop)
        else:
            shape = replaced(x.shape, k, each.size)
            if 0 < each.size <= MOST_ROWS and k == 0:
                x = rows_of(ev, x, range(each.start, each.stop, each.step))
                continue
            maps: list[Map] = [((j,), j) for j in range(len(shape)) if j != k]
            attrs = (k, each.start, each.stop, each.step)
            x = ev.alg.apply("Stride", attrs, [x], shape, x.dtype, Form(maps, (0,), total=True))
    return ev.alg.reshape(x, result)


def rows_of(ev: Evaluation, x: Poly, rows: Sequence[int], axis: int = 0) -> Poly:
    """These rows, one after the other."""
    return ev.alg.concat([ev.alg.slice(x, axis, row, row + 1) for row in rows], axis)


def _strided_slice_grad(ev: Evaluation, op: Any, shape: Poly, *given: Poly) -> Poly:
    *bounds, g = given
    sizes = ev.ints(shape)
    if (picked := _picked(ev, op, len(sizes), bounds)) is not None:
        axis, index = picked
        maps = [((k - (k > axis), None), k) for k in range(len(sizes)) if k != axis]
        return ev.alg.apply("Put", (axis, sizes[axis]), [g, index], sizes, g.dtype, Form(maps, (0,), total=True))
    ranges, result = _ranges(ev, op, sizes, bounds)
    if any(each.step != 1 and (k or not 0 < each.size <= MOST_ROWS) for k, each in enumerate(ranges)):
        raise Unprovable("the gradient of a slice with steps")
    if tuple(result) != g.shape:
        raise Unprovable("the gradient of a slice of another shape")
    g = ev.alg.reshape(g, [each.size for each in ranges])
    for k, each in enumerate(ranges):
        if each.step == 1:
            g = padded(ev, g, k, each.start, sizes[k] - each.stop)
            continue
        rows = enumerate(range(each.start, each.stop, each.step))
        parts = [padded(ev, ev.alg.slice(g, k, at, at + 1), k, row, sizes[k] - row - 1) for at, row in rows]
        g = _add_all(ev, parts)
    return g


def _add_all(ev: Evaluation, parts: Sequence[Poly]) -> Poly:
    total, *others = parts
    for part in others:
        total = ev.alg.add(total, part)
    return total


def _pad(ev: Evaluation, op: Any, x: Poly, paddings: Poly) -> Poly:
    pairs = ev.fixed(paddings, "a padding")
    for k in range(len(x.shape)):
        before, after = (each if isinstance(each, Size) else int(each) for each in pairs[k])
        x = padded(ev, x, k, before, after)
    return x


def padded(ev: Evaluation, x: Poly, k: int, before: Any, after: Any) -> Poly:
    """Zeros before and after: the part of a whole that these rows give, if they are rows of one."""
    if before == 0 and after == 0:
        return x
    alg, own = ev.alg, x.shape[k]
    x = alg.unsummed(x) if own == 1 and alg.has_parts(x) else x
    size = before + own + after
    shape = replaced(x.shape, k, size)
    total = alg.zeros(shape, x.dtype)
    for mono, coef in x.terms:
        one = alg.make({mono: Fraction(1)}, x.shape, x.dtype)
        total = alg.add(total, alg.scale(_padded(ev, one, k, before, after), coef))
    return total


def _padded(ev: Evaluation, one: Poly, k: int, before: Any, after: Any) -> Poly:
    """The same of a single product."""
    alg, own = ev.alg, one.shape[k]
    size = before + own + after
    shape = replaced(one.shape, k, size)
    for j in (j for j in range(len(shape)) if j != k):
        if (found := alg.unslice(one, j)) is not None and found[0] is not None:
            return alg.slice(padded(ev, found[1], k, before, after), j, *found[0][:2])
    atom, got = alg.alone(one), alg.unslice(one, k)
    if atom is not None and atom.op == "part":
        place = alg.ranges(atom).get(k, (0, own))
        name = ("pad", k, before, after, *place)
        whole = alg.alone(alg.uncut(atom)) or atom
        return alg.after(name, whole, lambda q: padded(ev, alg.slice(q, k, *place), k, before, after), shape, one.dtype)
    if got and (got[0] is None or got[0] == (before, before + own, size)):
        return _window(ev, got[1] if got[0] else alg.make(dict(one.terms), shape, one.dtype), k, before, own, size)
    zeros = [alg.zeros(replaced(one.shape, k, rows), one.dtype) for rows in (before, after)]
    return alg.concat([zeros[0], one, zeros[1]], k)


def _window(ev: Evaluation, whole: Poly, k: int, before: Any, own: Any, size: Any) -> Poly:
    """The rows [before, before + own) of a whole with zeros for all others: a part of it."""
    base = ev.alg.base(("window", k, whole.id), lambda: whole, partial=ev.alg.partial(whole))
    return ev.alg.part(base, before, before + own, size, whole.shape, whole.dtype)


def _tile(ev: Evaluation, op: Any, x: Poly, multiples: Poly) -> Poly:
    times = ev.ints(multiples)
    shape = tuple(size * many for size, many in zip(x.shape, times, strict=True))
    same = all(
        many == 1 or (size == 1 and (got := ev.alg.unslice(x, k)) is not None and got[0] is None)
        for k, (size, many) in enumerate(zip(x.shape, times, strict=True))
    )
    if same and 0 not in shape:
        return ev.alg.broadcast(x, shape)
    maps: list[Map] = [((k,), k) for k, many in enumerate(times) if many == 1]
    return ev.alg.apply("Tile", tuple(times), [x], shape, x.dtype, Form(maps, (0,), total=True))


def _reverse(ev: Evaluation, op: Any, x: Poly, axes: Poly) -> Poly:
    over = distinct([axis_of(k, len(x.shape)) for k in ev.ints(axes)])
    maps: list[Map] = [((k,), k) for k in range(len(x.shape)) if k not in over]
    return ev.alg.apply("Reverse", over, [x], x.shape, x.dtype, Form(maps, (0,), total=True))


def _roll(ev: Evaluation, op: Any, x: Poly, shift: Poly, axes: Poly) -> Poly:
    over, by = [axis_of(k, len(x.shape)) for k in ev.ints(axes)], ev.ints(shift)
    maps: list[Map] = [((k,), k) for k in range(len(x.shape)) if k not in over]
    return ev.alg.apply("Roll", (tuple(over), tuple(by)), [x], x.shape, x.dtype, Form(maps, (0,), total=True))


RULES: dict[str, Entry] = {
    "Reshape": _reshape,
    "ExpandDims": _expand_dims,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Pack": _pack,
    "Unpack": _unpack,
    "ConcatV2": _concat,
    "Split": _split,
    "SplitV": _split_v,
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_grad,
    "Pad": _pad,
    "Tile": _tile,
    "ReverseV2": _reverse,
    "Roll": _roll,
}
