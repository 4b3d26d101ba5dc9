"""The gate: all benchmarks of a run against a baseline, corrected for their number, with one verdict.

Two figures are compared: the speedup of the fastest calls, which the machine's other work moves least, and that of
typical calls, which sees what the fastest do not. A benchmark fails only where three things hold of one of them: the
loss is beyond the threshold at the stated confidence, it still is when all p-values are corrected by Benjamini and
Hochberg, and the second measurement of the same benchmark in the same run says so too. Where the first two hold and
nobody measured a second time (a file recorded without a gate), there is no failure and no pass either: the verdict is
UNKNOWN, and says how to confirm it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
    """One figure of a benchmark: how it changed, by the first and the second measurement.

    ``base`` and ``new`` are that figure, a speedup. ``p_corrected`` is that of a loss beyond the threshold.
    ``confirmed`` is ``None`` where nobody looked again.
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
    #: Beyond the threshold by the one measurement that there is.
    unconfirmed: bool = False
    #: Whether each side is several runs, so that there is no second measurement to look for.
    rounds: bool = False

    @property
    def what(self) -> str:
        """The benchmark, and the figure where it is not the usual one."""
        return self.name if self.figure == "fastest" else f"{self.name} (typical calls)"


@dataclass(frozen=True, slots=True)
class Judgement:
    """All benchmarks, and what they come to. FAIL: a loss. UNKNOWN: not comparable, or nothing to compare."""

    verdict: Verdict
    reason: str
    rules: Rules
    baseline: str
    variation: str
    judged: tuple[Judged, ...] = ()
    #: In the baseline and not measured now (or no longer fit to be judged); measured now and not in the baseline.
    missing: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    #: Benchmarks that the gate may not judge, with the reason.
    ungated: tuple[tuple[str, str], ...] = ()
    differences: tuple[Difference, ...] = ()


def suspects(name: str, base: SpeedupRecord, new: SpeedupRecord, variation_of: VariationOf, rules: Rules) -> bool:
    """Whether one benchmark by itself shows a loss beyond the threshold, so that it is worth a second look.

    Correcting for the number of benchmarks only raises p-values, so that none fails that is not suspected here.
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

    ``variation`` says in words what ``variation_of`` is.
    """
    differ = differences(base.fingerprint, fingerprint)
    said = Judgement(Verdict.UNKNOWN, "", rules, base.origin, variation, differences=differ)
    if differ:
        return replace(said, reason=f"not comparable: another machine or software; {'; '.join(map(str, differ))}")
    judged, ungated = [], []
    for name in sorted(base.records.keys() & records.keys()):
        before, now = base.records[name], records[name]
        if (why := _why_ungated(before, now)) is not None:
            ungated.append((name, why))
        else:
            judged += [_compared(name, before, now, figure, variation_of(name, figure), rules) for figure in FIGURES]
    # One that gated and no longer does is as good as not measured: it must not slip away without a word.
    lost = {name for name, _ in ungated if base.records[name].gates}
    missing = tuple(sorted((base.records.keys() - records.keys()) | lost))
    added = tuple(sorted(records.keys() - base.records.keys()))
    said = replace(said, missing=missing, new=added, ungated=tuple(ungated))
    return conclude(said, judged)


def conclude(said: Judgement, judged: Sequence[Judged]) -> Judgement:
    """Correct for the number of benchmarks, and give ``said`` its verdict."""
    corrected = _corrected(judged, said.rules)
    said = replace(said, judged=corrected)
    names = {each.name for each in judged}
    failed = _benchmarks(each for each in corrected if each.fails)
    unconfirmed = _benchmarks(each for each in corrected if each.unconfirmed)
    if failed:
        return replace(
            said,
            verdict=Verdict.FAIL,
            reason=f"a loss of speedup beyond {said.rules.threshold:.1%} in {len(failed)} of {len(names)} "
            f"benchmark(s): {', '.join(failed)}",
        )
    if unconfirmed:
        return replace(
            said,
            reason=f"a loss beyond {said.rules.threshold:.1%} that was measured once alone in {len(unconfirmed)} "
            f"benchmark(s): {', '.join(unconfirmed)}; record with --harness-speedup-twice, so that it can be confirmed",
        )
    if not judged:
        return replace(said, reason="nothing was compared: no benchmark that gates is in both runs")
    if said.missing:
        return replace(
            said,
            reason=f"{len(said.missing)} benchmark(s) of the baseline were not measured, or no longer gate: "
            f"{', '.join(said.missing)}; run them all, or record a new baseline",
        )
    open_ones = len(names - {each.name for each in judged if each.change.verdict != "cannot tell"})
    if open_ones == len(names):
        return replace(said, reason="none of the benchmarks can be told apart from a loss: measure longer or calibrate")
    told = f"; of {open_ones} it cannot be told" if open_ones else ""
    return replace(
        said,
        verdict=Verdict.PASS,
        reason=f"no loss beyond {said.rules.threshold:.1%} established in {len(names)} benchmark(s){told}",
    )


def _benchmarks(rows: Iterable[Judged]) -> list[str]:
    """Each benchmark once; the figure is said where it is not the usual one alone."""
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
        return f"does not gate: measured on {len(base.devices)} device(s) before, on {len(new.devices)} other(s) now"
    return None
