"""Calibrates the gate from runs of the same code on this machine: its false alarms, and the smallest loss it finds.

A speedup varies between runs by more than the interval of one run. The variance of the logarithms over several runs of
the same code is the variance between runs plus that within a run; subtracting the mean square of the standard errors
leaves ``sigma²`` (the method of moments of a random-effects model; never below 0).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from harness.atomic_file import write_atomically
from harness.errors import InvalidCalibration, UsageError
from harness.plural import plural
from harness.records import Fingerprint
from harness.speed.baseline import SavedRun
from harness.speed.change import Change, Rules, Variation, VariationOf, change_between, uncalibrated
from harness.speed.comparable import differences, machine_key
from harness.speed.estimate import FIGURES, Figure, LogSpeedup, log_speedup
from harness.stored import parse_versioned, read_json

CALIBRATION_SCHEMA_VERSION = 1
#: Each comparison is judged by the variation of the other runs, which must be two at least.
FEWEST_RUNS = 4
#: Share of the comparisons in which the smallest loss is found.
POWER = 0.9
#: The folder of baselines and calibrations of a project, relative to where it is run.
DEFAULT_FOLDER = Path(".benchmarks")
CALIBRATION_FILE = "calibration.json"


@dataclass(frozen=True, slots=True)
class BenchmarkVariation:
    """The variation of one benchmark between runs.

    ``sigma`` and ``typical_sigma`` are the relative standard deviations of the speedups of its fastest and typical
    calls, ``freedom`` their degrees of freedom, ``speedup`` is that of the fastest calls.
    """

    sigma: float
    typical_sigma: float
    freedom: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A stored calibration.

    ``false_alarms`` of ``comparisons`` of the same code failed at ``threshold``; ``false_alarm_most`` is the upper end
    of the exact two-sided 95 % interval (Clopper and Pearson 1934). ``smallest_loss`` is the share of the speedup whose
    loss is established in 90 % of the comparisons. Every pair of ``runs`` is a comparison, so they are not independent.
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
        """Give the variation of a benchmark; if it was not calibrated, that of all together."""
        found = self.benchmarks.get(name)
        if found is not None:
            sigma = found.sigma if figure == "fastest" else found.typical_sigma
            return Variation(sigma, found.freedom, f"calibrated {self.date}")
        pooled = self.pooled_sigma if figure == "fastest" else self.pooled_typical_sigma
        return Variation(pooled, self.pooled_freedom, f"calibrated {self.date} on other benchmarks")

    @property
    def date(self) -> str:
        """The date, as YYYY-MM-DD."""
        return self.made_at[:10]

    @property
    def line(self) -> str:
        """The line that every comparison shows."""
        return (
            f"on this machine: {plural(self.false_alarms, 'false alarm')} in {plural(self.comparisons, 'comparison')} "
            f"at a threshold of {self.threshold:.1%} (the rate is at most {self.false_alarm_most:.1%}); a loss of "
            f"{self.smallest_loss:.1%} is found with a probability of {POWER:.0%}; calibrated {self.date} from "
            f"{plural(self.runs, 'run')}"
        )


def calibrate(runs: Sequence[SavedRun], rules: Rules, *, made_at: str) -> Calibration:
    """Calibrate from runs of the same code in separate processes. ``made_at`` is an ISO 8601 time.

    Only benchmarks that gate in all runs count. Raise UsageError for fewer than 4 runs, runs of different machines, or
    no benchmark that gates in all of them.
    """
    import numpy as np

    if len(runs) < FEWEST_RUNS:
        raise UsageError(
            f"{plural(len(runs), 'run')} cannot make a calibration; accepted: {FEWEST_RUNS} or more (20 give "
            "a better one)"
        )
    first = runs[0].fingerprint
    for run in runs:
        if differ := differences(first, run.fingerprint):
            fields = "; ".join(map(str, differ))
            raise UsageError(f"{run.origin}: the machine or software differs from the first run: {fields}")
    assert first is not None  # an unknown machine differs from itself
    names = [name for name in runs[0].records if all(name in run.records and run.records[name].gates for run in runs)]
    if not names:
        raise UsageError(
            "no benchmark was measured in every run on devices that can show a speedup; give a --command whose tests "
            "use the fixture `speedup`"
        )
    measured = {
        name: [[log_speedup(*run.records[name].times, figure) for run in runs] for figure in FIGURES] for name in names
    }
    benchmarks = {name: _variation(*figures) for name, figures in measured.items()}
    comparisons, alarms, losses = _all_pairs(measured, rules)
    return Calibration(
        made_at=made_at,
        key=machine_key(first),
        runs=len(runs),
        benchmarks=benchmarks,
        pooled_sigma=math.sqrt(mean(each.sigma**2 for each in benchmarks.values())),
        pooled_typical_sigma=math.sqrt(mean(each.typical_sigma**2 for each in benchmarks.values())),
        pooled_freedom=sum(each.freedom for each in benchmarks.values()),
        threshold=rules.threshold,
        confidence=rules.confidence,
        comparisons=comparisons,
        false_alarms=alarms,
        false_alarm_most=exact_interval(alarms, comparisons)[1],
        smallest_loss=float(np.quantile(losses, POWER, method="inverted_cdf")),
    )


def exact_interval(found: int, of: int) -> tuple[float, float]:
    """Compute the exact two-sided 95 % interval of a share (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    interval = binomtest(found, of).proportion_ci(0.95, method="exact")
    return float(interval.low), float(interval.high)


def variation_between(logs: Sequence[LogSpeedup]) -> float:
    """Compute the standard deviation of a log speedup between runs, without the variation within a run."""
    import numpy as np

    total = float(np.var([each.value for each in logs], ddof=1))
    return math.sqrt(max(0.0, total - float(np.mean([each.error**2 for each in logs]))))


def _variation(fastest: Sequence[LogSpeedup], typical: Sequence[LogSpeedup]) -> BenchmarkVariation:
    speedup = math.exp(mean(each.value for each in fastest))
    return BenchmarkVariation(variation_between(fastest), variation_between(typical), len(fastest) - 1, speedup)


def _all_pairs(measured: Mapping[str, Sequence[Sequence[LogSpeedup]]], rules: Rules) -> tuple[int, int, list[float]]:
    """Compare every run with every later one: the numbers of comparisons and false alarms, and the losses shown.

    Each comparison is judged by the variation of the *other* runs, so that no run excuses itself.
    """
    alarms, losses = 0, []
    for figures in measured.values():
        for i, j in itertools.combinations(range(len(figures[0])), 2):
            changes = [_change_by_the_others(logs, i, j, rules) for logs in figures]
            alarms += any(change.p_beyond <= 1.0 - rules.confidence for change in changes)
            # A shift of all log ratios shifts the interval; a loss is established once its upper end is below 0.
            upper = min(change.interval.upper for change in changes)
            losses.append(max(0.0, -math.expm1(-math.log1p(upper))))
    return len(losses), alarms, losses


def _change_by_the_others(logs: Sequence[LogSpeedup], i: int, j: int, rules: Rules) -> Change:
    others = [each for index, each in enumerate(logs) if index not in (i, j)]
    variation = Variation(variation_between(others), len(others) - 1, "the other runs")
    return change_between(logs[i], logs[j], variation, rules)


def variation_of(calibration: Calibration | None) -> VariationOf:
    """Give the variation of benchmarks: the calibration's, or the default without one."""
    return uncalibrated if calibration is None else calibration.variation_of


def save_calibration(calibration: Calibration, folder: Path) -> Path:
    """Write it below ``folder``, and return the path. Raise InvalidCalibration if the folder cannot be written."""
    path = folder / calibration.key / CALIBRATION_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(calibration), indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise InvalidCalibration(path, f"cannot be written: {error.strerror or error}") from error
    return path


def load_calibration(folder: Path, fingerprint: Fingerprint | None) -> Calibration | None:
    """Load the calibration of the machine with this fingerprint from ``folder``, or ``None`` without one.

    Raise InvalidCalibration if it is damaged, newer, or of another machine.
    """
    if fingerprint is None:
        return None
    key = machine_key(fingerprint)
    path = folder / key / CALIBRATION_FILE
    if not path.exists():
        return None
    try:
        calibration = parse_versioned(read_json(path), Calibration, CALIBRATION_SCHEMA_VERSION)
    except ValueError as error:
        raise InvalidCalibration(path, str(error)) from error
    if calibration.key != key:
        raise InvalidCalibration(path, f"was made on another machine ({calibration.key})")
    return calibration
