"""What runs of the same code on this machine say of the gate: how often it cries wolf, and what it finds.

A speedup varies between runs by more than the interval of one run shows. Of several runs of the same code, the
variance of the logarithms is that between runs plus that within one: what is left of it after the mean square of the
standard errors is ``sigma²`` (the method of moments of a random-effects model; never below 0).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.speed.baseline import SavedRun
from harness.speed.change import Change, Rules, Variation, VariationOf, change_between, uncalibrated
from harness.speed.comparable import differences, machine_key
from harness.speed.figures import FIGURES, Figure, LogSpeedup, log_speedup

CALIBRATION_SCHEMA_VERSION = 1
#: Each comparison is judged by the variation of the other runs, of which two are the fewest that have one.
FEWEST_RUNS = 4
#: The share of comparisons in which the smallest loss is found.
POWER = 0.9


@dataclass(frozen=True, slots=True)
class BenchmarkVariation:
    """How one benchmark moves between runs.

    ``sigma`` and ``typical_sigma`` are the relative standard deviations of the speedups of its fastest and of its
    typical calls, ``freedom`` their degrees of freedom, ``speedup`` that of the fastest calls.
    """

    sigma: float
    typical_sigma: float
    freedom: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration as it is stored.

    ``false_alarms`` of ``comparisons`` of the same code failed at ``threshold``; ``false_alarm_most`` is the upper end
    of the exact two-sided 95 % interval (Clopper and Pearson 1934). ``smallest_loss``: the loss, as a share, that is
    established in 90 % of the comparisons; ``None`` where the comparisons show none that small. Every pair of runs is
    one comparison, so that the comparisons are not independent: ``runs`` is how much there is to them.
    """

    made_at: str
    key: str
    runs: int
    benchmarks: dict[str, BenchmarkVariation]
    pooled_sigma: float
    pooled_typical_sigma: float
    pooled_freedom: int
    threshold: float
    confidence: float
    comparisons: int
    false_alarms: int
    false_alarm_most: float
    smallest_loss: float
    schema_version: int = CALIBRATION_SCHEMA_VERSION

    def variation_of(self, name: str, figure: Figure = "fastest") -> Variation:
        """That of a benchmark; of one that was not calibrated, that of all together."""
        found = self.benchmarks.get(name)
        if found is not None:
            sigma = found.sigma if figure == "fastest" else found.typical_sigma
            return Variation(sigma, found.freedom, f"calibrated {self.date}")
        pooled = self.pooled_sigma if figure == "fastest" else self.pooled_typical_sigma
        return Variation(pooled, self.pooled_freedom, f"calibrated {self.date} on other benchmarks")

    @property
    def date(self) -> str:
        """The day it was made, as YYYY-MM-DD."""
        return self.made_at[:10]

    @property
    def line(self) -> str:
        """What every comparison says of it."""
        return (
            f"on this machine: false alarms {self.false_alarms} of {self.comparisons} at a threshold of "
            f"{self.threshold:.1%} (at most {self.false_alarm_most:.1%}), smallest loss found with {POWER:.0%} power "
            f"{self.smallest_loss:.1%}, calibrated {self.date} from {self.runs} runs"
        )


def calibrate(runs: Sequence[SavedRun], rules: Rules, *, made_at: str) -> Calibration:
    """Calibrate from runs of the same code, each of a process of its own. ``made_at`` is an ISO 8601 time.

    Benchmarks that gate in all runs count.

    Raises:
        UsageError: fewer than 4 runs, runs of different machines, or no benchmark that gates in all of them.
    """
    if len(runs) < FEWEST_RUNS:
        raise UsageError(f"{len(runs)} run(s) calibrate nothing; accepted: at least {FEWEST_RUNS}, and 20 are better")
    first = runs[0].fingerprint
    for run in runs:
        if differ := differences(first, run.fingerprint):
            fields = "; ".join(map(str, differ))
            raise UsageError(f"{run.origin}: another machine or software than the first run: {fields}")
    assert first is not None  # an unknown machine differs from itself
    names = [name for name in runs[0].records if all(name in run.records and run.records[name].gates for run in runs)]
    if not names:
        raise UsageError("no benchmark that gates is in all of the runs; give a command that measures with speedup")
    measured = {
        name: [
            [log_speedup(run.records[name].single_ns, run.records[name].parallel_ns, figure) for run in runs]
            for figure in FIGURES
        ]
        for name in names
    }
    benchmarks = {name: _variation(*figures) for name, figures in measured.items()}
    comparisons, alarms, losses = _all_pairs(measured, rules)
    return Calibration(
        made_at=made_at,
        key=machine_key(first),
        runs=len(runs),
        benchmarks=benchmarks,
        pooled_sigma=_root_mean_square([each.sigma for each in benchmarks.values()]),
        pooled_typical_sigma=_root_mean_square([each.typical_sigma for each in benchmarks.values()]),
        pooled_freedom=sum(each.freedom for each in benchmarks.values()),
        threshold=rules.threshold,
        confidence=rules.confidence,
        comparisons=comparisons,
        false_alarms=alarms,
        false_alarm_most=exact_interval(alarms, comparisons)[1],
        smallest_loss=_quantile(losses, POWER),
    )


def exact_interval(found: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval of a share (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    interval = binomtest(found, of).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def variation_between(logs: Sequence[LogSpeedup]) -> float:
    """The standard deviation between runs of the logarithm of a speedup, without what one run shows by itself."""
    import numpy as np

    total = float(np.var([each.value for each in logs], ddof=1))
    return math.sqrt(max(0.0, total - float(np.mean([each.error**2 for each in logs]))))


def _variation(fastest: Sequence[LogSpeedup], typical: Sequence[LogSpeedup]) -> BenchmarkVariation:
    speedup = math.exp(sum(each.value for each in fastest) / len(fastest))
    return BenchmarkVariation(variation_between(fastest), variation_between(typical), len(fastest) - 1, speedup)


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


def _all_pairs(measured: Mapping[str, Sequence[Sequence[LogSpeedup]]], rules: Rules) -> tuple[int, int, list[float]]:
    """Compare every run with every later one: how many comparisons, how many losses beyond the threshold that are not
    there, and for each comparison the loss that it would establish.

    Each is judged by the variation of the *other* runs: no run may tell how far off it is itself.
    """
    alarms, losses = 0, []
    for figures in measured.values():
        for i, j in itertools.combinations(range(len(figures[0])), 2):
            changes = [_change_by_the_others(logs, i, j, rules) for logs in figures]
            alarms += any(change.p_beyond <= 1.0 - rules.confidence for change in changes)
            # A shift of all log ratios moves the interval as a whole: the loss is established that takes its upper
            # end below 0.
            upper = min(change.interval.upper for change in changes)
            losses.append(max(0.0, -math.expm1(-math.log1p(upper))))
    return len(losses), alarms, losses


def _change_by_the_others(logs: Sequence[LogSpeedup], i: int, j: int, rules: Rules) -> Change:
    others = [each for index, each in enumerate(logs) if index not in (i, j)]
    variation = Variation(variation_between(others), len(others) - 1, "the other runs")
    return change_between(logs[i], logs[j], variation, rules)


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed."""
    import numpy as np

    return float(np.quantile(values, share, method="inverted_cdf"))


def variation_of(calibration: Calibration | None) -> VariationOf:
    """The variation of benchmarks: the calibration's, or the default where there is none."""
    return uncalibrated if calibration is None else calibration.variation_of
