"""Compares a training with the same training on one device, step by step.

Two correct runs differ by their order of summation, and training amplifies that. By how much is measured: the
single-device run is repeated as it is, several times from weights and data that are moved by one unit in the last
place, and once with the rows of each batch in another order. The distance of these runs is what rounding does to this
training. A training that gives something else when it is repeated as it is has something that is not set back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.distribute.history import QUANTITIES, Array, History
from harness.judgement.verification import Comparison
from harness.plural import plural
from harness.records import Finding

#: How many times the measured effect of rounding two runs may be apart: both are rounded versions of one run, on
#: either side of it, and the largest of a few samples may be smaller than the next.
ROUNDING_FACTOR = 8.0
#: Where the moved runs happen to agree, this many units in the last place of the largest value so far are rounding.
ROUNDING_ULPS = 16.0
#: How often the single-device run is repeated: at first as it is, at last with rows in another order.
MOVED_RUNS = 5
#: A run that is further away when it is repeated, relative to the largest value so far, is not the same training.
_MOST_BY_REPEATING = 1e-4
#: A run with rows in another order that is further away, relative to the largest value so far, is another training:
#: one that knows its rows by their place. A sum of n float32 numbers is off by n / 2**24 of their size at most.
_MOST_BY_ORDER = 1e-3
#: What is smaller than this share of the largest value of its kind may be rounding.
_NOISE = 1e-6

#: Keras adds up metrics, and the loss that ``fit`` reports, in float32 whatever the model computes in
#: (keras/src/metrics/reduction_metrics.py: the dtype is ``floatx``).
_METRICS_EPSILON = float(np.finfo(np.float32).eps)

RULE = f"{ROUNDING_FACTOR:g} times the measured effect of rounding, plus {ROUNDING_ULPS:g} units in the last place"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first step at which a value exceeds its bound."""

    quantity: str
    name: str
    step: int
    error: float
    bound: float


