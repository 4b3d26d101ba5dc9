"""How well the gate judges, counted on runs whose truth is known: the same code, or a slowdown that was planted.

What "found" means. A gate at a threshold of 5 % fails where a loss of *more than* 5 % is proven, so a planted loss of
5 % is what it is made to let pass: at the very threshold a test with 99 % confidence fails in 1 % of the comparisons,
by construction, however long it measures. "A loss of 5 % is found" therefore has two meanings, and both are counted:

- ``worse``: a loss is established, the interval of 99 % one-sided of one of the two figures lies below 0. It is what
  the table tells a user, and what tells whether the measurement is precise enough to see 5 % at all. Its false alarms
  are counted beside it, on the same code, because the two figures mean something together alone.
- the gate's failure, at thresholds of 5 % and of 2 %. Whoever wants losses of 5 % to stop a merge sets a threshold
  smaller than 5 % by as much as the measurement is uncertain; 2 % is an example of it.

Each comparison is judged by the variation between ``CALIBRATION_RUNS`` *other* runs of the same code under the same
conditions, as by somebody who calibrated this machine before.
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
from harness.speed.estimate import paired_speedup, relative_half_width, unpaired_speedup
from harness.speed.figures import Figure, log_speedup
from harness.speed.gate import Judged, judge
from harness.speed.record import SpeedupRecord

#: Fewer than ``harness calibrate`` makes by default: a machine calibrated with those shows smaller losses.
CALIBRATION_RUNS = 12
#: What ``--benchmark-compare-fail=median:5%`` lets pass.
MEDIAN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Count:
    """How many of so many comparisons, with the exact 95 % interval of the share."""

    what: str
    found: int
    of: int

    def __str__(self) -> str:
        lower, upper = exact_interval(self.found, self.of)
        return f"{self.found} of {self.of} ({self.found / self.of:.1%}, 95 % interval {lower:.1%} to {upper:.1%})"


@dataclass(frozen=True, slots=True)
class Widths:
    """How many times as wide as the paired interval the unpaired one is: quartiles over all records."""

    lower: float
    middle: float
    upper: float
    records: int


def around(count: int, seed: int) -> list[tuple[int, int]]:
    """Which run is compared with which: every run is a baseline once and judged once, in one random cycle.

    Neighbours in time would hide what drifts from run to run.
    """
    order = list(range(count))
    random.Random(seed).shuffle(order)  # noqa: S311 - an order, no secret
    return list(zip(order, [*order[1:], order[0]], strict=True))


def count_same_code(runs: Sequence[SavedRun], thresholds: Sequence[float], seed: int = 0) -> list[Count]:
    """False alarms: every comparison that says something is wrong says so of the same code."""
    pairs = around(len(runs), seed)
    return _counts([(runs[i], runs[j], _others(runs, (i, j), seed)) for i, j in pairs], thresholds)


def count_planted(
    planted: Sequence[SavedRun], same: Sequence[SavedRun], thresholds: Sequence[float], seed: int = 0
) -> list[Count]:
    """What is found: each planted run against a run of the unchanged code that is drawn for it."""
    draw = random.Random(seed)  # noqa: S311 - an order, no secret
    drawn = [draw.randrange(len(same)) for _ in planted]
    return _counts(
        [(same[i], new, _others(same, (i,), seed)) for i, new in zip(drawn, planted, strict=True)], thresholds
    )


def planted_loss(planted: Sequence[SavedRun], same: Sequence[SavedRun]) -> float:
    """The loss that was really planted, as a share, from all samples: the median over the benchmarks."""
    names = same[0].records.keys()
    return 1.0 - median(_speedup(planted, name) / _speedup(same, name) for name in names)


def interval_widths(runs: Sequence[SavedRun]) -> Widths:
    """What pairing is worth, on the samples of these runs."""
    ratios = []
    for run in runs:
        for record in run.records.values():
            paired = paired_speedup(record.single_ns, record.parallel_ns)
            unpaired = unpaired_speedup(record.single_ns, record.parallel_ns)
            ratios.append(relative_half_width(unpaired) / relative_half_width(paired))
    lower, middle, upper = quantiles(ratios, n=4)
    return Widths(lower, middle, upper, len(ratios))


def median_regressed(base: SpeedupRecord, new: SpeedupRecord) -> bool:
    """What ``--benchmark-compare-fail=median:5%`` says of the same samples: it knows one side's times alone."""
    return median(new.parallel_ns) / median(base.parallel_ns) - 1.0 > MEDIAN_SHARE


def _others(runs: Sequence[SavedRun], without: tuple[int, ...], seed: int) -> list[SavedRun]:
    left = [run for index, run in enumerate(runs) if index not in without]
    draw = random.Random(f"{seed}, {without}")  # noqa: S311 - an order, no secret
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
) -> list[tuple[Judged, ...]]:
    """For each benchmark of each comparison, all of its figures."""
    found: list[tuple[Judged, ...]] = []
    for base, new, others in comparisons:
        by_others = partial(_variation, others) if calibrated else uncalibrated
        judged = judge(base, new.records, new.fingerprint, Rules(threshold), by_others).judged
        found += [tuple(each for each in judged if each.name == name) for name in base.records]
    return found


def _fails(rows: tuple[Judged, ...]) -> bool:
    """Whether the gate fails; where nobody measured a second time, whether it would if that confirmed the first."""
    return any(each.fails or each.unconfirmed for each in rows)


def _verdicts(rows: tuple[Judged, ...]) -> set[str]:
    return {each.change.verdict for each in rows}


def _variation(others: Sequence[SavedRun], name: str, figure: Figure) -> Variation:
    logs = [log_speedup(run.records[name].single_ns, run.records[name].parallel_ns, figure) for run in others]
    return Variation(variation_between(logs), len(logs) - 1, "other runs of the same code")


def _speedup(runs: Sequence[SavedRun], name: str) -> float:
    return median(
        math.exp(log_speedup(run.records[name].single_ns, run.records[name].parallel_ns).value) for run in runs
    )
