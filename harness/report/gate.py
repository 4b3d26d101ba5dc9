"""Writes the result of the gate: a table of the changes, what was not compared, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from harness.records import Verdict
from harness.report.speedups import beside_names
from harness.speed.gate import FigureChange, Judgement

_HEAD = f"{'base':>7}  {'now':>7}  {'change':>8}  {'interval':^18}  {'p':>7}  verdict"
#: How wide the figures are, with the first word of the verdict; more of it may wrap.
_FIGURES = len(_HEAD)


def gate_lines(judgement: Judgement) -> list[str]:
    """Write a row per benchmark, then notes, and the overall verdict with its reason.

    ``p`` is the corrected p-value of a loss beyond the threshold.
    """
    return [
        f"against {judgement.baseline}",
        f"accepted loss: {judgement.rules.threshold:.1%}; confidence: {judgement.rules.confidence:.1%}, one-sided",
        judgement.variation,
        *_table(judgement.judged),
        *(f"{name}: {why}" for name, why in judgement.ungated),
        *(f"missing: {name} is in the baseline, but was not compared" for name in judgement.missing),
        *(f"new: {name} has no baseline" for name in judgement.new),
        *(f"differs: {difference}" for difference in judgement.differences),
        f"{judgement.verdict}: {judgement.reason}",
    ]


def _table(judged: tuple[FigureChange, ...]) -> Iterator[str]:
    # Typical calls mostly agree, with wider intervals: they get a line only where they add something.
    open_ones = {each.name for each in judged if each.figure == "fastest" and each.change.verdict == "cannot tell"}
    judged = tuple(
        each
        for each in judged
        if each.figure == "fastest"
        or each.change.verdict == "worse"
        or (each.name in open_ones and each.change.verdict != "cannot tell")
    )
    if not judged:
        return
    head, rows = beside_names([each.what for each in judged], _HEAD, list(map(_figures, judged)), _FIGURES)
    yield head
    for row, each in zip(rows, judged, strict=True):
        yield from row
        if each.change.more is not None:
            yield f"  {each.change.more}"


def _figures(each: FigureChange) -> str:
    interval = f"{each.change.interval.lower:+.1%} to {each.change.interval.upper:+.1%}"
    return (
        f"{each.base:>7.3f}  {each.new:>7.3f}  {each.change.interval.value:>+8.1%}  {interval:^18}  "
        f"{each.p_corrected:>7.2g}  {_verdict(each)}"
    )


def _verdict(each: FigureChange) -> str:
    text = str(each.change.verdict)
    if each.fails:
        text = f"{Verdict.FAIL}: {text} by more than the threshold"
        if not each.rounds:
            text += ", confirmed by a second measurement"
    elif each.unconfirmed:
        text += " by more than the threshold, but measured only once"
    elif each.imprecise and each.second is not None:
        second = f"{each.second.interval.value:+.1%}"
        return f"{text} by more than the threshold, not confirmed: the second measurement ({second}) is too imprecise"
    elif each.contradicted and each.change.verdict == "worse":
        text += ", contradicted by the second measurement"
    elif each.change.verdict == "worse":
        text += ", possibly within the threshold"
    return text if each.second is None else f"{text} ({each.second.interval.value:+.1%})"
