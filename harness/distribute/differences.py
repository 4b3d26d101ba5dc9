"""Where a training leaves the same training on one device, and by how much it may.

Two correct runs differ by their order of summation, and training carries that on. How far is measured on the
single-device run: it is made again, several times, from weights and data that are moved by one unit in the last place,
and what becomes of that is what rounding does to this very training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.distribute.course import QUANTITIES, Array, Course
from harness.judgement.verification import Comparison

#: How many times the measured effect of rounding two runs may lie apart: both are roundings of one course, on either
#: side of it, and the largest of a few draws may be smaller than the next.
ROUNDING_FACTOR = 8.0
#: Where the moved runs happen to agree, so many units in the last place of the largest value so far are rounding still.
ROUNDING_ULPS = 16.0
#: How often the single-device run is made again from moved weights and data.
MOVED_RUNS = 3

#: Keras adds up metrics, and the loss that ``fit`` reports, in float32 whatever the model computes in
#: (keras/src/metrics/reduction_metrics.py: the dtype is ``floatx``).
_METRICS_EPSILON = float(np.finfo(np.float32).eps)

RULE = f"{ROUNDING_FACTOR:g} times the effect of one unit in the last place, and {ROUNDING_ULPS:g} of them"
_KIND = {"gradient": "gradient"}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step at which something leaves its bound. ``share`` is how many times as large as its bound it is."""

    kind: str
    quantity: str
    name: str
    step: int
    error: float
    bound: float

    @property
    def share(self) -> float:
        """The error in units of its bound."""
        return self.error / self.bound if self.bound else np.inf


@dataclass(frozen=True)
class Compared:
    """What comes of comparing two courses. ``structure`` names what only one of them has, or in another shape."""

    differences: tuple[Difference, ...]
    comparisons: tuple[Comparison, ...]
    structure: tuple[tuple[str, str, str], ...]
    undecided: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether nothing differs, and everything could be compared."""
        return not (self.differences or self.structure or self.undecided)

    @property
    def first(self) -> int:
        """The first step at which anything differs."""
        return min((difference.step for difference in self.differences), default=0)


def compare(found: Course, single: Course, moved: Sequence[Course], epsilon: float) -> Compared:
    """Compare everything that both courses have, step by step. ``epsilon`` is that of the arithmetic."""
    differences: list[Difference] = []
    comparisons: list[Comparison] = []
    structure: list[tuple[str, str, str]] = []
    undecided: list[str] = []
    for quantity in QUANTITIES:
        want, got = single.values[quantity], found.values[quantity]
        structure += [(f"{quantity} {name}", "there", "not there") for name in want if name not in got]
        structure += [(f"{quantity} {name}", "not there", "there") for name in got if name not in want]
        for name, reference in want.items():
            if name not in got:
                continue
            value = got[name]
            if value.shape != reference.shape:
                structure.append((f"{quantity} {name}", str(reference.shape), str(value.shape)))
                continue
            if not np.isfinite(reference).all():
                undecided.append(f"{quantity} {name} is not finite on one device: it can prove nothing")
                continue
            told_by_keras = quantity == "metric" or (quantity == "loss" and found.loop == "fit")
            own = max(epsilon, _METRICS_EPSILON) if told_by_keras else epsilon
            bound = bounds(reference, [run.values[quantity][name] for run in moved], own)
            error = np.abs(value - reference).max(axis=1, initial=0.0)
            worst = int(np.argmax(np.nan_to_num(error / bound, nan=np.inf, posinf=np.inf)))
            comparisons.append(
                Comparison(
                    found.loop,
                    f"{quantity} {name}",
                    "float64",
                    value.size,
                    value.size,
                    float(error[worst]),
                    float(bound[worst]),
                    RULE,
                )
            )
            outside = ~(error <= bound)  # a NaN is outside
            if outside.any():
                step = int(np.argmax(outside))
                kind = _KIND.get(quantity, "value")
                differences.append(Difference(kind, quantity, name, step, float(error[step]), float(bound[step])))
    return Compared(tuple(differences), tuple(comparisons), tuple(structure), tuple(undecided))


def bounds(single: Array, moved: Sequence[Array], epsilon: float) -> Array:
    """The bound of each step, from arrays ``[steps, elements]``: never 0, and never smaller than in a step before."""
    apart = np.zeros(len(single))
    for run in moved:
        apart = np.maximum(apart, np.abs(run - single).max(axis=1, initial=0.0))
    so_far = np.maximum.accumulate(np.nan_to_num(apart, nan=0.0, posinf=0.0))
    scale = np.maximum.accumulate(np.abs(single).max(axis=1, initial=0.0))
    tiny = float(np.finfo(np.float32).tiny)
    bound: Array = ROUNDING_FACTOR * so_far + ROUNDING_ULPS * epsilon * scale + tiny
    return bound
