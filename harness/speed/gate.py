"""The gate: judges all benchmarks of a run against a baseline, with one verdict.

It compares two figures (:mod:`harness.speed.figures`). A benchmark fails only if one of them meets three conditions:
the loss is beyond the threshold at the stated confidence, also after all p-values are corrected by Benjamini and
Hochberg, and the second measurement of the benchmark in the same run confirms it. Without a second measurement (in a
file recorded without a gate) the verdict is UNKNOWN, with a hint how to confirm the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.plural import plural
from harness.records import Fingerprint, Verdict
from harness.speed.baseline import SavedRun
from harness.speed.change import UNCALIBRATED, Change, Rules, Variation, VariationOf, change_between, uncalibrated
from harness.speed.comparable import Difference, differences
from harness.speed.figures import FIGURES, Figure, log_speedup
from harness.speed.record import SpeedupRecord

#: Times in ns of both sides.
_Times = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Judged:
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
    #: Whether each side is several runs, which need no second measurement.
    rounds: bool = False

    @property
    def what(self) -> str:
        """The benchmark, and the figure if it is not the fastest calls."""
        return self.name if self.figure == "fastest" else f"{self.name} (typical calls)"


@dataclass(frozen=True, slots=True)
class Judgement:
    """All benchmarks, and the overall verdict. FAIL: a loss. UNKNOWN: not comparable, or nothing to compare."""

    verdict: Verdict
    reason: str
    rules: Rules
    baseline: str
    variation: str
    judged: tuple[Judged, ...] = ()
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
    times = (new.single_ns, new.parallel_ns)
    changes = (_change(base, times, figure, variation_of(name, figure), rules) for figure in FIGURES)
    return any(change.p_beyond <= 1.0 - rules.confidence for change in changes)


def judge(
    base: SavedRun,
    records: Mapping[str, SpeedupRecord],
    fingerprint: Fingerprint | None,
    rules: Rules,
    variation_of: VariationOf = uncalibrated,
    *,
    variation: str = UNCALIBRATED.source,
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


def conclude(judgement: Judgement, judged: Sequence[Judged]) -> Judgement:
    """Correct for the number of benchmarks, and set the verdict of ``judgement``."""
    corrected = _corrected(judged, judgement.rules)
    judgement = replace(judgement, judged=corrected)
    names = {each.name for each in judged}
    failed = _benchmarks(each for each in corrected if each.fails)
    unconfirmed = _benchmarks(each for each in corrected if each.unconfirmed)
    if failed:
        return replace(
            judgement,
            verdict=Verdict.FAIL,
            reason=f"a loss of speedup beyond {judgement.rules.threshold:.1%} in {len(failed)} of "
            f"{plural(len(names), 'benchmark')}: {', '.join(failed)}",
        )
    if unconfirmed:
        return replace(
            judgement,
            reason=f"a loss beyond {judgement.rules.threshold:.1%} in a single measurement of "
            f"{plural(len(unconfirmed), 'benchmark')}: {', '.join(unconfirmed)}; record with "
            "--harness-speedup-twice to confirm it",
        )
    if not judged:
        return replace(judgement, reason="nothing was compared: no gating benchmark is in both runs")
    if judgement.missing:
        return replace(
            judgement,
            reason=f"the baseline has {plural(len(judgement.missing), 'benchmark')} that this run did "
            "not measure or that no longer gate: "
            f"{', '.join(judgement.missing)}; run them all, or record a new baseline",
        )
    open_ones = len(names - {each.name for each in judged if each.change.verdict != "cannot tell"})
    if open_ones == len(names):
        return replace(
            judgement, reason="no benchmark is precise enough to rule out a loss: measure longer or calibrate"
        )
    undecided = f"; {open_ones} undecided" if open_ones else ""
    return replace(
        judgement,
        verdict=Verdict.PASS,
        reason=f"no loss beyond {judgement.rules.threshold:.1%} established in "
        f"{plural(len(names), 'benchmark')}{undecided}",
    )


def _benchmarks(rows: Iterable[Judged]) -> list[str]:
    """List each benchmark once, with the figure if it is not the fastest calls."""
    named: dict[str, str] = {}
    for each in rows:
        named.setdefault(each.name, each.what)
    return list(named.values())


def _compared(
    name: str, base: SpeedupRecord, new: SpeedupRecord, figure: Figure, variation: Variation, rules: Rules
) -> Judged:
    first, again = (new.single_ns, new.parallel_ns), (new.second_single_ns, new.second_parallel_ns)
    before, now = (math.exp(log_speedup(*times, figure).value) for times in ((base.single_ns, base.parallel_ns), first))
    change = _change(base, first, figure, variation, rules)
    second = _change(base, again, figure, variation, rules) if new.second_single_ns else None
    return Judged(name, before, now, change, second, figure)


def _change(base: SpeedupRecord, new: _Times, figure: Figure, variation: Variation, rules: Rules) -> Change:
    return change_between(
        log_speedup(base.single_ns, base.parallel_ns, figure),
        log_speedup(*new, figure),
        variation,
        rules,
    )


def _corrected(judged: Sequence[Judged], rules: Rules) -> tuple[Judged, ...]:
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
        unconfirmed = beyond and confirmed is None and not each.rounds
        found.append(replace(each, p_corrected=p_corrected, confirmed=confirmed, fails=fails, unconfirmed=unconfirmed))
    return tuple(found)


def _why_ungated(base: SpeedupRecord, new: SpeedupRecord) -> str | None:
    for record in (base, new):
        if not record.gates:
            return f"does not gate: {record.label}"
    if base.devices != new.devices:
        return (
            f"does not gate: measured on {plural(len(base.devices), 'device')} before, on "
            f"{plural(len(new.devices), 'other')} now"
        )
    return None
