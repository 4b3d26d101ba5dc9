"""The algebra in which two programs are compared: equal values are one object.

A value is a polynomial with rational coefficients over atoms; an atom is an input, a variable, a constant, or an
operation on values. Arithmetic is that of real numbers. The laws that carry sharding:

- *Slices go out.* An operation that is row-wise, on rows [a, b) of its arguments, is rows [a, b) of the operation on
  the whole arguments.
- *Contractions become parts.* A sum over rows [a, b) is a part of the sum over all rows. Parts with one coefficient
  that lie side by side join, and the part of all rows is the sum itself.
- *A linear operation on a part* is a part of the operation on the sum.
- *Concatenation.* Adjacent slices of one value join.

So a sharded program becomes the normal form of the unsharded one, and no reference is needed for that. An operation
without a law is an opaque atom, equal to the same operation on the same arguments. What has a state, random numbers or
side effects is equal to nothing.

A float constant stands for the simplest number that rounds to it (1/3 for 0.33333334): different constants stay
different, and what is proved holds up to the rounding of constants. 0 times a value that is not defined everywhere,
such as a logarithm, is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from harness.proof.axes import Axes
from harness.proof.rows import Place
from harness.proof.sizes import product
from harness.proof.terms import SUM, Atom, Base, Form, Map, Mono, Poly, along_all, replaced

#: The order of the arguments does not matter.
_COMMUTATIVE = {"Maximum", "Minimum", "LogicalAnd", "LogicalOr", "Equal", "NotEqual"}


@dataclass
class Algebra(Axes):
    """Makes values; equal ones are one object."""

    # -- sums

    def sum(self, p: Poly, axes: Sequence[int], *, keep: bool = False) -> Poly:
        """The sum over axes; with ``keep`` they stay, of size 1."""
        over = sorted({axis % len(p.shape) for axis in axes}) if p.shape else []
        out = tuple(size for k, size in enumerate(p.shape) if k not in over)
        kept = tuple(1 if k in over else size for k, size in enumerate(p.shape))
        total = self.zeros(kept, p.dtype)
        if any(p.shape[k] == 0 for k in over):
            return total if keep else self.zeros(out, p.dtype)
        rank = len(p.shape)
        for mono, coef in p.terms:
            extent = {i: {k for k in range(rank) if self._reaches(i, k, rank, p.shape[k])} for i in mono}
            covered = [k for k in over if any(k in extent[i] for i in mono)]
            times = product(p.shape[k] for k in over if k not in covered)
            inside = tuple(i for i in mono if extent[i] & set(covered))
            outside = self.make({tuple(i for i in mono if i not in inside): coef}, kept, p.dtype)
            outside = self.scale(outside, times)
            if inside:
                own = self.own_shape(inside)
                at = [k - rank + len(own) for k in covered]
                summed = self._sum(self.make({inside: Fraction(1)}, own, p.dtype), tuple(at))
                outside = self.mul(outside, self.reshape(summed, [1 if k in at else s for k, s in enumerate(own)]))
            total = self.add(total, self.broadcast(outside, kept))
        return total if keep else self.reshape(total, out)

    def _reaches(self, i: int, k: int, rank: int, size: Any) -> bool:
        """Whether an atom changes along an axis of a value."""
        atom = self.atoms[i]
        at = k - rank + len(atom.shape)
        sliced = at >= 0 and atom.shape[at] == size and at in self.ranges(atom)
        return at >= 0 and (atom.shape[at] != 1 or sliced)

    def _sum(self, p: Poly, axes: tuple[int, ...]) -> Poly:
        """The sum of one product without a coefficient, over axes along which it changes."""
        shape = tuple(size for k, size in enumerate(p.shape) if k not in axes)
        if (atom := self.alone(p)) is not None:
            if atom.op == "poly":
                return self.sum(atom.args[0], axes)
            if atom.op == "part":
                whole, ranges = self.uncut(atom), self.ranges(atom)
                if (k := next((k for k in ranges if k not in axes), None)) is not None:
                    place = ranges.pop(k)
                    rest = self.of(self.sliced(whole, ranges))
                    return self.slice(self.sum(rest, axes), k - sum(axis < k for axis in axes), *place)
                last = [k - len(p.shape) for k in axes]
                return self.after(
                    ("sum", axes),
                    atom,
                    lambda q: self.sum(q, axes),
                    shape,
                    p.dtype,
                    of_row=lambda q: self.sum(q, last),
                )
            if (inner := self._sum_within(atom, axes, shape)) is not None:
                return inner
            if atom.op in ("Reshape", "Transpose") and len(axes) == len(p.shape):
                return self.sum(atom.args[0], range(len(atom.args[0].shape)))
        for axis in axes:
            if pieces := self._pieces([p], [axis]):
                total = self.zeros(shape, p.dtype)
                for (piece,) in pieces:
                    total = self.add(total, self.sum(piece, axes))
                return total
        others = [k for k in range(len(p.shape)) if k not in axes]
        maps: list[Map] = [((k,), at) for at, k in enumerate(others)]
        maps += [((k,), SUM) for k in axes]
        form = Form(maps, (), lambda whole: self.sum(whole[0], axes), total=True)
        return self.apply("Sum", axes, [p], shape, p.dtype, form)

    def _sum_within(self, atom: Atom, axes: tuple[int, ...], shape: Sequence[Any]) -> Poly | None:
        """The sum of a sum, or of what only has other axes of size 1, or of rows of these, as the sum of what it has.

        So one sum has one form.
        """
        ranges: Sequence[tuple[int, tuple[Any, Any]]] = ()
        if atom.op == "slice":
            alone = self.alone(atom.args[0])
            if alone is None:
                return None
            ranges, atom = atom.attrs, alone
        if atom.op not in ("Sum", "Reshape"):
            return None
        (inner,) = atom.args
        if atom.op == "Sum":
            moved = dict(enumerate(k for k in range(len(inner.shape)) if k not in atom.attrs))
        else:
            before, after = ([k for k, size in enumerate(each) if size != 1] for each in (inner.shape, atom.shape))
            moved = dict(zip(after, before, strict=False))
            if [inner.shape[k] for k in before] != [atom.shape[k] for k in after]:
                return None
        if any(k not in moved for k, _ in ranges):
            return None
        for k, place in ranges:
            inner = self.slice(inner, moved[k], *place)
        over = [*(atom.attrs if atom.op == "Sum" else ()), *(moved[k] for k in axes if k in moved)]
        return self.reshape(self.sum(inner, over), shape)

    # -- any operation

    def apply(self, op: str, attrs: Any, args: Sequence[Poly], shape: Sequence[Any], dtype: str, form: Form) -> Poly:
        """An operation on arguments, in its normal form."""
        args, shape = list(args), tuple(shape)
        if op in _COMMUTATIVE:
            args.sort(key=lambda arg: arg.id)
            form = Form(along_all(args, shape), (), None, form.total, form.known)
        done = (op, attrs, tuple(arg.id for arg in args), shape, dtype)
        if done not in self.done:
            self.done[done] = self._apply(op, attrs, args, shape, dtype, form)
        found: Poly = self.done[done]
        return found

    def _apply(self, op: str, attrs: Any, args: list[Poly], shape: tuple[Any, ...], dtype: str, form: Form) -> Poly:
        zero = any(not args[j].terms for j in form.parts)
        if zero and form.total and not any(map(self.partial, args)):
            return self.zeros(shape, dtype)
        for axes, to in form.rows:
            lifted = self.lifted(args, axes)
            if lifted is None:
                continue
            place, whole = lifted
            if to != SUM:
                full_shape = replaced(shape, to, place[2])
                again = form.redo(whole) if form.redo else self.apply(op, attrs, whole, full_shape, dtype, form)
                return self.slice(again, to, *place[:2])
            return self._contracted(op, attrs, whole, axes, place, shape, dtype, form)
        if (joined := self._of_joined(args, form)) is not None:
            total = self.zeros(shape, dtype)
            for pieces in joined:
                total = self.add(total, self.apply(op, attrs, pieces, shape, dtype, form))
            return total
        for j in form.parts if op != "poly" else ():
            if self.has_parts(args[j]):
                return self._of_parts(op, attrs, args, shape, dtype, form, j)
        factor: Any = Fraction(1)
        for j in form.parts:
            coef, args[j] = self.primitive(args[j])
            factor = factor * coef
        if op == "poly" and len(args[0].terms) == 1:
            return self.scale(args[0], factor)
        atom = self.atom(op, attrs, args, shape, dtype, total=form.total)
        atom.form = form
        if not atom.note and op not in ("poly", "Concat") and any(self._is_shard(arg) for arg in args):
            atom.note = f"{op} mixes the rows of a shard" if form.known else f"no rule for {op} on a shard"
        return self.scale(self.of(atom), factor)

    def _of_joined(self, args: Sequence[Poly], form: Form) -> list[list[Poly]] | None:
        """The arguments for each piece, where a sum over rows goes along an axis that something was joined along."""
        tried = (self._pieces(args, axes) for axes, to in form.rows if form.parts and to == SUM)
        return next((pieces for pieces in tried if pieces), None)

    def _pieces(self, args: Sequence[Poly], axes: Sequence[int | None]) -> list[list[Poly]]:
        """The rows of the arguments between the seams, where any is joined, or made row by row of what is joined."""
        rows = [(arg, k) for arg, k in zip(args, axes, strict=True) if k is not None]
        ends: Sequence[Any] = next(filter(None, (self.seams(arg, k) for arg, k in rows)), ())
        pieces = [
            [arg if k is None else self.slice(arg, k, *place) for arg, k in zip(args, axes, strict=True)]
            for place in itertools.pairwise((0, *ends))
        ]
        joined = any((atom := self.alone(arg)) and atom.op == "Concat" and atom.attrs == k for arg, k in rows)
        free = joined or all(map(self.is_seamless, itertools.chain(*pieces), itertools.cycle(axes)))
        return pieces if free else []

    def _is_shard(self, p: Poly) -> bool:
        return any(self.atoms[i].op == "slice" for mono, _ in p.terms for i in mono)

    def _contracted(
        self, op: str, attrs: Any, whole: list[Poly], axes: Any, place: Place, shape: Any, dtype: str, form: Form
    ) -> Poly:
        """The part of a sum over all rows that the rows of ``place`` give."""
        factor: Any = Fraction(1)
        for j in form.parts:
            coef, whole[j] = self.primitive(whole[j])
            factor = factor * coef
        key = (op, attrs, tuple(arg.id for arg in whole), axes, shape, dtype)

        def full() -> Poly:
            return form.redo(whole) if form.redo else self.apply(op, attrs, whole, shape, dtype, form)

        def row(start: Any) -> Poly:
            (axis,) = axes
            return self.sum(self.slice(whole[0], axis, start, start + 1), [k for k in attrs if k != axis], keep=True)

        partial = not form.total or any(map(self.partial, whole))
        leading = op == "Sum" and attrs == tuple(range(len(attrs)))
        base = self.base(key, full, partial=partial, row=row if leading else None)
        return self.scale(self.part(base, *place, shape, dtype), factor)

    def _of_parts(
        self, op: str, attrs: Any, args: list[Poly], shape: tuple[Any, ...], dtype: str, form: Form, j: int
    ) -> Poly:
        """An operation that is linear in argument ``j``, in which there are parts of sums."""

        def of(arg: Poly) -> Poly:
            others = [*args[:j], arg, *args[j + 1 :]]
            return form.redo(others) if form.redo else self.apply(op, attrs, others, shape, dtype, form)

        total = self.zeros(shape, dtype)
        rest: dict[Mono, Any] = {}
        for mono, coef in args[j].terms:
            atom = self.atoms[mono[0]] if len(mono) == 1 else None
            if atom is not None and atom.op == "part" and atom.shape == args[j].shape:
                others = tuple(arg.id for at, arg in enumerate(args) if at != j)
                made = self.after((op, attrs, j, others), atom, of, shape, dtype)
                total = self.add(total, self.scale(made, coef))
            else:
                rest[mono] = coef
        if rest:
            factor, left = self.primitive(self.make(rest, args[j].shape, args[j].dtype))
            atom = self.atom(op, attrs, [*args[:j], left, *args[j + 1 :]], shape, dtype, total=form.total)
            total = self.add(total, self.scale(self.of(atom), factor))
        return total

    # -- the largest, the smallest

    def maximum(self, op: str, args: Sequence[Poly], shape: Sequence[Any]) -> Poly:
        """The largest (or smallest) of several; parts of one maximum that tile its axis are the whole one."""
        given: dict[int, Poly] = {}
        for arg in args:
            alone = self.alone(arg)
            flat = alone.args if alone is not None and alone.op == op else (arg,)
            given.update({each.id: each for each in flat})
        whole = sorted(given.values(), key=lambda each: each.id)
        for one, other in itertools.permutations(whole, 2):
            a, b = self.alone(one), self.alone(other)
            if a is None or b is None or not a.op == b.op == op + "Part" or a.shape != b.shape:
                continue
            if a.attrs[0] == b.attrs[0] and a.attrs[3] == b.attrs[3] and a.attrs[2] == b.attrs[1]:
                base, start, _, size = a.attrs
                both = self.extreme(op, self.bases[base], start, b.attrs[2], size, a.shape, a.dtype)
                return self.maximum(op, [both, *(each for each in whole if each not in (one, other))], shape)
        if len(whole) == 1:
            return self.broadcast(whole[0], shape)
        return self.broadcast(self.elementwise(op, (), whole, whole[0].dtype, Form(total=True)), shape)

    def extreme(self, op: str, base: Base, start: Any, end: Any, size: Any, shape: Any, dtype: str) -> Poly:
        """The largest (or smallest) of the rows [start, end) of all ``size``."""
        if start == 0 and end == size:
            return base.full()
        made = self.atom(op + "Part", (base.id, start, end, size), (), shape, dtype, total=not base.partial)
        return self.of(made)

    # -- what a value depends on

    def inner(self, atom: Atom) -> Sequence[Poly]:
        """The values that an atom is made of."""
        if atom.op in ("part", "MaximumPart", "MinimumPart"):
            return [self.bases[atom.attrs[0]].full()]
        return atom.args

    def params(self, p: Poly, level: int) -> frozenset[int]:
        """The variables of the loop at this level on which a value depends."""
        key = ("params", p.id, level)
        if key not in self.done:
            self.done[key] = frozenset()
            found: set[int] = set()
            for i in {i for mono, _ in p.terms for i in mono}:
                atom = self.atoms[i]
                if atom.op == "param" and atom.attrs[0] == level:
                    found.add(atom.attrs[1])
                inner = self.inner(atom)
                if atom.op == "While" and atom.attrs[0] == level:  # the variables in its body are its own
                    inner = inner[: len(atom.attrs[2])]
                found.update(*(self.params(arg, level) for arg in inner))
            self.done[key] = frozenset(found)
        known: frozenset[int] = self.done[key]
        return known
