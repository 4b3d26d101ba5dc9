"""Reshapes and transpositions of values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from harness.proof.rows import Rows
from harness.proof.sizes import Size, divides, product
from harness.proof.terms import BITS, Atom, Form, Map, Poly, Shape, replaced

#: So many operations back it is looked for where an axis comes from.
_NEAR = 8

Block = tuple[tuple[int, int], tuple[int, int]]


def blocks_of(before: Sequence[Any], after: Sequence[Any]) -> list[Block]:
    """The shortest runs of axes of two shapes that hold the same number of elements."""
    blocks: list[Block] = []
    i = k = 0
    while i < len(before) or k < len(after):
        j, m = i, k
        one: Any = 1
        other: Any = 1
        while (j, m) == (i, k) or one != other:
            if j < len(before) and (m == len(after) or one == other or one < other):
                one, j = one * before[j], j + 1
            else:
                other, m = other * after[m], m + 1
        blocks.append(((i, j), (k, m)))
        i, k = j, m
    return blocks


@dataclass
class Axes(Rows):
    """What a reshape and a transposition are."""

    def reshape(self, p: Poly, shape: Sequence[Any]) -> Poly:
        """The same elements in the same order."""
        shape = tuple(shape)
        if shape == p.shape:
            return p
        if product(shape) != product(p.shape):
            raise ValueError(f"a reshape of {p.shape} to {shape}")
        if 0 in shape:
            return self.zeros(shape, p.dtype)
        if p.terms and p.terms[0][0] and (value := self.value(p)) is not None:
            made = value.reshape(shape)
            return self.numbers(made, p.dtype) if made.dtype == object else self.const(made)
        blocks = blocks_of(p.shape, shape)
        total = self.zeros(shape, p.dtype)
        for mono, coef in p.terms:
            owns = [self._block_shape(self.atoms[i], p.shape, shape, blocks) for i in mono]
            made = self.number(coef, (), p.dtype)
            if all(own is not None for own in owns):
                for i, own in zip(mono, owns, strict=True):
                    made = self.mul(made, self._reshaped(self.atoms[i], own or ()))
            else:
                one = self.make({mono: Fraction(1)}, p.shape, p.dtype)
                value = self.value(one) if p.dtype in BITS else None
                if value is None or value.dtype == object:
                    made = self.scale(self._reshape(one, shape), coef)
                else:
                    made = self.scale(self.const(value.reshape(shape)), coef)
            total = self.add(total, self.broadcast(made, shape))
        return total

    def _block_shape(self, atom: Atom, before: Shape, after: Shape, blocks: Sequence[Block]) -> Shape | None:
        """The shape of an atom after a reshape; None if it is broadcast within a block."""
        own = atom.shape
        padded = (1,) * (len(before) - len(own)) + tuple(own)
        made: list[Any] = []
        for (i, j), (k, m) in blocks:
            if padded[i:j] == before[i:j]:
                made += after[k:m]
            elif all(size == 1 for size in padded[i:j]):
                made += [1] * (m - k)
            else:
                return None
        one_row = own and own[0] == 1 and 0 in self.ranges(atom)  # its axis has a meaning
        while made and made[0] == 1 and len(made) > len(own) and not one_row:
            made = made[1:]
        return tuple(made)

    def _reshaped(self, atom: Atom, shape: Shape) -> Poly:
        if atom.shape == shape:
            return self.of(atom)
        if atom.op == "Reshape":
            return self.reshape(atom.args[0], shape)
        return self._reshape(self.of(atom), shape)

    def _reshape(self, p: Poly, shape: Shape) -> Poly:
        if (joined := self._of_pieces(p, shape)) is not None:
            return joined
        for k, size in enumerate(p.shape):
            got = self.unslice(p, k)
            rows = got[0] if got is not None else None
            if got is None or rows is None or size == 0:
                continue
            (start, end, n), whole = rows, got[1]
            # Before an axis with as many rows, none in which rows are joined.
            for o, new in sorted(enumerate(shape), key=lambda axis: axis[1] != size):
                if new == 0 or product(shape[:o]) != product(p.shape[:k]):
                    continue
                times = _times(new, size)
                if times is not None:  # joined with axes that follow
                    full, place = n * times, (start * times, end * times)
                elif (less := _times(size, new)) is not None and all(divides(less, each) for each in (start, end, n)):
                    full, place = n // less, (start // less, end // less)
                else:
                    continue
                return self.slice(self.reshape(whole, replaced(shape, o, full)), o, *place)
        if (alone := self.alone(p)) is not None and alone.op == "part":
            return self._reshaped_part(alone, shape)
        return self.of(self.atom("Reshape", (), (p,), shape, p.dtype))

    def _reshaped_part(self, atom: Atom, shape: Shape) -> Poly:
        number = atom.attrs[0]
        before, own = self.bases[number].reshaped or (number, atom.shape)
        first = self.same_rows(atom, before, own)
        if own == shape:
            return first
        made = self.after(
            ("reshape", shape),
            self.atoms[first.terms[0][0][0]],
            lambda q: self.reshape(q, shape),
            shape,
            atom.dtype,
            of_row=lambda q: self.reshape(q, (1, *shape)),
        )
        self.bases[self.atoms[made.terms[0][0][0]].attrs[0]].reshaped = (before, own)
        return made

    def row_again(self, p: Poly) -> Poly | None:
        """``p``, with an axis of size 1 before the others, as one row of a value, where that row was spread before.

        So is what a product of matrices makes of one row of a batch of matrices. None where it is no such row.
        """
        got, size = self.unslice(p, 0) if p.shape else None, p.shape[0] if p.shape else 0
        if got is None or got[0] is None or not isinstance(size, int) or size < 2:
            return None
        (start, _, n), whole = got[0], got[1]
        if not divides(size, start) or not divides(size, n) or not self._was_spread(whole, 0, n // size):
            return None
        return self.slice(self.reshape(whole, (n // size, *p.shape)), 0, start // size, start // size + 1)

    def _was_spread(self, p: Poly, k: int, rows: Any, near: int = _NEAR) -> bool:
        """Whether axis ``k`` comes, row by row, from a reshape that joined so many rows with what follows them."""
        for i in {i for mono, _ in p.terms for i in mono}:
            atom, at = self.atoms[i], k - len(p.shape) + len(self.atoms[i].shape)
            before = atom.args[0].shape if atom.op == "Reshape" else ()
            if any(size == rows and product(before[:a]) == product(atom.shape[:at]) for a, size in enumerate(before)):
                return True
            maps = atom.form.rows if atom.form and near else ()
            led = (pair for axes, to in maps if to == at for pair in zip(atom.args, axes, strict=False))
            if any(axis is not None and self._was_spread(arg, axis, rows, near - 1) for arg, axis in led):
                return True
        return False

    def _of_pieces(self, p: Poly, shape: Shape) -> Poly | None:
        """A reshape of what was joined, as the join of what its pieces are, where each of them gives whole rows."""
        if not shape or any(isinstance(size, Size) for size in (*p.shape, *shape)):
            return None
        row = product(shape[1:])
        for k in range(len(p.shape)):
            if product(p.shape[:k]) != 1:
                break
            places = itertools.pairwise((0, *self.seams(p, k)))
            pieces = [self.slice(p, k, *place) for place in places]
            whole = all(product(each.shape) % row == 0 and self.is_seamless(each, k) for each in pieces)
            if pieces and whole:
                return self.concat([self.reshape(each, (product(each.shape) // row, *shape[1:])) for each in pieces], 0)
        return None

    def row_of_part(self, p: Poly) -> Poly:
        """The same where what one row gives of a sum over rows is that row, reshaped."""
        if not self.has_parts(p):
            return p
        row = self.unsummed(self.broadcast(p, (1, *p.shape)))
        if self.has_parts(row):
            return p
        got = self.unslice(row, 0)
        if got is None or got[0] is None or not p.shape:
            return self.reshape(row, p.shape)
        (start, end, n), whole = got[0], got[1]
        joined = self.reshape(whole, (n * p.shape[0], *p.shape[1:]))
        return self.slice(joined, 0, start * p.shape[0], end * p.shape[0])

    def transpose(self, p: Poly, perm: Sequence[int]) -> Poly:
        """The axes in another order."""
        perm = tuple(perm)
        shape = tuple(p.shape[k] for k in perm)
        if perm == tuple(range(len(perm))):
            return p
        if p.terms and p.terms[0][0] and (value := self.value(p)) is not None:
            made = value.transpose(perm)
            return self.numbers(made, p.dtype) if made.dtype == object else self.const(made)

        def moved(atom: Atom) -> Poly:
            padded = (1,) * (len(p.shape) - len(atom.shape)) + atom.shape
            own = tuple(padded[k] for k in perm)
            one_row = any(atom.shape[k] == 1 for k in self.ranges(atom))
            if not one_row and [k for k in perm if padded[k] != 1] == [k for k, s in enumerate(padded) if s != 1]:
                return self.reshape(self.of(atom), own)  # only axes of size 1 move
            if (missing := len(perm) - len(atom.shape)) > 0:
                inner = [k - missing for k in perm if k >= missing]
                return self.reshape(self.transpose(self.of(atom), inner), own)
            if atom.op == "Transpose":
                return self.transpose(atom.args[0], [atom.attrs[k] for k in perm])
            if atom.op == "part" and not self.ranges(atom):
                return self.after(("transpose", perm), atom, lambda q: self.transpose(q, perm), own, p.dtype)
            maps: list[Map] = [((k,), at) for at, k in enumerate(perm)]
            form = Form(maps, (), lambda whole: self.transpose(whole[0], perm), total=True)
            return self.apply("Transpose", perm, [self.of(atom)], own, p.dtype, form)

        return self.each_factor(p, shape, moved)


def _times(new: Any, size: Any) -> int | None:
    """How many times a size is contained in another, where that is a whole number."""
    if isinstance(size, Size):
        if not isinstance(new, Size) or len(new.coefficients) != len(size.coefficients):
            return None
        times = new.coefficients[-1] // size.coefficients[-1]
        return times if size * times == new else None
    if isinstance(new, Size):
        return None
    return int(new // size) if new % size == 0 else None
