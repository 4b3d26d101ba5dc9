"""What values are made of: atoms, terms, shapes, and the forms of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from harness.lazy import tf
from harness.proof.sizes import Ratio, Unprovable

#: In the place of an axis of the result: rows of the arguments give a part of a sum.
SUM = "sum"
#: Integers of these types wrap around: sums and products modulo a power of 2.
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
#: For so many rows, numbers that are computed from how many there are have to fit their types.
ROWS = 256
FLOATS = ("float16", "bfloat16", "float32", "float64")

Mono = tuple[int, ...]
Shape = tuple[Any, ...]
#: (axis of each argument or None, axis of the result or SUM)
Map = tuple[tuple[int | None, ...], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How rows pass through an operation.

    ``rows`` says along which axes of its arguments it is row-wise, and to which axis of the result that leads, or
    :data:`SUM`. ``parts`` are the numbers of the arguments that it is linear in, each by itself. ``redo`` makes the
    same of other arguments, where that is more than an atom. ``total``: it is defined for all real arguments.
    ``known``: it has a rule.
    """

    rows: Sequence[Map] = ()
    parts: Sequence[int] = ()
    redo: Callable[[list[Poly]], Poly] | None = None
    total: bool = False
    known: bool = True


@dataclass(eq=False, slots=True)
class Atom:
    """An indivisible value. ``op`` is a TensorFlow op type, or ``input``, ``var``, ``const``, ``slice``, ``part``…"""

    id: int
    op: str
    attrs: Any
    args: tuple[Poly, ...]
    shape: Shape
    dtype: str
    #: Of a constant.
    value: Any = None
    #: Not defined everywhere, as a logarithm: it does not vanish if it is multiplied by 0.
    partial: bool = False
    form: Form | None = None
    #: Why it is opaque although its arguments are shards.
    note: str = ""


@dataclass(eq=False, slots=True)
class Poly:
    """The sum of coefficients times products of atoms, each broadcast (aligned on the right) to ``shape``."""

    id: int
    terms: tuple[tuple[Mono, Any], ...]
    shape: Shape
    dtype: str


@dataclass(eq=False, slots=True)
class Base:
    """What parts are parts of: ``full()`` is the sum of all of them.

    ``row(start)`` is the part of one row, of a sum over leading axes, which stay with size 1. ``cut``: it is rows of
    another one: (the number of that, the ranges of its axes, the shape of its parts). ``reshaped``: it is another one
    in another shape: (the number of that, the shape of its parts).
    """

    id: int
    full: Callable[[], Poly]
    partial: bool
    row: Callable[[Any], Poly] | None = None
    cut: tuple[int, dict[int, tuple[Any, Any]], Shape] | None = None
    reshaped: tuple[int, Shape] | None = None


def broadcast_shape(*shapes: Sequence[Any]) -> Shape:
    """The shape that these are broadcast to together."""
    rank = max(map(len, shapes), default=0)
    out: list[Any] = [1] * rank
    for shape in shapes:
        for at, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if out[at] != 1 and out[at] != size:
                    raise Unprovable(f"shapes {', '.join(map(str, shapes))} do not broadcast")
                out[at] = size
    return tuple(out)


def replaced(shape: Sequence[Any], axis: int, size: Any) -> Shape:
    """The shape with another size along an axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def along_all(args: Sequence[Poly], shape: Sequence[Any]) -> list[Map]:
    """The maps of an element-wise operation with broadcasting."""

    def own(arg: Poly, k: int) -> int | None:
        at = k - len(shape) + len(arg.shape)
        return at if at >= 0 and arg.shape[at] == shape[k] else None

    return [(tuple(own(arg, k) for arg in args), k) for k in range(len(shape))]


def snap(number: Any, dtype: str) -> Fraction:
    """The simplest rational number that rounds to a float constant. Different constants give different numbers."""
    exact = Fraction(float(number))
    if exact.denominator == 1 or dtype not in FLOATS:
        return exact
    kind = tf.as_dtype(dtype).as_numpy_dtype
    limits = (64,) if dtype in ("float16", "bfloat16") else (64, 1024, 8192)
    tries = [exact.limit_denominator(limit) for limit in limits]
    tries += [1 / near for limit in limits if (near := (1 / exact).limit_denominator(limit))] if exact else []
    tries.append(Fraction(str(number)))
    return next((near for near in tries if kind(float(near)) == number), exact)


def check_fits(coefficients: Sequence[Any], dtype: str) -> None:
    """Raise :class:`Unprovable` if a number that depends on the number of rows may wrap around for a common one."""
    if max(map(abs, coefficients)) * ROWS >= 1 << (BITS[dtype] - 1):
        raise Unprovable(f"a number that may overflow with {ROWS} rows")


def wrapped(coef: Any, dtype: str) -> Any:
    """A coefficient of integers that wrap around."""
    if isinstance(coef, Ratio):
        check_fits(coef.up, dtype)
        return coef
    if coef.denominator != 1:
        raise Unprovable("a fraction of an integer")
    bits, number = BITS[dtype], int(coef) % (1 << BITS[dtype])
    return Fraction(number - (1 << bits) if dtype[0] == "i" and number >> (bits - 1) else number)
