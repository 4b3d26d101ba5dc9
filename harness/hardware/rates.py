"""Whether cards are as fast as they should be: against their profile, against each other, and against earlier runs.

Too fast is wrong too: no card does more than its peak, so that a higher figure says that the work was not done or the
clock is wrong.

Cards of one model differ: 8 % on average and up to 22 % in five large clusters (P. Sinha et al., Not All GPUs Are
Created Equal: Characterizing Variability in Large-Scale, Accelerator-Rich Systems, SC 2022). So from 8 % off the
median it is a WARN and from 20 % a FAIL. CPU cores work for whatever else runs too: they are judged from 75 % off, and
never worse than WARN, also where a profile says what a core should reach. The logical CPUs of a process share their
threads: their rates are told beside their median, and not judged by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from harness.hardware.expectation import CardProfile
from harness.hardware.naming import alike, described, device_of, is_gpu, shares_threads
from harness.records import Card, Figure, Finding, RunRecord, Verdict

#: Share of the median that is normal either way, and from which it fails.
WARN_FROM, FAIL_FROM = 0.08, 0.20
#: For CPUs, which share cores.
WARN_FROM_CPU = 0.75
#: Cards from which a median says which of them is too fast.
_CARDS_FOR_TOO_FAST = 3


@dataclass(frozen=True)
class Judged:
    """``figures`` with what they were judged against, the findings, and what they could not be judged against."""

    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]
    scope: tuple[str, ...]


@dataclass(frozen=True)
class _Measure:
    """Something to judge one figure by: it is fine from ``low`` to ``high``, and fails below or above the last two.

    One that does not judge is told beside the figure.
    """

    value: float
    whence: str
    low: float
    high: float
    fail_low: float
    fail_high: float
    judges: bool = True


def judge_rates(
    figures: Iterable[Figure],
    cards: Sequence[Card],
    profiles: Mapping[str, CardProfile],
    history: Sequence[RunRecord] = (),
) -> Judged:
    """Judge the rates of cards. More is better: not for latencies.

    ``profiles`` are by label of the card. ``history`` are earlier runs on this machine; a card is the same by its
    UUID, or, where it has none, by its label and name. A figure is judged by all that there is; beside it stands what
    found it wrong, or else the profile, the median, the history, whichever is there first.
    """
    given = list(figures)
    by_label = {card.label: card for card in cards}
    # What is too fast to be true for its profile is no measure for the others.
    untrue = [each for each in given if _beyond(each, by_label.get(each.device or ""), profiles)]
    judged: list[Figure] = []
    findings: list[Finding] = []
    unjudged: list[str] = []
    told: set[str] = set()
    for figure in given:
        card = by_label.get(figure.device or "")
        if card is None:
            judged.append(figure)
            continue
        measures = [
            *_by_profile(figure, card, profiles.get(card.label)),
            *_by_median(figure, card, [each for each in given if each not in untrue], tuple(cards)),
            *_by_history(figure, card, history),
        ]
        if not measures:
            unjudged.append(f"{figure.name} of {card.label}")
        against = next((each for each in measures if _finding(figure, card, each)), measures[0] if measures else None)
        findings += [found for each in measures if (found := _finding(figure, card, each))][:1]
        if against is not None and not against.judges:
            told.add(against.whence)
        judged.append(
            replace(figure, expected=against.value, expected_from=against.whence) if against is not None else figure
        )
    return Judged(tuple(judged), tuple(findings), _scope(judged, unjudged, told))


def _by_profile(figure: Figure, card: Card, profile: CardProfile | None) -> list[_Measure]:
    expected = profile.figure(figure.name) if profile is not None else None
    if profile is None or expected is None or expected.unit != figure.unit:
        return []
    low, high = expected.value * expected.low, expected.value * expected.high
    whence = f"profile {profile.name} ({expected.source}, {expected.date})"
    fails = (low, high) if is_gpu(card) else (0.0, float("inf"))
    return [_Measure(expected.value, whence, low, high, *fails)]


def _beyond(figure: Figure, card: Card | None, profiles: Mapping[str, CardProfile]) -> bool:
    measures = _by_profile(figure, card, profiles.get(card.label)) if card is not None else []
    return any(figure.value > measure.fail_high for measure in measures)


def _by_median(figure: Figure, card: Card, figures: Sequence[Figure], cards: tuple[Card, ...]) -> list[_Measure]:
    like = next(group for group in alike(cards).values() if card in group)
    labels = {each.label for each in like}
    values = [each.value for each in figures if each.device in labels and _same(each, figure)]
    if len(values) < 2:
        return []
    if shares_threads(card):
        whence = f"median of the {len(values)} logical CPUs here, which share their threads"
        return [_Measure(median(values), whence, 0.0, float("inf"), 0.0, float("inf"), judges=False)]
    if len(values) < _CARDS_FOR_TOO_FAST:
        # Of two, the slower one is known to be slow; that the faster one is wrong, two cannot tell.
        return [_measure(max(values), f"the faster of the {len(values)} cards of its kind here", card, fast=False)]
    return [_measure(median(values), f"median of the {len(values)} cards of its kind here", card)]


def _by_history(figure: Figure, card: Card, history: Sequence[RunRecord]) -> list[_Measure]:
    values = []
    for run in history:
        labels = {each.label for each in run.cards if _same_card(each, card)}
        values += [
            each.value
            for result in run.results
            for each in result.figures
            if each.device in labels and _same(each, figure)
        ]
    return [_measure(median(values), f"median of {len(values)} earlier measurements of it", card)] if values else []


def _same(one: Figure, other: Figure) -> bool:
    return (one.name, one.unit, one.size_bytes, one.peer) == (other.name, other.unit, other.size_bytes, other.peer)


def _same_card(one: Card, other: Card) -> bool:
    if one.uuid is not None or other.uuid is not None:
        return one.uuid == other.uuid
    return (one.label, one.name) == (other.label, other.name)


def _measure(value: float, whence: str, card: Card, fast: bool = True) -> _Measure:
    if not is_gpu(card):
        high = value / (1 - WARN_FROM_CPU) if fast else float("inf")
        return _Measure(value, whence, value * (1 - WARN_FROM_CPU), high, 0.0, float("inf"))
    high, fail_high = (value * (1 + WARN_FROM), value * (1 + FAIL_FROM)) if fast else (float("inf"), float("inf"))
    return _Measure(value, whence, value * (1 - WARN_FROM), high, value * (1 - FAIL_FROM), fail_high)


def _finding(figure: Figure, card: Card, measure: _Measure) -> Finding | None:
    if measure.low <= figure.value <= measure.high:
        return None
    failed = figure.value < measure.fail_low or figure.value > measure.fail_high
    how = "too slow" if figure.value < measure.low else "faster than it can be"
    share = figure.value / measure.value if measure.value else 0.0
    return Finding(
        kind="rate",
        where=figure.name,
        device=device_of(card),
        expected=f"{measure.low:.4g} to {measure.high:.4g} {figure.unit}: {measure.whence}",
        found=f"{figure.value:.4g} {figure.unit}",
        message=f"{described(card)} is {how}: {figure.name} {figure.value:.4g} {figure.unit}, {share:.0%} of "
        f"{measure.value:.4g} {figure.unit} ({measure.whence})",
        severity=Verdict.FAIL if failed else Verdict.WARN,
    )


def _scope(figures: Sequence[Figure], unjudged: Sequence[str], told: set[str]) -> tuple[str, ...]:
    sources = sorted({each.expected_from for each in figures if each.expected_from} - told)
    said = [f"rates judged against: {'; '.join(sources)}"] if sources else []
    said += [f"rates told and not judged, beside the {each}" for each in sorted(told)]
    if unjudged:
        said.append(
            "rates measured and not judged, for there is no profile, no other card of the kind and no earlier run: "
            + ", ".join(unjudged)
        )
    return tuple(said)
