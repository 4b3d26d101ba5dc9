"""How a speedup changed between two measurements, and what may be said of it.

All is done on logarithms: ``d = log(new) - log(base)``, of either of two figures (:mod:`harness.speed.figures`): the
speedup of the fastest calls, or that of typical ones. One run does not hold how much a speedup moves from process to
process (where memory lies, who else runs), so that is a part of its own: ``se = sqrt(se_base² + se_new² + 2 sigma²)``,
with ``sigma`` the variation between runs of the same code. Student's t has the degrees of freedom of Welch and
Satterthwaite (Satterthwaite, Biometrics Bulletin 2, 1946). ``confidence`` is that of each one-sided statement ("there
is a loss", "it is beyond the threshold"), so that the interval shown, with that confidence at each end, is worth
``2 confidence - 1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import UsageError
from harness.speed.figures import Figure, LogSpeedup
from harness.speed.record import Interval

#: Better and worse: a change is established. Same: none is, and the interval is narrower than ± the threshold.
ChangeVerdict = Literal["better", "same", "worse", "cannot tell"]

#: How much a speedup of fastest calls moves between processes where nobody has calibrated: its standard deviation,
#: relative. Measured on two shared cores.
DEFAULT_SIGMA = 0.013
#: The same of typical calls, which neighbours on the machine move far more: up to this much on two shared cores.
TYPICAL_SIGMA = 0.10


@dataclass(frozen=True, slots=True)
class Rules:
    """``threshold``: the loss that may be, as a share of the baseline's speedup. ``confidence``: one-sided."""

    threshold: float = 0.05
    confidence: float = 0.99

    def __post_init__(self) -> None:
        if not 0.0 < self.threshold < 1.0:
            raise UsageError(f"threshold={self.threshold!r}: accepted: above 0 and below 1, such as 0.05")
        if not 0.5 < self.confidence < 1.0:
            raise UsageError(f"confidence={self.confidence!r}: accepted: above 0.5 and below 1, such as 0.99")

    @property
    def log_loss(self) -> float:
        """The threshold as a change of the logarithm: a negative number."""
        return math.log1p(-self.threshold)


@dataclass(frozen=True, slots=True)
class Variation:
    """How much a speedup moves between runs of the same code: a relative standard deviation.

    ``freedom``: degrees of freedom of the estimate, infinite where it is taken as given. ``source`` says whose it is.
    """

    sigma: float
    freedom: float
    source: str


#: What is taken where there is no calibration.
UNCALIBRATED = Variation(DEFAULT_SIGMA, math.inf, f"default ± {DEFAULT_SIGMA:.1%}, not calibrated on this machine")
_UNCALIBRATED_TYPICAL = Variation(
    TYPICAL_SIGMA, math.inf, f"default ± {TYPICAL_SIGMA:.0%} for typical calls, not calibrated on this machine"
)
#: The variation between runs of a figure of a benchmark, which is given by its full name.
VariationOf = Callable[[str, Figure], Variation]


def uncalibrated(_name: str, figure: Figure) -> Variation:
    """The variation of any benchmark where there is no calibration."""
    return UNCALIBRATED if figure == "fastest" else _UNCALIBRATED_TYPICAL


@dataclass(frozen=True, slots=True)
class Change:
    """A change: ``interval`` is that of new / base - 1.

    ``p_loss`` and ``p_beyond``: how likely a change that looks at least as bad is where there is no loss, and where
    the loss is the threshold. ``more`` says what it would take to tell, where it cannot be told.
    """

    interval: Interval
    verdict: ChangeVerdict
    p_loss: float
    p_beyond: float
    #: Standard error of the logarithm, and the degrees of freedom.
    error: float
    freedom: float
    more: str | None = None


def change_between(base: LogSpeedup, new: LogSpeedup, variation: Variation, rules: Rules) -> Change:
    """The change from ``base`` to ``new``."""
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
    """What a difference of logarithms with this standard error and these degrees of freedom comes to."""
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
        float(t.cdf(difference / error, freedom)),
        float(t.cdf((difference - rules.log_loss) / error, freedom)),
        error,
        freedom,
    )


def _pairs_to_tell(base: LogSpeedup, new: LogSpeedup, variation: Variation, change: Change, rules: Rules) -> str:
    """How many times the pairs of both runs would make the interval as narrow as the threshold."""
    from scipy.stats import t

    quantile = float(t.ppf(rules.confidence, change.freedom))
    room = (-rules.log_loss / quantile) ** 2 - 2.0 * variation.sigma**2
    if room <= 0.0:
        least = -math.expm1(-quantile * math.sqrt(2.0) * variation.sigma)
        return (
            f"no number of pairs is enough: the speedup moves by ± {variation.sigma:.1%} from run to run "
            f"({variation.source}), so that one run against one tells of losses of {least:.1%} and more; compare "
            "several runs with harness compare --ab, or calibrate"
        )
    factor = (base.error**2 + new.error**2) / room
    more = max(1, math.ceil((factor - 1.0) * new.pairs))
    return f"about {more} more pairs than {new.pairs}, in the baseline too"