@dataclass(frozen=True)
class Compared:
    """The result of comparing two histories. ``structure`` lists what only one of them has, or in another shape: its
    name, what was expected, and what was found."""

    differences: tuple[Divergence, ...]
    comparisons: tuple[Comparison, ...]
    structure: tuple[tuple[str, str, str], ...]
    undecided: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether nothing differs, and everything could be compared."""
        return not (self.differences or self.structure or self.undecided)

    @property
    def first_step(self) -> int:
        """The first step at which anything differs."""
        return min((difference.step for difference in self.differences), default=0)

    def findings(self, loop: str) -> Iterator[Finding]:
        """One finding for each quantity: the first step, and at this step the variable that is furthest off."""
        for name, want, got in self.structure[:1]:
            kind = "missing-gradient" if name.startswith("gradient") and got == "missing" else "structure"
            message = (
                f"{plural(len(self.structure), 'value')} missing, extra or of another shape than in the single-device "
                "run"
            )
            yield Finding(kind, name, None, want, got, message, mode=loop)
        groups: dict[str, list[Divergence]] = {}
        for difference in self.differences:
            groups.setdefault(difference.quantity, []).append(difference)
        firsts = {
            quantity: min(of, key=lambda difference: (difference.step, -difference.error / difference.bound))
            for quantity, of in groups.items()
        }
        # What differs from an earlier step on comes first, whatever a step computes first.
        for quantity, first in sorted(firsts.items(), key=lambda each: each[1].step):
            differences = groups[quantity]
            more = "" if len(differences) == 1 else f" and {len(differences) - 1} more"
            name = quantity if first.name == quantity else f"{quantity} {first.name}{more}"
            yield Finding(
                "gradient" if quantity == "gradient" else "value",
                f"{name}, step {first.step}",
                None,
                f"within {first.bound:.3g} of the single-device run (rounding)",
                f"{first.error:.3g} away",
                f"{quantity} diverged from the single-device run at step {first.step}",
                mode=loop,
            )


@dataclass(frozen=True, slots=True)
class Apart:
    """How far a run is from the single-device run at each step, and how far it may be."""

    errors: Array
    bounds: Array

    @classmethod
    def of(cls, found: Array, single: Array, moved: Sequence[Array], epsilon: float) -> Apart:
        """Measure the distance of arrays ``[steps, elements]``. ``moved`` are further runs on a single device."""
        return cls(np.abs(found - single).max(axis=1, initial=0.0), bounds(single, moved, epsilon))

    @property
    def shares(self) -> Array:
        """Each error as a share of its bound."""
        shares: Array = np.nan_to_num(self.errors / self.bounds, nan=np.inf, posinf=np.inf)
        return shares

    @property
    def first_outside(self) -> int | None:
        """The first step whose error exceeds its bound. A NaN does."""
        outside = ~(self.errors <= self.bounds)
        return int(np.argmax(outside)) if outside.any() else None


def compare(found: History, single: History, moved: Sequence[History], epsilon: float) -> Compared:
    """Compare everything that both histories have, step by step. ``epsilon`` is that of the arithmetic.

    The first of ``moved`` is the single-device run once more.
    """
    differences: list[Divergence] = []
    comparisons: list[Comparison] = []
    structure: list[tuple[str, str, str]] = []
    undecided: list[str] = []
    if (changed := _apart(moved[0], single, _MOST_BY_REPEATING)) is not None:
        undecided.append(
            f"the single-device run, repeated with the same weights and data, has another {changed}: the training "
            "draws random numbers, or keeps something from run to run; make each variable that it keeps in build"
        )
    for quantity in QUANTITIES:
        want, got = single.values[quantity], found.values[quantity]
        structure += [(f"{quantity} {name}", "present", "missing") for name in want if name not in got]
        structure += [(f"{quantity} {name}", "missing", "present") for name in got if name not in want]
        for name, reference in want.items():
            if name not in got:
                continue
            value = got[name]
            if value.shape != reference.shape:
                structure.append((f"{quantity} {name}", str(reference.shape), str(value.shape)))
                continue
            if not np.isfinite(reference).all():
                undecided.append(
                    f"{quantity if name == quantity else f'{quantity} {name}'} is not finite in the single-device run, "
                    "so there is nothing to compare with"
                )
                continue
            from_keras = quantity == "metric" or (quantity == "loss" and found.loop == "fit")
            own = max(epsilon, _METRICS_EPSILON) if from_keras else epsilon
            apart = Apart.of(value, reference, [run.values[quantity][name] for run in moved], own)
            worst = int(np.argmax(apart.shares))
            comparisons.append(
                Comparison(
                    found.loop,
                    f"{quantity} {name}",
                    "float64",
                    value.size,
                    value.size,
                    float(apart.errors[worst]),
                    float(apart.bounds[worst]),
                    RULE,
                )
            )
            if (step := apart.first_outside) is not None:
                differences.append(
                    Divergence(quantity, name, step, float(apart.errors[step]), float(apart.bounds[step]))
                )
    return Compared(tuple(differences), tuple(comparisons), tuple(structure), tuple(undecided))


def is_rounded_otherwise(run: History, single: History) -> bool:
    """Whether a run with rows in another order is the single-device run up to rounding."""
    return _apart(run, single, _MOST_BY_ORDER) is None


def _apart(run: History, single: History, most: float) -> str | None:
    """What is further from the single-device run than ``most``, relative to the largest value so far, or None."""
    for quantity in QUANTITIES:
        finite = {name: array for name, array in single.values[quantity].items() if np.isfinite(array).all()}
        # Beside others, a gradient may be nothing but rounding, such as that of a bias that is then normalized away.
        noise = max((float(np.abs(array).max(initial=0.0)) for array in finite.values()), default=0.0) * _NOISE
        for name, reference in finite.items():
            scale = np.maximum.accumulate(np.abs(reference).max(axis=1, initial=0.0))
            distance = np.abs(run.values[quantity][name] - reference).max(axis=1, initial=0.0)
            outside = ~(distance <= most * scale + noise)
            if outside.any():
                return f"{quantity if name == quantity else f'{quantity} {name}'} at step {int(np.argmax(outside))}"
    return None


def bounds(single: Array, moved: Sequence[Array], epsilon: float) -> Array:
    """Return the bound of each step, from arrays ``[steps, elements]``: above 0, and never smaller than before."""
    distance = np.zeros(len(single))
    for run in moved:
        distance = np.maximum(distance, np.abs(run - single).max(axis=1, initial=0.0))
    so_far = np.maximum.accumulate(np.nan_to_num(distance, nan=0.0, posinf=0.0))
    scale = np.maximum.accumulate(np.abs(single).max(axis=1, initial=0.0))
    tiny = float(np.finfo(np.float32).tiny)
    bound: Array = ROUNDING_FACTOR * so_far + ROUNDING_ULPS * epsilon * scale + tiny
    return bound
