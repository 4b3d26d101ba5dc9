"""The gate: judges all benchmarks of a run against a baseline, with one verdict.

It compares two figures (:mod:`harness.speed.estimate`). A benchmark fails only if one of them meets three conditions:
the loss is beyond the threshold at the stated confidence, also after all p-values are corrected by Benjamini and
Hochberg, and the second measurement of the benchmark in the same run confirms it. Without a second measurement (in a
file recorded without a gate) the verdict is UNKNOWN, with a hint how to confirm the loss. A second measurement that
neither confirms the loss nor excludes it leaves the benchmark undecided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.devices.name import DeviceName
from harness.errors import InvalidDeviceName, UsageError
from harness.plural import plural
from harness.records import Fingerprint, Verdict
from harness.speed.baseline import SavedRun
from harness.speed.change import (
    UNCALIBRATED,
    Change,
    Rules,
    Variation,
    VariationOf,
    change_between,
    judged_change,
    uncalibrated,
)
from harness.speed.comparable import Difference, differences
from harness.speed.estimate import FIGURES, Figure, log_speedup
from harness.speed.record import SpeedupRecord, Times

Version = Literal["A", "B"]
#: Devices listed by name.
_MOST_DEVICES = 8


@dataclass(frozen=True, slots=True)
class FigureChange:
    """The change of one figure of a benchmark, by the first and the second measurement.

    ``base`` and ``new`` are speedups. ``p_corrected`` is the p-value of a loss beyond the threshold. ``confirmed`` is
    ``None`` without a second measurement.
    """

    name: str
    base: float
    new: float
    change: Change
    second: Change | None = None
    figure: Figure = "fastest"
    p_corrected: float = 1.0
    confirmed: bool | None = None
    fails: bool = False
    #: Beyond the threshold by the only measurement.
    unconfirmed: bool = False
    #: Beyond the threshold by the first measurement; the second is too imprecise to confirm or to exclude it.
    imprecise: bool = False
    #: The second measurement excludes a loss beyond the threshold.
    contradicted: bool = False
    #: Whether each side is several runs, which need no second measurement.
    rounds: bool = False

    @property
    def what(self) -> str:
        """The benchmark, and the figure if it is not the fastest calls."""
        return self.name if self.figure == "fastest" else f"{self.name} (typical calls)"


@dataclass(frozen=True, slots=True)
class Judgement:
    """All benchmarks, and the overall verdict.

    FAIL: a loss. WARN: all were compared, and none precisely enough to tell. UNKNOWN: not comparable, nothing to
    compare, or a loss that was measured only once.
    """

    verdict: Verdict
    reason: str
    rules: Rules
    baseline: str
    variation: str
    judged: tuple[FigureChange, ...] = ()
    #: Only in the baseline (or no longer gating); only in the new run.
    missing: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    #: Benchmarks that the gate may not judge, with the reason.
    ungated: tuple[tuple[str, str], ...] = ()
    differences: tuple[Difference, ...] = ()


def suspects(name: str, base: SpeedupRecord, new: SpeedupRecord, variation_of: VariationOf, rules: Rules) -> bool:
    """Whether one benchmark by itself shows a loss beyond the threshold, and needs a second measurement.

    The correction for the number of benchmarks only raises p-values, so no other benchmark can fail.
    """
    if _why_ungated(base, new) is not None:
        return False
    changes = (_change(base, new.times, figure, variation_of(name, figure), rules) for figure in FIGURES)
    return any(change.p_beyond <= 1.0 - rules.confidence for change in changes)


def judge(
    base: SavedRun,
    records: Mapping[str, SpeedupRecord],
    fingerprint: Fingerprint | None,
    rules: Rules,
    variation_of: VariationOf = uncalibrated,
    *,
    variation: str = UNCALIBRATED.line,
) -> Judgement:
    """Judge ``records``, measured on the machine with ``fingerprint``, against ``base``.

    ``variation`` describes ``variation_of`` in words.
    """
    differ = differences(base.fingerprint, fingerprint)
    judgement = Judgement(Verdict.UNKNOWN, "", rules, base.origin, variation, differences=differ)
    if differ:
        return replace(
            judgement, reason=f"not comparable: the machine or software differs; {'; '.join(map(str, differ))}"
        )
    judged, ungated = [], []
    for name in sorted(base.records.keys() & records.keys()):
        before, now = base.records[name], records[name]
        if (why := _why_ungated(before, now)) is not None:
            ungated.append((name, why))
        else:
            judged += [_compared(name, before, now, figure, variation_of(name, figure), rules) for figure in FIGURES]
    # A benchmark that no longer gates counts as missing: it must not vanish silently.
    lost = {name for name, _ in ungated if base.records[name].gates}
    missing = tuple(sorted((base.records.keys() - records.keys()) | lost))
    added = tuple(sorted(records.keys() - base.records.keys()))
    judgement = replace(judgement, missing=missing, new=added, ungated=tuple(ungated))
    return conclude(judgement, judged)


def conclude(judgement: Judgement, judged: Sequence[FigureChange]) -> Judgement:
    """Correct for the number of benchmarks, and set the verdict of ``judgement``."""
    corrected = _corrected(judged, judgement.rules)
    names = {each.name for each in judged}
    failed = _benchmarks(each for each in corrected if each.fails)
    unconfirmed = _benchmarks(each for each in corrected if each.unconfirmed)
    told = {each.name for each in judged if each.change.verdict != "cannot tell"}
    undecided = len(names - (told - {each.name for each in corrected if each.imprecise}))
    beyond = f"beyond {judgement.rules.threshold:.1%}"
    measured = plural(len(names), "benchmark")
    verdict = Verdict.UNKNOWN
    if failed:
        verdict = Verdict.FAIL
        reason = f"a loss of speedup {beyond} in {len(failed)} of {measured}: {', '.join(failed)}"
    elif unconfirmed:
        reason = (
            f"a loss {beyond} in {plural(len(unconfirmed), 'benchmark')}, measured only once: "
            f"{', '.join(unconfirmed)}; to confirm the loss, record the new run with --harness-speedup-twice"
        )
    elif not judged:
        reason = "nothing was compared: the runs have no benchmark in common that the gate can judge"
    elif judgement.missing:
        reason = (
            f"the baseline has {plural(len(judgement.missing), 'benchmark')} that this run did not measure or that the "
            f"gate can no longer judge: {', '.join(judgement.missing)}; measure every benchmark of the "
            "baseline, or record a new baseline"
        )
    elif undecided == len(names):
        rounds = any(each.rounds for each in judged)
        settles = "more --rounds would settle it" if rounds else "measure longer, or run `harness calibrate`"
        verdict = Verdict.WARN
        reason = f"cannot tell: no loss {beyond} was shown in {measured}, and none is ruled out; {settles}"
    else:
        verdict = Verdict.PASS
        reason = f"no loss of speedup {beyond} was shown in {measured}"
        reason += f"; {undecided} undecided" if undecided else ""
    return replace(judgement, judged=corrected, verdict=verdict, reason=reason)


def _benchmarks(rows: Iterable[FigureChange]) -> list[str]:
    """List each benchmark once, with the figure if it is not the fastest calls."""
    named: dict[str, str] = {}
    for each in rows:
        named.setdefault(each.name, each.what)
    return list(named.values())


def _compared(
    name: str, base: SpeedupRecord, new: SpeedupRecord, figure: Figure, variation: Variation, rules: Rules
) -> FigureChange:
    before, now = (math.exp(log_speedup(*record.times, figure).value) for record in (base, new))
    change = _change(base, new.times, figure, variation, rules)
    second = _change(base, new.second_times, figure, variation, rules) if new.second_single_ns else None
    return FigureChange(name, before, now, change, second, figure)


def _change(base: SpeedupRecord, new: Times, figure: Figure, variation: Variation, rules: Rules) -> Change:
    return change_between(log_speedup(*base.times, figure), log_speedup(*new, figure), variation, rules)


def _corrected(judged: Sequence[FigureChange], rules: Rules) -> tuple[FigureChange, ...]:
    from scipy.stats import false_discovery_control

    if not judged:
        return ()
    alpha = 1.0 - rules.confidence
    found = []
    corrected = false_discovery_control([each.change.p_beyond for each in judged], method="bh")
    for each, p_corrected in zip(judged, (float(p) for p in corrected), strict=True):
        confirmed = None if each.second is None else each.second.p_beyond <= alpha
        beyond = p_corrected <= alpha
        fails = beyond and (confirmed is True or each.rounds)
        contradicted = each.second is not None and each.second.interval.lower >= -rules.threshold
        found.append(
            replace(
                each,
                p_corrected=p_corrected,
                confirmed=confirmed,
                fails=fails,
                unconfirmed=beyond and confirmed is None and not each.rounds,
                imprecise=beyond and confirmed is False and not (fails or contradicted),
                contradicted=contradicted,
            )
        )
    return tuple(found)


def _why_ungated(base: SpeedupRecord, new: SpeedupRecord) -> str | None:
    for record in (base, new):
        if not record.gates:
            return f"not judged: {record.label}"
    if base.devices != new.devices:
        return f"not judged: the devices differ: {_listed(base.devices)} before; {_listed(new.devices)} now"
    return None


def _listed(devices: Sequence[str]) -> str:
    left_out = len(devices) - _MOST_DEVICES
    return ", ".join(map(_short, devices[:_MOST_DEVICES])) + (f" and {left_out} more" if left_out > 0 else "")


def _short(device: str) -> str:
    """The short name; a file may also contain what is no name."""
    try:
        return DeviceName.parse(device).short
    except InvalidDeviceName:
        return device


def order_of(rounds: int) -> tuple[Version, ...]:
    """Order the versions: ``rounds`` times A B B A. Raise UsageError for fewer than one round."""
    if rounds < 1:
        raise UsageError(f"--rounds {rounds}; accepted: 1 or more (each round runs A, B, B, A)")
    return ("A", "B", "B", "A") * rounds


def judge_rounds(a_runs: Sequence[SavedRun], b_runs: Sequence[SavedRun], rules: Rules) -> Judgement:
    """Judge the runs of B against those of A, at least two of each, each in a process of its own: A B B A.

    Only benchmarks that gate in all runs count. The runs show the variation between runs themselves, so no calibration
    and no second measurement is needed. Each run is one value, the logarithm of its speedup; the two sets are compared
    by Student's t test with one variance, because it is the same machine, minutes apart. A B B A gives both versions
    the same mean time, so a steady drift of the machine is no difference between them.
    """
    runs = (*a_runs, *b_runs)
    baseline = f"A ({len(a_runs)} runs) alternating with B ({len(b_runs)} runs)"
    judgement = Judgement(Verdict.UNKNOWN, "", rules, baseline, "variation between runs: measured in these runs")
    for run in runs:
        if differ := differences(runs[0].fingerprint, run.fingerprint):
            fields = "; ".join(map(str, differ))
            reason = f"not comparable: the machine or software differs between the runs; {fields}"
            return replace(judgement, reason=reason, differences=differ)
    in_all = set.intersection(*(set(run.records) for run in runs))
    in_a, in_b = (set().union(*(run.records for run in part)) for part in (a_runs, b_runs))
    shared = [(name, run.records[name]) for run in runs for name in in_all]
    ungated = {name: f"not judged: {record.label}" for name, record in shared if not record.gates}
    judged = [
        judged_rounds(name, _values(a_runs, name, figure), _values(b_runs, name, figure), rules, figure)
        for name in sorted(in_all - ungated.keys())
        for figure in FIGURES
    ]
    judgement = replace(
        judgement,
        missing=tuple(sorted(in_a - in_all)),
        new=tuple(sorted(in_b - in_a)),
        ungated=tuple(sorted(ungated.items())),
    )
    return conclude(judgement, judged)


def judged_rounds(
    name: str, a_values: Sequence[float], b_values: Sequence[float], rules: Rules, figure: Figure = "fastest"
) -> FigureChange:
    """Judge one figure of a benchmark from its logarithms, one value per run."""
    import numpy as np
    from scipy.stats import t, ttest_ind

    if np.ptp(a_values) == 0.0 and np.ptp(b_values) == 0.0:
        raise UsageError(
            f"{name}: all runs of A have exactly the same speedup, and so have all runs of B, which never happens in "
            "real measurements; let the commands measure in every run"
        )
    found = ttest_ind(b_values, a_values)
    difference = float(np.mean(b_values) - np.mean(a_values))
    low, high = found.confidence_interval(0.95)
    freedom = float(found.df)
    error = float(high - low) / 2.0 / float(t.ppf(0.975, freedom))
    change = judged_change(difference, error, freedom, rules)
    if change.verdict == "cannot tell":
        # The error falls with the square root of the number of rounds.
        factor = (error * float(t.ppf(rules.confidence, freedom)) / -rules.log_loss) ** 2
        change = replace(change, more=f"about {math.ceil(factor * 10) / 10:g} times as many rounds are needed")
    base, new = (math.exp(float(np.mean(values))) for values in (a_values, b_values))
    return FigureChange(name, base, new, change, figure=figure, rounds=True)


def _values(runs: Sequence[SavedRun], name: str, figure: Figure) -> list[float]:
    return [log_speedup(*run.records[name].times, figure).value for run in runs]
