"""Judges how a speedup changed between two measurements.

Everything is computed on logarithms, ``d = log(new) - log(base)``, for each of two figures
(:mod:`harness.speed.estimate`): the speedup of the fastest calls, and that of typical ones. One run does not show how
much a speedup varies from process to process (memory layout, other programs), so this is a term of its own:
``se = sqrt(se_base² + se_new² + 2 sigma²)``, with ``sigma`` the variation between runs of the same code. Student's t
has the degrees of freedom of Welch and Satterthwaite (Satterthwaite, Biometrics Bulletin 2, 1946). ``confidence`` holds
for each one-sided statement ("there is a loss", "it is beyond the threshold"), so the interval has ``2 confidence -
1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import UsageError
from harness.plural import plural
from harness.speed.estimate import Figure, LogSpeedup
from harness.speed.record import Interval

#: ``better`` and ``worse``: a change is established. ``same``: none is, and the interval is within ± the threshold.
ChangeVerdict = Literal["better", "same", "worse", "cannot tell"]

#: Relative standard deviation of the speedup of fastest calls between processes, without a calibration. Measured on two
#: shared cores.
DEFAULT_SIGMA = 0.013
#: The same of typical calls, which other programs disturb far more: up to this much on two shared cores.
TYPICAL_SIGMA = 0.10


@dataclass(frozen=True, slots=True)
class Rules:
    """``threshold``: the accepted loss, as a share of the baseline's speedup. ``confidence``: one-sided."""

    threshold: float = 0.05
    confidence: float = 0.99

    def __post_init__(self) -> None:
        if not 0.0 < self.threshold < 1.0:
            raise UsageError(f"threshold={self.threshold!r}; accepted: above 0 and below 1, such as 0.05")
        if not 0.5 < self.confidence < 1.0:
            raise UsageError(f"confidence={self.confidence!r}; accepted: above 0.5 and below 1, such as 0.99")

    @property
    def log_loss(self) -> float:
        """The threshold as a change of the logarithm, a negative number."""
        return math.log1p(-self.threshold)


@dataclass(frozen=True, slots=True)
class Variation:
    """The relative standard deviation of a speedup between runs of the same code.

    ``freedom``: degrees of freedom of the estimate, infinite for a fixed value. ``source`` names its origin.
    """

    sigma: float
    freedom: float
    source: str

    @property
    def line(self) -> str:
        """The line that a comparison without a calibration shows."""
        return f"variation between runs: ± {self.sigma:.1%} ({self.source})"


#: Used without a calibration.
UNCALIBRATED = Variation(DEFAULT_SIGMA, math.inf, "default, not calibrated on this machine")
_UNCALIBRATED_TYPICAL = Variation(TYPICAL_SIGMA, math.inf, "default for typical calls, not calibrated on this machine")
#: The variation of a figure between runs, by the full name of the benchmark.
VariationOf = Callable[[str, Figure], Variation]


def uncalibrated(_name: str, figure: Figure) -> Variation:
    """Give the variation of any benchmark without a calibration."""
    return UNCALIBRATED if figure == "fastest" else _UNCALIBRATED_TYPICAL


@dataclass(frozen=True, slots=True)
class Change:
    """A change, with the interval of new / base - 1.

    ``p_beyond``: the probability of a change at least as bad if the loss equals the threshold. ``more`` says what it
    would take to decide, where the verdict is "cannot tell".
    """

    interval: Interval
    verdict: ChangeVerdict
    p_beyond: float
    #: Standard error of the logarithm, and the degrees of freedom.
    error: float
    freedom: float
    more: str | None = None


def change_between(base: LogSpeedup, new: LogSpeedup, variation: Variation, rules: Rules) -> Change:
    """Judge the change from ``base`` to ``new``."""
    parts = (
        (base.error**2, base.freedom),
        (new.error**2, new.freedom),
        (2.0 * variation.sigma**2, variation.freedom),
    )
    total = sum(variance for variance, _ in parts)
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in parts if degrees < math.inf)
    change = judged_change(new.value - base.value, math.sqrt(total), freedom, rules)
    if change.verdict != "cannot tell":
        return change
    return replace(change, more=_pairs_to_tell(base, new, variation, change, rules))


def judged_change(difference: float, error: float, freedom: float, rules: Rules) -> Change:
    """Judge a difference of logarithms with this standard error and these degrees of freedom."""
    from scipy.stats import t

    half = error * float(t.ppf(rules.confidence, freedom))
    lower, upper = difference - half, difference + half
    verdict: ChangeVerdict
    if upper < 0.0:
        verdict = "worse"
    elif lower > 0.0:
        verdict = "better"
    else:
        verdict = "same" if half <= -rules.log_loss else "cannot tell"
    return Change(
        Interval(math.expm1(difference), math.expm1(lower), math.expm1(upper), 2.0 * rules.confidence - 1.0),
        verdict,
        float(t.cdf((difference - rules.log_loss) / error, freedom)),
        error,
        freedom,
    )


def _pairs_to_tell(base: LogSpeedup, new: LogSpeedup, variation: Variation, change: Change, rules: Rules) -> str:
    """Say how many pairs would make the interval as narrow as the threshold."""
    from scipy.stats import t

    quantile = float(t.ppf(rules.confidence, change.freedom))
    room = (-rules.log_loss / quantile) ** 2 - 2.0 * variation.sigma**2
    if room <= 0.0:
        least = -math.expm1(-quantile * math.sqrt(2.0) * variation.sigma)
        return (
            f"no number of pairs is enough: the speedup varies by ± {variation.sigma:.1%} between runs "
            f"({variation.source}), so two runs can only show losses of {least:.1%} or more; compare several runs with "
            "`harness compare --ab`, or run `harness calibrate`"
        )
    factor = (base.error**2 + new.error**2) / room
    more, of_baseline = (max(1, math.ceil((factor - 1.0) * each.pairs)) for each in (new, base))
    return (
        f"needs about {plural(more, 'more pair')} than the {new.pairs:,} measured, and {of_baseline:,} more in the "
        "baseline"
    )
