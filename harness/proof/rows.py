"""Rows of values: slices go out of operations, and adjacent ones join."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from harness.proof.sizes import Size, less
from harness.proof.terms import Atom, Form, Map, Mono, Poly, Shape, replaced
from harness.proof.values import Values

#: Rows [start, end) of so many.
Place = tuple[Any, Any, Any]


@dataclass
class Rows(Values):
    """What slices and concatenations are. A slice's atom has the ranges of its axes and the whole."""

    def unslice(self, p: Poly, k: int) -> tuple[Place | None, Poly] | None:
        """``p`` as rows [start, end) of ``size`` along axis ``k`` of a whole: ((start, end, size), whole).

        (None, p) where it has the same rows everywhere; None where it is neither.
        """
        rank, own = len(p.shape), p.shape[k]
        found: Place | None = None
        terms: dict[Mono, Any] = {}
        for mono, coef in p.terms:
            new = []
            for i in mono:
                atom = self.atoms[i]
                at = k - rank + len(atom.shape)
                ranges = self.ranges(atom)
                if at in ranges and atom.shape[at] == own:
                    whole = self.uncut(atom)
                    place = (*ranges.pop(at), whole.shape[at])
                    if found not in (None, place):
                        return None
                    found = place
                    new.append(self.sliced(whole, ranges).id)
                elif at < 0 or atom.shape[at] == 1:
                    new.append(i)
                else:
                    return None
            key = tuple(sorted(new))
            terms[key] = terms.get(key, Fraction(0)) + coef
        if found is None:
            return None, p
        return found, self.make(terms, replaced(p.shape, k, found[2]), p.dtype)

    def ranges(self, atom: Atom) -> dict[int, tuple[Any, Any]]:
        """The ranges of its axes that make an atom of a larger value; so are rows of a part of a sum."""
        if atom.op == "slice":
            return dict(atom.attrs)
        cut = self.bases[atom.attrs[0]].cut if atom.op == "part" else None
        return {} if cut is None else dict(cut[1])

    def uncut(self, atom: Atom) -> Poly:
        """The value that these ranges are of."""
        if atom.op == "slice":
            return atom.args[0]
        cut = self.bases[atom.attrs[0]].cut if atom.op == "part" else None
        return self.of(atom) if cut is None else self.same_rows(atom, cut[0], cut[2])

    def is_row(self, p: Poly) -> bool:
        """Whether a value of one row is that row of a larger value."""
        got = self.unslice(p, 0)
        return got is not None and got[0] is not None

    def unpart(self, p: Poly, place: Place) -> Poly | None:
        """The sum of which ``p`` is the part that the rows ``place`` give, or None."""
        total = self.zeros(p.shape, p.dtype)
        for mono, coef in p.terms:
            parts = [i for i in mono if self.atoms[i].op == "part"]
            if len(parts) != 1 or self.atoms[parts[0]].attrs[1:] != place:
                return None
            rest = list(mono)
            rest.remove(parts[0])
            full = self.bases[self.atoms[parts[0]].attrs[0]].full()
            made = self.mul(full, self.make({tuple(rest): coef}, self.own_shape(rest), p.dtype))
            total = self.add(total, self.broadcast(made, p.shape))
        return total

    def whole(self, p: Poly, axis: int, place: Place) -> Poly | None:
        """The whole of which ``p`` is these rows; a value that is the same for all rows, for more of them."""
        got = self.unslice(p, axis)
        if got is None or got[0] not in (None, place):
            return None
        return got[1] if got[0] else self.make(dict(p.terms), replaced(p.shape, axis, place[2]), p.dtype)

    def sliced(self, whole: Poly, ranges: Mapping[int, tuple[Any, Any]]) -> Atom:
        """The atom of these ranges of a value that is one atom."""
        if not ranges:
            return self.atoms[whole.terms[0][0][0]]
        shape = list(whole.shape)
        for axis, (start, end) in ranges.items():
            shape[axis] = end - start
        key = tuple(sorted(ranges.items()))
        atom = self.atoms[whole.terms[0][0][0]]
        if atom.op != "part":
            return self.atom("slice", key, (whole,), shape, whole.dtype)

        def rows(full: Poly) -> Poly:
            for axis, place in key:
                full = self.slice(full, axis, *place)
            return full

        before, *place = atom.attrs
        own = self.bases[before]
        base = self.base(("slice", key, before), lambda: rows(own.full()), partial=own.partial)
        base.cut = (before, dict(ranges), atom.shape)
        return self.atom("part", (base.id, *place), (), shape, whole.dtype, total=not base.partial)

    def lifted(self, args: Sequence[Poly], axes: Sequence[int | None]) -> tuple[Place, list[Poly]] | None:
        """The whole arguments of which these are rows, and which rows; None where they are not."""
        found: Place | None = None
        got: list[tuple[Place | None, Poly]] = []
        for arg, axis in zip(args, axes, strict=True):
            each = (None, arg) if axis is None else self.unslice(arg, axis)
            if each is None or (each[0] and found not in (None, each[0])):
                return None
            found = each[0] or found
            got.append(each)
        if found is None:
            return None
        wholes = []
        for (place, whole), axis in zip(got, axes, strict=True):
            if place is None and axis is not None:
                whole = self.make(dict(whole.terms), replaced(whole.shape, axis, found[2]), whole.dtype)
            wholes.append(whole)
        return found, wholes

    def each_factor(self, p: Poly, shape: Sequence[Any], fn: Callable[[Atom], Poly]) -> Poly:
        """The sum of the products of ``fn`` of the atoms."""
        total = self.zeros(shape, p.dtype)
        for mono, coef in p.terms:
            made = self.number(coef, (), p.dtype)
            for i in mono:
                made = self.mul(made, fn(self.atoms[i]))
            total = self.add(total, self.broadcast(made, shape))
        return total

    def slice(self, p: Poly, axis: int, start: Any, end: Any) -> Poly:
        """The rows [start, end) along an axis. They have to exist."""
        size = p.shape[axis]
        if less(start, 0) or less(end, start) or less(size, end):
            raise ValueError(f"rows [{start}, {end}) of {size}")
        shape = replaced(p.shape, axis, end - start)
        if start == 0 and end == size:
            return p
        # What is made of rows of rows, as by the steps of a stencil, reads the same rows in many ways.
        key = ("rows", p.id, axis, start, end)
        if key not in self.done:
            self.done[key] = self._sliced(p, axis, start, end, shape)
        found: Poly = self.done[key]
        return found

    def _sliced(self, p: Poly, axis: int, start: Any, end: Any, shape: Sequence[Any]) -> Poly:
        rank, size = len(shape), p.shape[axis]
        small = p.dtype in ("int32", "int64") and rank == 1 and not isinstance(size, Size) and size <= 16
        if small and (value := self.value(p)) is not None:
            return self.numbers(value[start:end], p.dtype)

        def rows(atom: Atom) -> Poly:
            at = axis - rank + len(atom.shape)
            if at < 0 or (atom.shape[at] == 1 and size != 1):
                return self.of(atom)
            if atom.op == "Concat" and atom.attrs == at:
                return self._slice_of_concat(atom, at, start, end)
            if (within := self._slice_within(atom, at, start, end)) is not None:
                return within
            whole, ranges = self.uncut(atom), self.ranges(atom)
            first = ranges.get(at, (0, 0))[0]
            if ranges and self._joins(whole, at):
                ranges.pop(at, None)
                made = self.slice(whole, at, first + start, first + end)
                for axis_of, place in ranges.items():
                    made = self.slice(made, axis_of, *place)
                return made
            ranges[at] = (first + start, first + end)
            return self.of(self.sliced(whole, ranges))

        return self.each_factor(p, shape, rows)

    def _joins(self, p: Poly, k: int) -> bool:
        """Whether something in a value was joined along an axis."""
        for mono, _ in p.terms:
            for i in mono:
                atom, at = self.atoms[i], k - len(p.shape) + len(self.atoms[i].shape)
                if (atom.op == "Concat" and atom.attrs == at) or (atom.form and self._joining(atom, at)):
                    return True
        return False

    def seams(self, p: Poly, k: int) -> Sequence[Any]:
        """Where each of the values ends that were joined along an axis; none if none were."""
        for mono, _ in p.terms:
            for i in mono:
                atom, at = self.atoms[i], k - len(p.shape) + len(self.atoms[i].shape)
                if atom.op == "Concat" and atom.attrs == at:
                    return tuple(itertools.accumulate(piece.shape[at] for piece in atom.args))
                if atom.form and (found := self._joining(atom, at)):
                    rows = [(arg, own) for arg, own in zip(atom.args, found[0], strict=True) if own is not None]
                    return next(filter(None, (self.seams(*each) for each in rows)), ())
        return ()

    def is_seamless(self, p: Poly, k: int | None) -> bool:
        """Whether a value is made of nothing that was joined along an axis, nor of rows of that."""
        if k is None:
            return True
        got = self.unslice(p, k)
        return not self._joins(p, k) and (got is None or got[0] is None or not self._joins(got[1], k))

    def _joining(self, atom: Atom, axis: int) -> Map | None:
        """The map along which an operation is row-wise, where an argument was joined along it."""
        key = ("joining", atom.id, axis)
        if key not in self.done:
            form = atom.form or Form()
            fitting = (m for m in form.rows if m[1] == axis and len(m[0]) == len(atom.args))

            def pairs(found: Map) -> list[tuple[Poly, int]]:
                return [(arg, k) for arg, k in zip(atom.args, found[0], strict=True) if k is not None]

            joined = (m for m in fitting if any(self._joins(arg, k) for arg, k in pairs(m)))
            self.done[key] = next(joined, None)
        found: Map | None = self.done[key]
        return found

    def _slice_within(self, atom: Atom, axis: int, start: Any, end: Any) -> Poly | None:
        """Rows of a row-wise operation on joined arguments, as the operation on rows of these."""
        found = self._joining(atom, axis) if atom.form else None
        if found is None or atom.form is None:
            return None
        args = [
            arg if k is None else self.slice(arg, k, start, end) for arg, k in zip(atom.args, found[0], strict=True)
        ]
        # Rows on both sides of a seam are rows of the whole, to which the operation would go back.
        if not all(map(self.is_seamless, args, found[0])):
            return None
        if atom.form.redo:
            return atom.form.redo(args)
        return self.apply(atom.op, atom.attrs, args, replaced(atom.shape, axis, end - start), atom.dtype, atom.form)

    def _slice_of_concat(self, atom: Atom, axis: int, start: Any, end: Any) -> Poly:
        pieces: list[Poly] = []
        at: Any = 0
        for arg in atom.args:
            size = arg.shape[axis]
            first = start - at if less(at, start) else 0
            last = end - at if less(end, at + size) else size
            if less(first, last):
                pieces.append(self.slice(arg, axis, first, last))
            at = at + size
        return self.concat(pieces, axis) if pieces else self.slice(atom.args[0], axis, 0, 0)

    def unsummed(self, p: Poly) -> Poly:
        """The same where sums over one row are that row."""
        total = self.zeros(p.shape, p.dtype)
        for mono, coef in p.terms:
            made = self.number(coef, (), p.dtype)
            for i in mono:
                atom = self.atoms[i]
                row = self.bases[atom.attrs[0]].row if atom.op == "part" else None
                one = row is not None and atom.attrs[2] - atom.attrs[1] == 1
                found = row(atom.attrs[1]) if row is not None and one else self.of(atom)
                made = self.mul(made, found if len(found.shape) <= len(p.shape) else self.of(atom))
            total = self.add(total, self.broadcast(made, p.shape))
        return total

    def _concat_of_parts(self, parts: Sequence[Poly], axis: int) -> Poly | None:
        """Parts of several sums that the same rows give, joined: the part of the sums joined."""
        atoms = (self.atoms[i] for part in parts for mono, _ in part.terms for i in mono)
        place = next((atom.attrs[1:] for atom in atoms if atom.op == "part"), None)
        wholes = [self.unpart(part, place) for part in parts] if place is not None else []
        found = [whole for whole in wholes if whole is not None]
        if place is None or len(found) < len(parts):
            return None
        key = ("concat", axis, tuple(whole.id for whole in found))
        base = self.base(key, lambda: self.concat(found, axis), partial=any(map(self.partial, found)))
        size: Any = 0
        for part in parts:
            size = size + part.shape[axis]
        start, end, whole_size = place
        return self.part(base, start, end, whole_size, replaced(parts[0].shape, axis, size), parts[0].dtype)

    def concat(self, parts: Sequence[Poly], axis: int) -> Poly:
        """The values one after the other; adjacent slices of one value join."""
        given: list[Poly] = []
        for part in parts:
            if part.shape[axis] == 1 and self.has_parts(part):
                part = self.unsummed(part)
            alone = self.alone(part)
            if alone is not None and alone.op == "Concat" and alone.attrs == axis:
                given.extend(alone.args)
            elif part.shape[axis] != 0:
                given.append(part)
        if not given:
            return parts[0]
        joined: list[Poly] = []
        for part in given:
            if joined and (both := self._joined(joined[-1], part, axis)) is not None:
                joined[-1] = both
            else:
                joined.append(part)
        if len(joined) == 1:
            return joined[0]
        if any(map(self.has_parts, joined)):
            for k in (k for k in range(len(joined[0].shape)) if k != axis):
                if (lifted := self.lifted(joined, [k] * len(joined))) is not None:
                    return self.slice(self.concat(lifted[1], axis), k, *lifted[0][:2])
            if (made := self._concat_of_parts(joined, axis)) is not None:
                return made
        values = [self.value(part) for part in joined]
        if all(value is not None for value in values):
            array = np.concatenate(values, axis)
            return self.numbers(array, joined[0].dtype) if array.dtype == object else self.const(array)
        size: Any = 0
        for part in joined:
            size = size + part.shape[axis]
        maps: list[Map] = [((k,) * len(joined), k) for k in range(len(joined[0].shape)) if k != axis]
        shape: Shape = replaced(joined[0].shape, axis, size)
        form = Form(maps, (), lambda whole: self.concat(whole, axis), total=True)
        return self.apply("Concat", axis, joined, shape, joined[0].dtype, form)

    def _joined(self, one: Poly, other: Poly, axis: int) -> Poly | None:
        size = one.shape[axis] + other.shape[axis]
        first, second = self.unslice(one, axis), self.unslice(other, axis)
        if first is None or second is None:
            return None
        (place, whole), (place_2, whole_2) = first, second
        if place is None and place_2 is None and one.terms == other.terms:
            return self.make(dict(one.terms), replaced(one.shape, axis, size), one.dtype)
        if place and place_2 and whole is whole_2 and place[1] == place_2[0]:
            return self.slice(whole, axis, place[0], place_2[1])
        return None
