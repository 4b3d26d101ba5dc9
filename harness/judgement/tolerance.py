"""How far two correct results of the same arithmetic may lie apart.

A split program adds in another order, so the last bits may differ; how many depends on the program. The bound is
measured on the reference itself: its inputs are moved by one unit in the last place, at random, several times, and
the largest change of each element of each result is what one rounding error can do there. A sum over ``n`` terms
makes up to ``n`` such errors that add up like a random walk (Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed. 2002, section 2.8), so the bound is that change times ``8 + sqrt(n)``.

Arithmetic that is exact needs no bound: ``harness.judgement.exactness``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.evidence.arithmetic import computes
from harness.evidence.trace import Trace

#: How often the reference is run with moved inputs to measure its sensitivity.
REPLAYS = 4
#: So many units in the last place of an element are allowed, whatever its inputs do.
LEAST_ULPS = 8.0
#: Elements that are compared at a time: 2 MiB in float64.
_BLOCK = 2**18
#: The typical change is at most this many times the change that nine of ten elements stay below.
_TYPICAL = 4.0


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of each element of one result under moves of one unit in the last place of the inputs."""

    change: NDArray[Any]
    terms: int
    #: How many times as wide the bound is.
    factor: float = 1.0
    #: The bound is at most this many units in the last place of the element, or of the typical element.
    most_ulps: float = np.inf
    #: What could not be measured, and why, to be said after the rule.
    note: str = ""

    def bound(
        self, reference: NDArray[Any], epsilon: float, at: slice | None = None, typical: float | None = None
    ) -> NDArray[np.float64]:
        """Allowed error of each element, in units of the result.

        ``reference`` may be the elements ``at`` of the flattened result, whose ``typical`` magnitude is then given.
        """
        change = self.change if at is None else self.change.reshape(-1)[at]
        change = change.astype(np.float64)
        finite = np.where(np.isfinite(change), change, 0.0)
        magnitude = np.where(np.isfinite(reference), np.abs(reference), 0.0)
        times = self.factor * (LEAST_ULPS + np.sqrt(self.terms))
        measured: NDArray[np.float64] = times * (finite + self._typical_change + epsilon * magnitude)
        if not np.isfinite(self.most_ulps):
            return measured
        if typical is None:
            typical = np.sqrt(np.mean(np.square(magnitude))) if magnitude.size else 0.0
        capped: NDArray[np.float64] = np.minimum(measured, self.most_ulps * epsilon * (magnitude + typical))
        return capped

    def moves(self, at: slice) -> NDArray[np.bool_]:
        """Which of the elements ``at`` of the flattened result, or what is typical of them all, a move changes."""
        moved: NDArray[np.bool_] = self.change.reshape(-1)[at] > 0.0
        return moved | (self._typical_change > 0.0)

    @cached_property
    def _typical_change(self) -> float:
        change = self.change.astype(np.result_type(self.change.dtype, np.float32), copy=False)
        finite = np.where(np.isfinite(change), change, 0.0)
        if not finite.size:
            return 0.0
        # Of few elements that jump, as rounded ones do, the others know nothing.
        most = _TYPICAL * float(np.quantile(finite, 0.9))
        return min(float(np.sqrt(np.mean(np.square(finite, dtype=np.float64)))), most)


def blocks_of(size: int) -> list[slice]:
    """Slices that together are ``size`` elements, each of so many that they are computed with in little memory."""
    return [slice(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK)]


def epsilon_of(dtype: Any) -> float:
    """Distance from 1 to the next number of a floating dtype (NumPy's, or one of ml_dtypes), or 0.0 for others."""
    return _epsilon_of(np.dtype(dtype))


@cache
def _epsilon_of(dtype: np.dtype) -> float:
    return epsilon_of_name(dtype.name)


#: Of the dtypes that TensorFlow computes in, by TensorFlow's name for them.
_EPSILONS = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
}


def epsilon_of_name(dtype: str) -> float:
    """Distance from 1 to the next number of a floating dtype by TensorFlow's name, or 0.0 for others."""
    return _EPSILONS.get(dtype, 0.0)


def coarsest_epsilon(dtypes: Iterable[str]) -> float:
    """The largest epsilon among floating dtypes, by TensorFlow's names; 0.0 where there is none.

    A float32 result of a float16 layer (mixed precision) is no better than float16.
    """
    return max(map(epsilon_of_name, dtypes), default=0.0)


def coarsest_of(evidence: Trace) -> float:
    """The largest epsilon of the dtypes that ops compute in, or round to."""
    ops = (op for op in evidence.ops if computes(op) or op.type == "Cast")
    return coarsest_epsilon(dtype for op in ops for dtype in op.dtypes)


def move(array: NDArray[Any], random: np.random.Generator, at_least: float = 0.0) -> NDArray[Any]:
    """``array`` with each element moved by one unit in the last place, up or down at random; its dtype stays.

    ``at_least``: where the arithmetic is coarser than the array, the epsilon of the arithmetic.
    """
    epsilon = max(epsilon_of(array.dtype), at_least)
    # One more or less than 1 by a power of two: the products are rounded once, in whatever dtype.
    real = array.real.dtype.type
    up = random.integers(0, 2, size=array.shape, dtype=np.int8)
    moved: NDArray[Any] = (array * np.where(up, real(1.0 + epsilon), real(1.0 - epsilon))).astype(array.dtype)
    return moved
