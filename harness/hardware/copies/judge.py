"""Judges the bandwidths of copies: against a card's profile, against what its link can carry, and against its like.

Copies of one kind are alike: all from the host to a card, or all from card to card. A card that is slow in most of its
copies is named; one ordered pair that is slow by itself is named as a pair.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.hardware.advised import Advised, device_of, named
from harness.hardware.expectation import Expected
from harness.hardware.machine import HOST
from harness.hardware.naming import shares_threads
from harness.records import Card, Figure, Finding, Verdict

#: Below this share of the median of its like a copy fails, and below the second it is warned of.
FAILS_BELOW, WARNS_BELOW = 0.5, 0.75
#: CPU cores share the host's memory, and the host may have other work: little is said of them, and nothing of the
#: logical CPUs of one process, which share their threads as well.
CPU_WARNS_BELOW = 0.2
#: A measured bandwidth above the link's own, by more than this, is no bandwidth.
TOO_HIGH = 1.05

Expecting = Callable[[Card, str], Expected | None]


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy that was measured: ``gbs`` in GB/s (1e9 bytes), from ``source`` to ``target``, labels or ``host``."""

    name: str
    source: str
    target: str
    size_bytes: int
    gbs: float

    @property
    def ends(self) -> tuple[str, ...]:
        """The cards of the copy."""
        return tuple(end for end in (self.source, self.target) if end != HOST)


def judge_bandwidths(
    copies: Sequence[Copy],
    cards: Mapping[str, Card],
    expecting: Expecting,
    link_gbs: Mapping[str, float],
    *,
    on_cpu: bool,
) -> tuple[list[Figure], list[Advised]]:
    """Figures with what they were judged against, and what is wrong. All copies are of one name and one size.

    ``link_gbs`` is what the PCIe link of a card can carry one way, for those where it is known.
    """
    if not copies:
        return [], []
    middle = statistics.median_high([copy.gbs for copy in copies])
    figures, judged = [], []
    for copy in copies:
        card = cards[copy.ends[-1]]
        expected = None if on_cpu else expecting(card, copy.name)
        figure = Figure(copy.name, copy.gbs, "GB/s", copy.source, copy.target, copy.size_bytes)
        if expected is not None:
            figure = replace(figure, expected=expected.value, expected_from=f"profile: {expected.source}")
        elif len(copies) > 1:
            figure = replace(figure, expected=middle, expected_from="the median of its like on this machine")
        figures.append(figure)
        wrong = None if shares_threads(card) else _verdict(copy, expected, middle, len(copies), link_gbs, on_cpu)
        judged.append((copy, wrong))
    return figures, list(_by_card([each for each in judged if each[1] is not None], copies, cards))


@dataclass(frozen=True, slots=True)
class _Wrong:
    severity: Verdict
    high: bool
    expected: str


def _verdict(
    copy: Copy, expected: Expected | None, middle: float, count: int, link_gbs: Mapping[str, float], on_cpu: bool
) -> _Wrong | None:
    peak = link_gbs.get(copy.ends[0]) if HOST in (copy.source, copy.target) else None
    if not on_cpu and peak is not None and copy.gbs > peak * TOO_HIGH:
        return _Wrong(Verdict.FAIL, True, f"at most {peak:.1f} GB/s, which the link can carry")
    if expected is not None:
        if copy.gbs > expected.value * expected.high:
            return _Wrong(Verdict.FAIL, True, f"at most {expected.value * expected.high:.1f} GB/s ({expected.source})")
        if copy.gbs < expected.value * expected.low:
            return _Wrong(Verdict.FAIL, False, f"at least {expected.value * expected.low:.1f} GB/s ({expected.source})")
    # What a profile lets pass, as it must for hosts of many kinds, the other cards of this host may still tell.
    if count < 2:
        return None
    text = f"about {middle:.1f} GB/s, the median of its like"
    if on_cpu:
        return _Wrong(Verdict.WARN, False, text) if copy.gbs < CPU_WARNS_BELOW * middle else None
    if copy.gbs < WARNS_BELOW * middle:
        return _Wrong(Verdict.FAIL if copy.gbs < FAILS_BELOW * middle else Verdict.WARN, False, text)
    return None


def _by_card(
    judged: Sequence[tuple[Copy, _Wrong | None]], copies: Sequence[Copy], cards: Mapping[str, Card]
) -> Iterator[Advised]:
    """One finding for a card that is wrong in most of its copies, and one for each pair that is left."""
    left = [(copy, wrong) for copy, wrong in judged if wrong is not None]
    while left:
        counts = {
            label: (sum(label in copy.ends for copy, _ in left), sum(label in copy.ends for copy in copies))
            for label in cards
        }
        label = max(counts, key=lambda each: counts[each][0])
        wrong_copies, of = counts[label]
        mine = [each for each in left if label in each[0].ends]
        host = HOST in (mine[0][0].source, mine[0][0].target)
        if not host and (wrong_copies <= of / 2 or of <= 2):
            for copy, wrong in left:
                yield _pair(copy, wrong, cards)
            return
        yield _card(cards[label], mine)
        left = [each for each in left if label not in each[0].ends]


def _card(card: Card, mine: Sequence[tuple[Copy, _Wrong]]) -> Advised:
    worst, wrong = min(mine, key=lambda each: -each[0].gbs if each[1].high else each[0].gbs)
    severity = Verdict.FAIL if any(each.severity is Verdict.FAIL for _, each in mine) else Verdict.WARN
    copied = f"{worst.name} of {worst.size_bytes} bytes"
    finding = Finding(
        "link" if not wrong.high else "rate",
        copied if len(mine) == 1 else f"{copied}, {len(mine)} copies",
        device_of(card),
        wrong.expected,
        f"{worst.gbs:.2f} GB/s",
        f"{named(card)}: {copied} from {worst.source} to {worst.target} at {worst.gbs:.2f} GB/s; "
        f"expected {wrong.expected}",
        severity,
    )
    return Advised(finding, f"{named(card)}: {_do(wrong)}")


def _pair(copy: Copy, wrong: _Wrong, cards: Mapping[str, Card]) -> Advised:
    target = cards[copy.ends[-1]]
    finding = Finding(
        "link" if not wrong.high else "rate",
        f"{copy.source} -> {copy.target}, {copy.name} of {copy.size_bytes} bytes",
        device_of(target),
        wrong.expected,
        f"{copy.gbs:.2f} GB/s",
        f"the copy {copy.source} -> {copy.target} runs at {copy.gbs:.2f} GB/s; expected {wrong.expected}",
        wrong.severity,
    )
    return Advised(finding, f"{copy.source} -> {copy.target}: {_do(wrong)}")


def _do(wrong: _Wrong) -> str:
    if wrong.high:
        return "do not trust the time: a copy that is faster than its link did not take place as it should"
    return "look at nvidia-smi topo -m and at the width of its link under load; reseat the card"
