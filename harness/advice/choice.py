"""Judges the ways, chooses among those that were timed, and says why and within which limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from harness.advice.peaks import MEASURED_SPREAD
from harness.advice.record import BASELINE, CPU, Advice, Judgement, Way, short_size
from harness.judgement.verification import PLACE_KINDS, VALUE_KINDS, Verification
from harness.plural import plural
from harness.proof.sentence import reach
from harness.records import Verdict


def with_choice(advice: Advice) -> Advice:
    """Return the advice with the way to choose, the reason and the limits.

    The time of one device becomes the median of those in all pairs, so that it suits the times of the other ways.
    """
    if times := [way.single_ns for way in advice.ways if way.single_ns is not None]:
        ways = (replace(way, time_ns=median(times)) if way.name == BASELINE else way for way in advice.ways)
        advice = replace(advice, ways=tuple(ways))
    advice = replace(advice, ways=tuple(with_fit(way, advice.memory_bytes) for way in advice.ways))
    baseline = next((way for way in advice.ways if way.name == BASELINE and way.time_ns is not None), None)
    if baseline is None:
        why = "the time of one device cannot be predicted" if advice.cards else "one device was not timed"
        return replace(advice, recommendation=f"No recommendation: {why}.")
    chosen = choose(advice.ways)
    if chosen is None and baseline.fits is False:
        size = short_size(advice.memory_bytes or 0)
        none = f"No recommendation: no way that is right surely fits into {size} on each device."
        return replace(advice, recommendation=none, limits=_limits(advice))
    if chosen is None:
        return replace(advice, chosen=BASELINE, recommendation=_stay(advice, baseline), limits=_limits(advice))
    why = f"One device of {short_size(advice.memory_bytes or 0)} is too small. " if baseline.fits is False else ""
    return replace(advice, chosen=chosen.name, recommendation=f"{why}{_use(chosen)}", limits=_limits(advice))


def choose(ways: Sequence[Way]) -> Way | None:
    """The way to recommend; ``None``: stay on one device.

    A way counts as faster only if its whole interval is above 1. Among those that may be the fastest, as far as their
    intervals say, it is the one with the fewest lines to change. A way that may be too large for the memory is left
    out; where that is one device itself, a way may be slower.
    """
    too_large = any(way.name == BASELINE and way.fits is False for way in ways)
    right = [way for way in ways if way.is_right and way.speedup is not None and way.fits is not False]
    faster = [way for way in right if way.speedup is not None and (way.fits if too_large else way.speedup.lower > 1.0)]
    if not faster:
        return None
    best = max(way.speedup.value for way in faster if way.speedup is not None)
    limit = max(way.speedup.lower for way in faster if way.speedup is not None and way.speedup.value == best)
    rivals = [way for way in faster if way.speedup is not None and way.speedup.upper >= limit]
    return min(rivals, key=lambda way: (way.lines or 0, -(way.speedup.value if way.speedup is not None else 0.0)))


def with_fit(way: Way, memory_bytes: int | None) -> Way:
    """Say whether the peaks of a way surely fit into the memory of a device, if that is given."""
    if memory_bytes is None:
        return way
    peaks = [each.peak_bytes for each in way.memory if each.peak_bytes is not None]
    return replace(way, fits=max(peaks) * (1 + MEASURED_SPREAD) <= memory_bytes if peaks else None)


def judge(verification: Verification) -> tuple[Judgement, str]:
    """What a verification says about the results. Where an op ran is no matter here: time says what it costs."""
    failed = [finding for finding in verification.findings if finding.severity is Verdict.FAIL]
    for finding in failed:
        if finding.kind == "error":
            return "not comparable", finding.message
    if any(finding.kind in VALUE_KINDS for finding in failed):
        return "wrong", verification.reason
    proof = verification.proof
    if proof is not None and proof.proved:
        return "proved", f"proved for {reach(proof)}"
    if verification.verdict is Verdict.UNKNOWN:
        return "not comparable", verification.reason
    # Findings about places say nothing about the results.
    placed = any(finding.kind in PLACE_KINDS for finding in verification.findings)
    matches = "its results match those of one device on the example"
    return "verified", matches if placed else verification.reason.partition(". ")[0]


def _use(way: Way) -> str:
    assert way.speedup is not None
    low, high = f"{way.speedup.lower:.2f}", f"{way.speedup.upper:.2f}"
    lines = "" if way.lines is None else f", with {plural(way.lines, 'line')} to change"
    where = f"Run on the {way.name}" if way.name == CPU else f"Use {way.name} on {_joined(way.devices)}"
    predicted = "predicted to be " if way.time_interval_ns else ""
    return (
        f"{where}: {predicted}{way.speedup.value:.2f} times as fast as one device ({low} to {high}), and "
        f"{way.judgement} to compute the same{lines}."
    )


def _stay(advice: Advice, baseline: Way) -> str:
    device = f"Stay on one device ({_joined(baseline.devices)})"
    timed = [way for way in advice.ways if way.is_right and way.speedup is not None]
    if timed:
        best = max(timed, key=lambda way: way.speedup.value if way.speedup is not None else 0.0)
        assert best.speedup is not None
        interval = f"{best.speedup.value:.2f} ({best.speedup.lower:.2f} to {best.speedup.upper:.2f})"
        predicted = "predicted to be " if best.time_interval_ns else ""
        why = f"no other way is {predicted}faster for certain; the best is {best.name} with a speedup of {interval}"
        return f"{device}: {why}."
    why = "no other way was timed" if not advice.complete else "no other way computes the same, or can be compared"
    return f"{device}: {why}."


def _limits(advice: Advice) -> str:
    rows = "" if advice.rows is None else f" of {plural(advice.rows, 'row')}"
    here = f"It holds for a batch{rows} on these devices: {advice.label}."
    if advice.cards:
        return (
            f"{here} All times are predicted from the profile of the card, and none was ever measured on one; what was "
            "measured here, on software GPUs, is that the ways compute the same, and their memory."
        )
    if advice.kind == "logical-cpu":
        return f"{here} They share the cores of this machine, so the times say nothing about GPUs."
    if advice.kind == "software-gpu":
        return f"{here} Their times say nothing about real GPUs."
    if not advice.complete:
        return f"{here} Not all ways were tried."
    return here


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
