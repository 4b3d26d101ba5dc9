"""Values of the algebra, each made once: polynomials over atoms, and their sums and products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np

from harness.lazy import tf
from harness.proof.sizes import Ratio, Size, Unprovable, coefficient, inverse, product
from harness.proof.terms import (
    BITS,
    FLOATS,
    Atom,
    Base,
    Form,
    Mono,
    Poly,
    Shape,
    along_all,
    broadcast_shape,
    check_fits,
    snap,
    wrapped,
)

#: A product of two sums is multiplied out only if it has at most this many terms.
_TERMS = 64
#: Bytes of a constant from which on its digest stands for it.
_LARGE = 1 << 12


@dataclass
class Values:
    """Makes values; equal ones are one object."""

    atoms: list[Atom] = field(default_factory=list)
    bases: list[Base] = field(default_factory=list)
    _atoms: dict[Any, Atom] = field(default_factory=dict)
    _polys: dict[Any, Poly] = field(default_factory=dict)
    _bases: dict[Any, Base] = field(default_factory=dict)
    #: What was computed before, by what was asked.
    done: dict[Any, Any] = field(default_factory=dict)

    def apply(self, op: str, attrs: Any, args: Sequence[Poly], shape: Sequence[Any], dtype: str, form: Form) -> Poly:
        """An operation that has no better form; see :class:`harness.proof.algebra.Algebra`."""
        raise NotImplementedError

    # -- making

    def atom(
        self,
        op: str,
        attrs: Any,
        args: Sequence[Poly],
        shape: Sequence[Any],
        dtype: str,
        *,
        value: Any = None,
        total: bool = True,
    ) -> Atom:
        """The atom of this operation on these arguments."""
        key = (op, attrs, tuple(arg.id for arg in args), tuple(shape), dtype)
        found = self._atoms.get(key)
        if found is None:
            found = self._atoms[key] = Atom(len(self.atoms), op, attrs, tuple(args), tuple(shape), dtype, value)
            found.partial = not total or any(map(self.partial, args))
            self.atoms.append(found)
        return found

    def unique(self, why: str, shape: Sequence[Any], dtype: str) -> Poly:
        """A value that is equal to no other."""
        made = self.atom("unknown", (len(self.atoms), why), (), shape, dtype, total=False)
        made.note = why
        return self.of(made)

    def of(self, atom: Atom) -> Poly:
        """An atom as a value."""
        return self.make({(atom.id,): Fraction(1)}, atom.shape, atom.dtype)

    def number(self, value: Any, shape: Sequence[Any] = (), dtype: str = "float32") -> Poly:
        """The same number everywhere."""
        return self.make({(): coefficient(value)}, shape, dtype)

    def zeros(self, shape: Sequence[Any], dtype: str) -> Poly:
        """Zero everywhere."""
        return self.make({}, shape, dtype)

    def make(self, terms: Mapping[Mono, Any], shape: Sequence[Any], dtype: str) -> Poly:
        """The sum of these terms. 0 times what is not defined everywhere is kept. What has no elements is one value."""
        shape = tuple(shape)
        terms = {} if 0 in shape else terms
        kept = {m: c for m, c in terms.items() if c or any(self.atoms[i].partial for i in m)}
        if dtype in BITS:
            kept = {m: w for m, c in kept.items() if (w := wrapped(c, dtype)) or not c}
        if any(self.atoms[i].op == "part" for mono in kept for i in mono):
            joined = self._join_parts(kept, shape, dtype)
            if joined is not None:
                return joined
        key = (frozenset(kept.items()), shape, dtype)
        found = self._polys.get(key)
        if found is None:
            terms_in_order = tuple(sorted(kept.items(), key=lambda term: term[0]))
            found = self._polys[key] = Poly(len(self._polys), terms_in_order, shape, dtype)
        return found

    def _join_parts(self, terms: dict[Mono, Any], shape: Shape, dtype: str) -> Poly | None:
        """Join two adjacent parts of one sum that have one coefficient; None where there are none."""
        groups: dict[Any, dict[Any, tuple[Any, Mono]]] = {}
        for mono, coef in terms.items():
            for i in {*mono}:
                if self.atoms[i].op == "part" and mono.count(i) == 1:
                    base, start, end, size = self.atoms[i].attrs
                    rest = list(mono)
                    rest.remove(i)
                    groups.setdefault((base, size, tuple(rest), coef, self.atoms[i].shape), {})[start] = (end, mono)
        for (base, size, rest, coef, own), starts in groups.items():
            for start, (middle, mono) in starts.items():
                if middle in starts and starts[middle][1] != mono:
                    end, other = starts[middle]
                    left = {m: c for m, c in terms.items() if m not in (mono, other)}
                    whole = self.part(self.bases[base], start, end, size, own, dtype)
                    whole = self.mul(whole, self.make({rest: coef}, self.own_shape(rest), dtype))
                    return self.add(self.make(left, shape, dtype), self.broadcast(whole, shape))
        return None

    # -- parts of sums

    def base(
        self, key: Any, full: Callable[[], Poly], *, partial: bool, row: Callable[[Any], Poly] | None = None
    ) -> Base:
        """What parts are parts of, by what it is the sum of."""
        found = self._bases.get(key)
        if found is None:
            found = self._bases[key] = Base(len(self.bases), full, partial, row)
            self.bases.append(found)
        return found

    def part(self, base: Base, start: Any, end: Any, size: Any, shape: Sequence[Any], dtype: str) -> Poly:
        """The summand of ``base`` that the rows [start, end) of all ``size`` give."""
        if start == end:
            return self.zeros(shape, dtype)
        if start == 0 and end == size:
            return base.full()
        made = self.atom("part", (base.id, start, end, size), (), shape, dtype, total=not base.partial)
        return self.of(made)

    def same_rows(self, atom: Atom, base: int, shape: Sequence[Any]) -> Poly:
        """The part of another sum that the rows of a part give."""
        _, start, end, size = atom.attrs
        return self.part(self.bases[base], start, end, size, shape, atom.dtype)

    def after(
        self,
        name: Any,
        atom: Atom,
        fn: Callable[[Poly], Poly],
        shape: Sequence[Any],
        dtype: str,
        *,
        of_row: Callable[[Poly], Poly] | None = None,
    ) -> Poly:
        """A linear function of a part is a part of that function of the sum. ``name`` tells functions apart.

        ``of_row`` is the function of one row.
        """
        before, start, end, size = atom.attrs
        own = self.bases[before]
        key = ("after", name, before, tuple(shape), dtype)
        whole_row = own.row
        row = (lambda at: of_row(whole_row(at))) if whole_row is not None and of_row is not None else None
        base = self.base(key, lambda: fn(own.full()), partial=own.partial, row=row)
        return self.part(base, start, end, size, shape, dtype)

    # -- looking at values

    def single(self, p: Poly) -> Atom | None:
        """The atom of a value that is one atom, of this shape, times a number."""
        if len(p.terms) != 1 or len(p.terms[0][0]) != 1:
            return None
        atom = self.atoms[p.terms[0][0][0]]
        return atom if atom.shape == p.shape and atom.dtype == p.dtype else None

    def alone(self, p: Poly) -> Atom | None:
        """The atom of a value that is one atom of this shape."""
        atom = self.single(p)
        return atom if atom is not None and p.terms[0][1] == 1 else None

    def partial(self, p: Poly) -> bool:
        """Whether a value is not defined everywhere."""
        return any(self.atoms[i].partial for mono, _ in p.terms for i in mono)

    def has_parts(self, p: Poly) -> bool:
        """Whether there are parts of sums in a value."""
        return any(self.atoms[i].op == "part" for mono, _ in p.terms for i in mono)

    def are_of_same_rows(self, values: Iterable[Poly]) -> bool:
        """Whether there are parts of sums in each value, all of the same rows."""
        found = [{self.atoms[i].attrs[1:] for m, _ in p.terms for i in m if self.atoms[i].op == "part"} for p in values]
        return all(found) and len(set().union(*found)) == 1

    @staticmethod
    def is_number(p: Poly) -> bool:
        """Whether a value is the same number everywhere."""
        return all(not mono for mono, _ in p.terms)

    def own_shape(self, mono: Iterable[int]) -> Shape:
        """The shape of a product of atoms."""
        return broadcast_shape(*(self.atoms[i].shape for i in mono))

    def core(self, p: Poly) -> Poly:
        """The same without what broadcasting added."""
        own = broadcast_shape(*(self.atoms[i].shape for mono, _ in p.terms for i in mono))
        return p if own == p.shape else self.make(dict(p.terms), own, p.dtype)

    # -- constants

    def const(self, array: Any) -> Poly:
        """A constant. What is the same along an axis is broadcast along it."""
        array = np.asarray(array)
        dtype, shape = array.dtype.name, array.shape
        if array.dtype.kind in "SUO":
            return self.of(self.atom("const", ("text", repr(array.tolist())), (), shape, "string", value=array))
        if array.size:
            for axis in range(array.ndim):
                first = np.take(array, [0], axis)
                repeated = np.broadcast_to(first, array.shape)
                if array.shape[axis] > 1 and np.array_equal(repeated, array, equal_nan=array.dtype.kind in "fc"):
                    array = first
            while array.ndim and array.shape[0] == 1:
                array = array[0]
            if array.ndim == 0 and dtype in (*BITS, *FLOATS) and np.isfinite(float(array)):
                number = Fraction(int(array)) if dtype in BITS else snap(array[()], dtype)
                return self.make({(): number}, shape, dtype)
        finite = array.dtype.kind not in "fc" or bool(np.all(np.isfinite(array)))
        # Of a large one no copy is held.
        key = array.tobytes() if array.nbytes <= _LARGE else sha256(array.reshape(-1).view(np.uint8)).digest()
        made = self.atom("const", key, (), array.shape, dtype, value=array, total=finite)
        return self.make({(made.id,): Fraction(1)}, shape, dtype)

    def numbers(self, array: Any, dtype: str) -> Poly:
        """Integers, some of which may be sizes that depend on the number of rows."""
        array = np.asarray(array, object)
        if not any(isinstance(each, Size) for each in array.reshape(-1)):
            return self.const(array.astype(dtype))
        for each in array.reshape(-1):
            if isinstance(each, Size):
                check_fits(each.coefficients, dtype)
        if array.ndim == 0:
            return self.make({(): coefficient(array[()])}, (), dtype)
        key = tuple(array.reshape(-1))
        return self.of(self.atom("const", ("sizes", key), (), array.shape, dtype, value=array))

    def value(self, p: Poly) -> Any:
        """The NumPy array of a constant, None of others. Sizes that depend on the number of rows are objects."""
        if p.dtype in ("resource", "variant") or any(isinstance(each, Size) for each in p.shape):
            return None
        whole = p.dtype in BITS
        if len(p.terms) > 1 and not whole:
            return None
        dtype = tf.as_dtype(p.dtype).as_numpy_dtype
        total: Any = None if p.terms else np.zeros(p.shape, dtype)
        for mono, coef in p.terms:
            values = [self._value(self.atoms[i]) for i in mono]
            if any(value is None for value in values):
                return None
            if len(values) == 1 and coef == 1:
                made = values[0]
            elif whole:
                number = Size.of(coef.up) if isinstance(coef, Ratio) and coef.down == (1,) else coef
                if isinstance(number, Ratio):
                    return None
                number = number if isinstance(number, Size) else int(number)
                made = np.asarray(math.prod((each.astype(object) for each in values), start=number), object)
            elif values or isinstance(coef, Ratio):
                return None
            else:
                made = np.asarray(float(coef))
            total = made if total is None else total + made
        total = np.asarray(total)
        if whole and total.dtype == object:
            if any(isinstance(each, Size) for each in total.reshape(-1)):
                return np.broadcast_to(total, p.shape)
            total = self._fitted(total, p.dtype)
        return np.broadcast_to(total.astype(dtype), p.shape)

    @staticmethod
    def _fitted(array: Any, dtype: str) -> Any:
        flat = [int(wrapped(Fraction(int(each)), dtype)) for each in array.reshape(-1)]
        return np.array(flat, object).reshape(array.shape)

    def _value(self, atom: Atom) -> Any:
        if atom.op == "slice" and (whole := self.value(atom.args[0])) is not None:
            ranges = dict(atom.attrs)
            return whole[tuple(slice(*ranges.get(k, (None, None))) for k in range(whole.ndim))]
        return atom.value

    # -- arithmetic

    def broadcast(self, p: Poly, shape: Sequence[Any]) -> Poly:
        """The same value in a larger shape."""
        shape = tuple(shape)
        if shape == p.shape:
            return p
        return self.make(dict(p.terms), shape if 0 in shape else broadcast_shape(p.shape, shape), p.dtype)

    def add(self, p: Poly, q: Poly, sign: int = 1) -> Poly:
        """The sum, or the difference."""
        terms = dict(p.terms)
        for mono, coef in q.terms:
            terms[mono] = terms.get(mono, Fraction(0)) + sign * coef
        return self.make(terms, broadcast_shape(p.shape, q.shape), p.dtype)

    def scale(self, p: Poly, factor: Any) -> Poly:
        """The value times a number."""
        factor = coefficient(factor)
        return p if factor == 1 else self.make({m: coef * factor for m, coef in p.terms}, p.shape, p.dtype)

    def mul(self, p: Poly, q: Poly) -> Poly:
        """The product, multiplied out where that is not too long."""
        shape = broadcast_shape(p.shape, q.shape)
        square = p is q and len(p.terms) == 2
        one, other = sorted((p, q), key=lambda each: len(each.terms))
        if (len(one.terms) > 1 and not square) or len(other.terms) > _TERMS:
            one, other = (each if len(each.terms) == 1 else self.frozen(each) for each in (one, other))
        terms: dict[Mono, Any] = {}
        nothing = (((), Fraction(0)),)  # 0 times what is not defined everywhere is not 0
        for (m, c), (n, d) in itertools.product(one.terms or nothing, other.terms or nothing):
            mono = tuple(sorted((*m, *n)))
            terms[mono] = terms.get(mono, Fraction(0)) + c * d
        return self.make(terms, shape, p.dtype)

    def frozen(self, p: Poly) -> Poly:
        """A sum as one atom, with its coefficient."""
        core = self.core(p)
        if len(core.terms) <= 1:
            return core
        form = Form([((k,), k) for k in range(len(core.shape))], (0,), total=True)
        return self.apply("poly", (), [core], core.shape, core.dtype, form)

    def primitive(self, p: Poly) -> tuple[Any, Poly]:
        """(a number, the rest), so that multiples of one value have one rest."""
        if not p.terms or p.dtype in BITS:
            return Fraction(1), p
        coef = next((coef for _, coef in p.terms if coef), Fraction(1))
        if isinstance(coef, Ratio) and not coef.never_zero:
            return Fraction(1), p
        return coef, self.scale(p, inverse(coef))

    def inverse(self, p: Poly) -> Poly:
        """1 / p. The inverses of a product are those of its factors; nothing is cancelled, as it may be 0."""
        core = self.core(p)
        if not any(coef for _, coef in core.terms):
            raise Unprovable("a division by 0")
        if len(core.terms) > 1:
            core = self.frozen(core)
        (mono, coef), *_ = core.terms
        made = self.number(inverse(coef), core.shape, p.dtype)
        for i in mono:
            made = self.mul(made, self.elementwise("Inverse", (), [self.of(self.atoms[i])], p.dtype, Form()))
        return self.broadcast(made, p.shape)

    def elementwise(self, op: str, attrs: Any, args: Sequence[Poly], dtype: str, form: Form) -> Poly:
        """An element-wise operation, with broadcasting; ``form`` says the rest."""
        whole = broadcast_shape(*(arg.shape for arg in args))
        args = [self.core(arg) for arg in args]
        shape = broadcast_shape(*(arg.shape for arg in args))
        own = Form(along_all(args, shape), form.parts, None, form.total, form.known)
        return self.broadcast(self.apply(op, attrs, args, shape, dtype, own), whole)

    def count(self, p: Poly) -> Any:
        """The number of elements."""
        return product(p.shape)
