"""Sizes that depend on an unknown number, and rational functions of them as coefficients.

The batch size is ``step * m + rest`` with an unknown integer ``m`` that is at least 1. A size is then a polynomial in
``m``, and a coefficient such as ``1 / rows`` a quotient of two. What is decided about one holds for every such ``m``;
what cannot be decided so raises :class:`Unprovable`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

Whole = tuple[Any, ...]


class Unprovable(Exception):
    """The proof cannot go on: something is outside of what the algebra can say."""


class Fails(Unprovable):
    """An operation raises an error, whatever the inputs are."""


class Indivisible(Unprovable):
    """Whether it goes on depends on what is left when ``m`` is divided by ``divisor``."""

    def __init__(self, divisor: int) -> None:
        super().__init__(f"the number of rows divided by {divisor}")
        self.divisor = divisor


def _trimmed(coefficients: Iterable[Any]) -> Whole:
    found = list(coefficients)
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def _sum(one: Whole, other: Whole, sign: int = 1) -> Whole:
    return _trimmed(a + sign * b for a, b in itertools.zip_longest(one, other, fillvalue=0))


def _product(one: Whole, other: Whole) -> Whole:
    found = [0] * max(len(one) + len(other) - 1, 0)
    for i, a in enumerate(one):
        for k, b in enumerate(other):
            found[i + k] += a * b
    return _trimmed(found)


def _divided(one: Whole, other: Whole) -> tuple[Whole, Whole]:
    """(quotient, rest) of two polynomials with rational coefficients."""
    rest = [Fraction(each) for each in one]
    quotient = [Fraction(0)] * max(len(one) - len(other) + 1, 0)
    while len(rest) >= len(other) and rest:
        at, factor = len(rest) - len(other), rest[-1] / other[-1]
        quotient[at] = factor
        for i, each in enumerate(other):
            rest[at + i] -= factor * each
        rest = list(_trimmed(rest[:-1]))
    return _trimmed(quotient), tuple(rest)


def _one_sign(coefficients: Whole) -> int:
    """1 or -1 if the polynomial is positive, or negative, for every ``m`` from 1; 0 where that does not show."""
    shifted: Whole = ()
    for each in reversed(coefficients):  # in t = m - 1, which is at least 0
        shifted = _sum(_product(shifted, (1, 1)), _trimmed((each,)))
    for sign in (1, -1):
        if shifted and sign * shifted[0] > 0 and all(sign * each >= 0 for each in shifted):
            return sign
    return 0


class Size:
    """A number of elements that depends on ``m``: a polynomial with integer coefficients, not constant."""

    __slots__ = ("coefficients",)

    def __init__(self, coefficients: Whole) -> None:
        self.coefficients = coefficients

    @staticmethod
    def of(coefficients: Whole) -> Any:
        """An ``int`` where it does not depend on ``m``."""
        found = _trimmed(coefficients)
        if any(Fraction(each).denominator != 1 for each in found):
            raise Unprovable("a fraction of a size")
        whole = tuple(int(each) for each in found)
        return Size(whole) if len(whole) > 1 else whole[0] if whole else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.coefficients == other.coefficients

    def __hash__(self) -> int:
        return hash(("size", self.coefficients))

    def __repr__(self) -> str:
        terms = [f"{each}*m^{at}" for at, each in enumerate(self.coefficients) if each]
        return " + ".join(terms).replace("*m^0", "").replace("m^1", "m")

    def __add__(self, other: Any) -> Any:
        return Size.of(_sum(self.coefficients, _whole(other)))

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return Size.of(_sum(self.coefficients, _whole(other), -1))

    def __rsub__(self, other: Any) -> Any:
        return Size.of(_sum(_whole(other), self.coefficients, -1))

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (Fraction, Ratio)):
            return NotImplemented
        return Size.of(_product(self.coefficients, _whole(other)))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return _division(self, other)[0]

    def __mod__(self, other: Any) -> Any:
        return _division(self, other)[1]

    def __lt__(self, other: Any) -> bool:
        return less(self, other)

    def __gt__(self, other: Any) -> bool:
        return less(other, self)

    def __le__(self, other: Any) -> bool:
        return not less(other, self)

    def __ge__(self, other: Any) -> bool:
        return not less(self, other)

    def __bool__(self) -> bool:
        return differs(self, 0)


def _whole(number: Any) -> Whole:
    if isinstance(number, Size):
        return number.coefficients
    if isinstance(number, float) or int(number) != number:
        raise Unprovable("a fraction of a size")
    return _trimmed((int(number),))


def _division(one: Size, other: Any) -> tuple[Any, Any]:
    if isinstance(other, Size):
        quotient, rest = _divided(one.coefficients, other.coefficients)
        if rest:
            raise Unprovable(f"{one} divided by {other}")
        return Size.of(quotient), 0
    divisor = int(other)
    if divisor < 1:
        raise Unprovable(f"{one} divided by {other}")
    first, *rest_of = one.coefficients
    if left := [each for each in rest_of if each % divisor]:
        raise Indivisible(math.lcm(*(divisor // math.gcd(divisor, each) for each in left)))
    return Size.of((first // divisor, *(each // divisor for each in rest_of))), first % divisor


def divides(divisor: int, size: Any) -> bool:
    """Whether a size is a multiple of a number for every ``m``, as far as that shows."""
    return not any(each % divisor for each in _whole(size))


def less(one: Any, other: Any) -> bool:
    """Whether ``one < other`` for every ``m``. Raises :class:`Unprovable` where that depends on ``m``."""
    if not isinstance(one, Size) and not isinstance(other, Size):
        return bool(one < other)
    difference = _sum(_whole(other), _whole(one), -1)
    if not difference:
        return False
    if (sign := _one_sign(difference)) != 0:
        return sign > 0
    if _one_sign(_sum(difference, (1,), -1)) < 0:  # of integers: what is less than 1 is at most 0
        return False
    raise Unprovable(f"whether {one} is less than {other}")


def differs(one: Any, other: Any) -> bool:
    """Whether two sizes differ for every ``m``. Raises :class:`Unprovable` where that depends on ``m``."""
    if not isinstance(one, Size) and not isinstance(other, Size):
        return bool(one != other)
    difference = _sum(_whole(one), _whole(other), -1)
    if difference and not _one_sign(difference):
        raise Unprovable(f"whether {one} is {other}")
    return bool(difference)


class Ratio:
    """A quotient of two polynomials in ``m`` without a common factor; the denominator is 0 for no ``m``."""

    __slots__ = ("down", "up")

    def __init__(self, up: Whole, down: Whole) -> None:
        self.up, self.down = up, down

    @staticmethod
    def of(up: Whole, down: Whole) -> Any:
        """A ``Fraction`` where it does not depend on ``m``."""
        if not up:
            return Fraction(0)
        one, other = up, down
        while other:
            one, other = other, _divided(one, other)[1]
        up, down = _divided(up, one)[0], _divided(down, one)[0]
        lead = Fraction(down[-1])
        up, down = tuple(Fraction(each) / lead for each in up), tuple(Fraction(each) / lead for each in down)
        return Fraction(up[0]) if len(up) == len(down) == 1 else Ratio(up, down)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ratio) and (self.up, self.down) == (other.up, other.down)

    def __hash__(self) -> int:
        return hash((self.up, self.down))

    def __repr__(self) -> str:
        return "a number that depends on the number of rows"

    def __bool__(self) -> bool:
        return True

    def __add__(self, other: Any) -> Any:
        up, down = _parts(other)
        return Ratio.of(_sum(_product(self.up, down), _product(up, self.down)), _product(self.down, down))

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        up, down = _parts(other)
        return Ratio.of(_product(self.up, up), _product(self.down, down))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self * inverse(other)

    def __rtruediv__(self, other: Any) -> Any:
        return inverse(self) * other

    @property
    def never_zero(self) -> bool:
        """Whether it is 0 for no ``m``, as far as that shows."""
        return _one_sign(self.up) != 0


def _parts(number: Any) -> tuple[Whole, Whole]:
    if isinstance(number, Ratio):
        return number.up, number.down
    if isinstance(number, Size):
        return number.coefficients, (1,)
    return _trimmed((Fraction(number),)), (1,)


def coefficient(number: Any) -> Any:
    """A number or a size as a coefficient."""
    return Ratio.of(*_parts(number)) if isinstance(number, (Size, Ratio)) else Fraction(number)


def inverse(number: Any) -> Any:
    """One divided by a number, a size or a coefficient."""
    up, down = _parts(number)
    if not up:
        raise Unprovable("a division by 0")
    if not _one_sign(up):
        raise Unprovable("a division by what may be 0")
    return Ratio.of(down, up)


def product(sizes: Iterable[Any]) -> Any:
    """The product of sizes: the number of elements."""
    total: Any = 1
    for each in sizes:
        total = total * each
    return total
