"""The gate: all benchmarks of a run against a baseline, corrected for their number, with one verdict.

A benchmark fails only where three things hold: the loss is beyond the threshold at the stated confidence, it still is
when the p-values of all benchmarks are corrected by Benjamini and Hochberg, and the second measurement of the same
benchmark in the same run says so too. A benchmark that was measured once alone (a file recorded without a gate) cannot
be confirmed; there the corrected first measurement decides, and what is said about it is that nobody looked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.records import Fingerprint, Verdict
from harness.speed.baseline import SavedRun
from harness.speed.change import UNCALIBRATED, Change, Rules, Variation, change_between, log_speedup
from harness.speed.comparable import Difference, differences
from harness.speed.record import SpeedupRecord

#: The variation between runs of a benchmark, by its full name.
VariationOf = Callable[[str], Variation]


@dataclass(frozen=True, slots=True)
class Judged:
    """One benchmark: how its speedup changed, by the first and the second measurement.

    ``p_corrected`` is that of a loss beyond the threshold. ``confirmed`` is ``None`` where nobody looked again.
    """

    name: str
    base: float
    new: float
    change: Change
    second: Change | None = None
    p_corrected: float = 1.0
    confirmed: bool | None = None
    fails: bool = False
    #: Whether each side is several runs, so that there is no second measurement to look for.
    rounds: bool = False


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


def suspects(base: SpeedupRecord, new: SpeedupRecord, variation: Variation, rules: Rules) -> bool:
    """Whether one benchmark by itself shows a loss beyond the threshold, so that it is worth a second look.

    Correcting for the number of benchmarks only raises p-values, so that none fails that is not suspected here.
    """
    if _why_ungated(base, new) is not None:
        return False
    return _first_change(base, new, variation, rules).p_beyond <= 1.0 - rules.confidence


def judge(
    base: SavedRun,
    records: Mapping[str, SpeedupRecord],
    fingerprint: Fingerprint | None,
    rules: Rules,
    variation_of: VariationOf = lambda _: UNCALIBRATED,
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
            judged.append(_compared(name, before, now, variation_of(name), rules))
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
    failed = [each.name for each in corrected if each.fails]
    if failed:
        return replace(
            said,
            verdict=Verdict.FAIL,
            reason=f"a loss of speedup beyond {said.rules.threshold:.1%} in {len(failed)} of {len(judged)} "
            f"benchmark(s): {', '.join(failed)}",
        )
    if not judged:
        return replace(said, reason="nothing was compared: no benchmark that gates is in both runs")
    if said.missing:
        return replace(
            said,
            reason=f"{len(said.missing)} benchmark(s) of the baseline were not measured, or no longer gate: "
            f"{', '.join(said.missing)}; run them all, or record a new baseline",
        )
    if all(each.change.verdict == "cannot tell" for each in judged):
        return replace(said, reason="none of the benchmarks can be told apart from a loss: measure longer or calibrate")
    return replace(
        said,
        verdict=Verdict.PASS,
        reason=f"no loss beyond {said.rules.threshold:.1%} established in {len(judged)} benchmark(s)",
    )


def _compared(name: str, base: SpeedupRecord, new: SpeedupRecord, variation: Variation, rules: Rules) -> Judged:
    second = None
    if new.second_single_ns:
        again = log_speedup(new.second_single_ns, new.second_parallel_ns)
        second = change_between(log_speedup(base.single_ns, base.parallel_ns), again, variation, rules)
    change = _first_change(base, new, variation, rules)
    return Judged(name, base.speedup.value, new.speedup.value, change, second)


def _first_change(base: SpeedupRecord, new: SpeedupRecord, variation: Variation, rules: Rules) -> Change:
    return change_between(
        log_speedup(base.single_ns, base.parallel_ns), log_speedup(new.single_ns, new.parallel_ns), variation, rules
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
        fails = p_corrected <= alpha and confirmed is not False
        found.append(replace(each, p_corrected=p_corrected, confirmed=confirmed, fails=fails))
    return tuple(found)


def _why_ungated(base: SpeedupRecord, new: SpeedupRecord) -> str | None:
    for record in (base, new):
        if not record.gates:
            return f"does not gate: {record.label}"
    if base.devices != new.devices:
        return f"does not gate: measured on {len(base.devices)} device(s) before, on {len(new.devices)} other(s) now"
    return None
