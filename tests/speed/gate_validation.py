"""Validates the gate on runs with a known truth: the same code, or a planted slowdown.

A gate at a threshold of 5 % fails on a proven loss of *more than* 5 %, so it lets a planted loss of exactly 5 % pass:
with 99 % confidence, 1 % of such comparisons fail, however long they measure. Two outcomes are therefore counted:

- ``worse``: a loss is established, because the 99 % one-sided interval of one of the two figures lies below 0. The
  false alarms on the same code are counted beside it.
- the gate's failure, at thresholds of 5 % and 2 %. To stop losses of 5 %, the threshold must be smaller by the
  uncertainty of the measurement; 2 % is an example.

Each comparison is judged by the variation between ``CALIBRATION_RUNS`` *other* runs of the same code, as after a
calibration.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles

from harness.speed.baseline import SavedRun
from harness.speed.calibration import exact_interval, variation_between
from harness.speed.change import Rules, Variation, uncalibrated
from harness.speed.estimate import Figure, log_speedup, paired_speedup, relative_half_width, unpaired_speedup
from harness.speed.gate import FigureChange, judge
from harness.speed.record import SpeedupRecord

#: Fewer than the default of ``harness calibrate``, with which smaller losses show.
CALIBRATION_RUNS = 12
#: The limit of ``--benchmark-compare-fail=median:5%``.
MEDIAN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Count:
    """A count of comparisons, with the exact 95 % interval of the share."""

    what: str
    found: int
    of: int

    def __str__(self) -> str:
        lower, upper = exact_interval(self.found, self.of)
        return f"{self.found} of {self.of} ({self.found / self.of:.1%}, 95 % interval {lower:.1%} to {upper:.1%})"


@dataclass(frozen=True, slots=True)
class Widths:
    """Quartiles of the ratio of unpaired to paired interval widths."""

    lower: float
    middle: float
    upper: float
    records: int


def around(count: int, seed: int) -> list[tuple[int, int]]:
    """Pair the runs in one random cycle: each is baseline once and judged once.

    Neighbours in time would hide a drift between runs.
    """
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return list(zip(order, [*order[1:], order[0]], strict=True))


def count_same_code(runs: Sequence[SavedRun], thresholds: Sequence[float], seed: int = 0) -> list[Count]:
    """Count false alarms on the same code."""
    pairs = around(len(runs), seed)
    return _counts([(runs[i], runs[j], _others(runs, (i, j), seed)) for i, j in pairs], thresholds)


def count_planted(
    planted: Sequence[SavedRun], same: Sequence[SavedRun], thresholds: Sequence[float], seed: int = 0
) -> list[Count]:
    """Count found losses: each planted run against a random run of the unchanged code."""
    draw = random.Random(seed)
    drawn = [draw.randrange(len(same)) for _ in planted]
    return _counts(
        [(same[i], new, _others(same, (i,), seed)) for i, new in zip(drawn, planted, strict=True)], thresholds
    )


def planted_loss(planted: Sequence[SavedRun], same: Sequence[SavedRun]) -> float:
    """Estimate the planted loss as a share, from all samples: the median over the benchmarks."""
    names = same[0].records.keys()
    return 1.0 - median(_speedup(planted, name) / _speedup(same, name) for name in names)


def interval_widths(runs: Sequence[SavedRun]) -> Widths:
    """Compare paired with unpaired intervals on these runs."""
    ratios = []
    for run in runs:
        for record in run.records.values():
            paired = paired_speedup(record.single_ns, record.parallel_ns)
            unpaired = unpaired_speedup(record.single_ns, record.parallel_ns)
            ratios.append(relative_half_width(unpaired) / relative_half_width(paired))
    lower, middle, upper = quantiles(ratios, n=4)
    return Widths(lower, middle, upper, len(ratios))


def median_regressed(base: SpeedupRecord, new: SpeedupRecord) -> bool:
    """Apply ``--benchmark-compare-fail=median:5%``, which only looks at one side's times."""
    return median(new.parallel_ns) / median(base.parallel_ns) - 1.0 > MEDIAN_SHARE


def _others(runs: Sequence[SavedRun], without: tuple[int, ...], seed: int) -> list[SavedRun]:
    left = [run for index, run in enumerate(runs) if index not in without]
    draw = random.Random(f"{seed}, {without}")
    return draw.sample(left, min(CALIBRATION_RUNS, len(left)))


def _counts(
    comparisons: Sequence[tuple[SavedRun, SavedRun, Sequence[SavedRun]]], thresholds: Sequence[float]
) -> list[Count]:
    calibrated = {share: _all_judged(comparisons, share, calibrated=True) for share in thresholds}
    default = _all_judged(comparisons, thresholds[0], calibrated=False)
    first = calibrated[thresholds[0]]
    total = len(first)
    medians = sum(
        median_regressed(base.records[name], new.records[name]) for base, new, _ in comparisons for name in base.records
    )
    return [
        Count("worse: a loss is established", sum("worse" in _verdicts(rows) for rows in first), total),
        *(
            Count(f"the gate fails at {share:.0%}", sum(_fails(rows) for rows in judged), total)
            for share, judged in calibrated.items()
        ),
        Count(f"the gate fails at {thresholds[0]:.0%}, not calibrated", sum(map(_fails, default)), total),
        Count("cannot tell", sum(_verdicts(rows) == {"cannot tell"} for rows in first), total),
        Count(f"--benchmark-compare-fail=median:{MEDIAN_SHARE:.0%}", medians, total),
    ]


def _all_judged(
    comparisons: Sequence[tuple[SavedRun, SavedRun, Sequence[SavedRun]]], threshold: float, *, calibrated: bool
) -> list[tuple[FigureChange, ...]]:
    """Judge all figures of each benchmark of each comparison."""
    found: list[tuple[FigureChange, ...]] = []
    for base, new, others in comparisons:
        by_others = partial(_variation, others) if calibrated else uncalibrated
        judged = judge(base, new.records, new.fingerprint, Rules(threshold), by_others).judged
        found += [tuple(each for each in judged if each.name == name) for name in base.records]
    return found


def _fails(rows: tuple[FigureChange, ...]) -> bool:
    """Whether the gate fails, or would if a second measurement confirmed the first."""
    return any(each.fails or each.unconfirmed for each in rows)


def _verdicts(rows: tuple[FigureChange, ...]) -> set[str]:
    return {each.change.verdict for each in rows}


def _variation(others: Sequence[SavedRun], name: str, figure: Figure) -> Variation:
    logs = [log_speedup(run.records[name].single_ns, run.records[name].parallel_ns, figure) for run in others]
    return Variation(variation_between(logs), len(logs) - 1, "other runs of the same code")


def _speedup(runs: Sequence[SavedRun], name: str) -> float:
    return median(
        math.exp(log_speedup(run.records[name].single_ns, run.records[name].parallel_ns).value) for run in runs
    )
