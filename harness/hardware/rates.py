"""Judges rates and bandwidths against a card's profile, the cards like it, earlier runs, and what its link can carry.

Too fast is wrong too: no card exceeds its peak, so a higher figure means that work was skipped or the clock is wrong.

GPUs of one model differ: by 8 % on average and by up to 22 % in five large clusters (P. Sinha et al., Not All GPUs Are
Created Equal: Characterizing Variability in Large-Scale, Accelerator-Rich Systems, SC 2022). CPU cores also run
whatever else the host does, so they warn at most, and only far from the reference. Logical CPUs of one process share
their threads, so they are not judged against each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from harness.hardware.card_profile import CardProfile
from harness.hardware.finding import amount, finding
from harness.hardware.machine import Pair, PairLink
from harness.records import Card, Figure, Finding, Quantity, RunRecord, Verdict


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits as shares of the reference. GPUs warn and fail outside of theirs; CPUs only warn."""

    warn_below: float
    fail_below: float
    warn_above: float
    fail_above: float
    cpu_warn_below: float
    cpu_warn_above: float


#: The limits of each quantity; others are not judged. docs/hardware.md has the same table.
POLICIES = {
    Quantity.RATE: Policy(0.92, 0.80, 1.08, 1.20, 0.25, 4.0),
    # Copies depend on where the card is attached and on what else uses the host's memory. Their ceiling is the link.
    Quantity.BANDWIDTH: Policy(0.75, 0.50, inf, inf, 0.20, inf),
}
#: The rate at the end of a sustained load against the rate at its start: a card that warms up loses a few percent.
DRIFT = Policy(0.92, 0.80, inf, inf, 0.40, inf)
#: From this many values on, a median tells which of them is too fast. Of two, only the slower one is known to be slow.
_FOR_TOO_FAST = 3
#: The name of copies both ways at once, whose bytes are added up.
BOTH_WAYS = "copy both ways"
#: Share of what the NVLinks of a pair carry that its copies must reach: good ones reach 0.7 to 0.9.
LINK_SHARE = 0.5
#: A bandwidth this far above the peak of the link is not a bandwidth.
_ABOVE_PEAK = 1.05

SLOW = (
    "look at its clocks, temperature and power (check 'sustained-load') and at its link (check 'copies'); if they show "
    "no cause, swap it with another card: if the slowness moves with this card, this card is faulty"
)
SLOW_CPU = (
    "look for other programs that use the CPU, and look at the CPU's clock and temperature (check 'sustained-load')"
)
TOO_FAST = (
    "do not trust the measured times and results: work was skipped, or the host's clock or the reference value is "
    "wrong; if the value is from a profile, compare the profile's name with the device's (on a GPU: nvidia-smi -L); "
    "then run the checks 'software' and 'arithmetic' again"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a figure is compared with: good from ``low`` to ``high``, a FAIL beyond the last two.

    One that does not judge is only reported beside the figure.
    """

    value: float
    source: str
    low: float
    high: float
    fail_low: float
    fail_high: float
    judges: bool = True


@dataclass(frozen=True, slots=True)
class Offence:
    """A figure of ``card`` outside the limits of ``reference``."""

    figure: Figure
    card: Card
    reference: Reference
    severity: Verdict

    @property
    def too_fast(self) -> bool:
        """Whether the figure is above the limits, not below."""
        return self.figure.value > self.reference.high

    @property
    def expected(self) -> str:
        """The limits and their source."""
        low, high = (amount(each, self.figure.unit) for each in (self.reference.low, self.reference.high))
        limits = f"at most {high}" if self.too_fast else f"at least {low}"
        return f"{limits} ({self.reference.source})"


@dataclass(frozen=True, slots=True)
class Judged:
    """Figures with their references, those outside of their limits, and how they were judged."""

    figures: tuple[Figure, ...]
    offences: tuple[Offence, ...]
    scope: tuple[str, ...]


def judge_rates(
    figures: Iterable[Figure],
    cards: Sequence[Card],
    profiles: Mapping[str, CardProfile],
    history: Sequence[RunRecord] = (),
    *,
    peaks: Mapping[str, float] | None = None,
    links: Mapping[Pair, PairLink] | None = None,
    full_links: Collection[str] = (),
    in_profile: Mapping[str, str] | None = None,
) -> Judged:
    """Judge figures of which more is better by every reference available; the first that is violated counts.

    ``profiles`` are by label. ``history`` are earlier runs on this machine; a card is the same by its UUID, or without
    one by its label and name. ``peaks`` are the GB/s that the PCIe links of cards can carry one way, ``links`` how
    pairs are joined: a pair is compared with what its own links carry, and with pairs that are joined alike.
    ``full_links`` are cards whose PCIe link has its full width and speed, so that a slow copy with the host, from
    pageable memory, is the host's. ``in_profile`` gives the names under which profiles have figures, where they differ.
    """
    given = list(figures)
    judge = _Judge(
        {card.label: card for card in cards},
        profiles,
        history,
        peaks or {},
        links or {},
        frozenset(full_links),
        in_profile or {},
    )
    # What is impossible by its profile or its link is no reference for the others.
    credible = [each for each in given if not any(each.value > limit.fail_high for limit in judge.absolute(each))]
    made: list[Figure] = []
    offences: list[Offence] = []
    unjudged: list[str] = []
    informational: set[str] = set()
    for figure in given:
        card = judge.card_of(figure)
        if card is None or (figure.quantity or Quantity.RATE) not in POLICIES:
            made.append(figure)
            continue
        references = judge.references(figure, card, credible)
        wrong = [offence for each in references if (offence := _offence(figure, card, each))]
        offences += wrong[:1]
        if not references:
            unjudged.append(f"{figure.name} of {card.label}")
            made.append(figure)
            continue
        shown = wrong[0].reference if wrong else references[0]
        if not shown.judges:
            informational.add(shown.source)
        made.append(replace(figure, expected=shown.value, expected_from=shown.source))
    scope = (*_scope(made, unjudged, informational), *judge.unused_profiles(made))
    return Judged(tuple(made), tuple(offences), scope)


def rate_finding(offence: Offence) -> Finding:
    """Return the finding about the card that reached the figure."""
    figure, reference = offence.figure, offence.reference
    share = figure.value / reference.value if reference.value else 0.0
    return finding(
        "rate",
        offence.card,
        figure.name,
        expected=offence.expected,
        found=amount(figure.value, figure.unit),
        message=f"is {'impossibly fast' if offence.too_fast else 'too slow'}: {figure.name} at "
        f"{amount(figure.value, figure.unit)}, {share:.0%} of {amount(reference.value, figure.unit)} "
        f"({reference.source})",
        next_step=TOO_FAST if offence.too_fast else _slow_step(offence.card),
        severity=offence.severity,
        subject=figure.name,
    )


def _slow_step(card: Card) -> str:
    return SLOW if card.is_gpu else SLOW_CPU


def judge_drift(rates: Sequence[float], card: Card) -> Finding | None:
    """Compare the last third of the rates of a card under load with the first. Fewer than six say nothing."""
    if len(rates) < 6 or card.shares_threads or card.part is not None:
        return None
    third = len(rates) // 3
    before, after = median(rates[:third]), median(rates[-third:])
    share, least = after / before, DRIFT.warn_below if card.is_gpu else DRIFT.cpu_warn_below
    if share >= least:
        return None
    return finding(
        "rate",
        card,
        "drift under load",
        expected=f"at least {least:.0%} of the rate at the start",
        found=f"{share:.0%}",
        message=f"slowed down under load from {amount(before, 'GFLOP/s')} to {amount(after, 'GFLOP/s')}",
        next_step=_slow_step(card),
        severity=Verdict.FAIL if card.is_gpu and share < DRIFT.fail_below else Verdict.WARN,
        subject="drift",
    )


@dataclass(frozen=True, slots=True)
class _Judge:
    cards: Mapping[str, Card]
    profiles: Mapping[str, CardProfile]
    history: Sequence[RunRecord]
    peaks: Mapping[str, float]
    links: Mapping[Pair, PairLink]
    full_links: frozenset[str]
    in_profile: Mapping[str, str]

    def unused_profiles(self, judged: Sequence[Figure]) -> Iterator[str]:
        """Say of which cards the profile has none of the rates that were measured."""
        measured: dict[str, list[Figure]] = {}
        for each in judged:
            if each.quantity in (None, Quantity.RATE) and each.device in self.profiles and each.peer is None:
                measured.setdefault(each.device or "", []).append(each)
        for label, figures in measured.items():
            name = self.profiles[label].name
            if not any((each.expected_from or "").startswith(f"profile {name} ") for each in figures):
                rates = ", ".join(sorted({each.name for each in figures}))
                yield f"the profile {name} of {label} has no value for: {rates}"

    def card_of(self, figure: Figure) -> Card | None:
        """Return the card that the figure is about: for a copy, the target, or the source of one to the host."""
        return self.cards.get(figure.peer or "") or self.cards.get(figure.device or "")

    def references(self, figure: Figure, card: Card, credible: Sequence[Figure]) -> list[Reference]:
        """Return all references of a figure, the one to show first in front."""
        absolute = self.absolute(figure)
        peak = [each for each in absolute if each.low == 0]
        if self._by_host(figure):
            return peak
        relative = [*self._by_median(figure, card, credible), *self._by_history(figure, card)]
        return [*(each for each in absolute if each.low), *relative, *peak]

    def absolute(self, figure: Figure) -> list[Reference]:
        card = self.card_of(figure)
        if card is None or card.part is not None:
            return []
        found = []
        link = self._link(figure)
        if link is not None:
            return self._by_link(figure, link)
        profile = self.profiles.get(card.label)
        expected = profile.figure(self.in_profile.get(figure.name, figure.name)) if profile is not None else None
        if profile is not None and expected is not None and expected.unit == figure.unit:
            limits = expected.value * expected.low, expected.value * expected.high
            source = f"profile {profile.name} ({expected.source}, {expected.date})"
            found.append(Reference(expected.value, source, *limits, *(limits if card.is_gpu else (0.0, inf))))
        peak = self.peaks.get(card.label) if self._with_host(figure) else None
        if peak is not None and card.is_gpu:
            found.append(_ceiling(peak))
        return found

    def _with_host(self, figure: Figure) -> bool:
        ends = (figure.device in self.cards, figure.peer in self.cards)
        return figure.quantity is Quantity.BANDWIDTH and ends[0] != ends[1]

    def _by_host(self, figure: Figure) -> bool:
        """Whether the rate is the host's: a copy from or to its pageable memory over a link in good order."""
        return self._with_host(figure) and bool(self.full_links & {figure.device, figure.peer})

    def _link(self, figure: Figure) -> PairLink | None:
        return self.links.get((figure.device or "", figure.peer or ""))

    def _by_link(self, figure: Figure, link: PairLink) -> list[Reference]:
        """Return what the NVLinks between two cards carry, or what their PCIe links can."""
        ways = 2.0 if figure.name == BOTH_WAYS else 1.0
        if link.gbs is not None:
            value, low = ways * link.gbs, LINK_SHARE / ways**0.5
            limits = value * low, value * _ABOVE_PEAK
            return [Reference(value, str(link), *limits, *limits)]
        peaks = [peak for end in (figure.device, figure.peer) if (peak := self.peaks.get(end or "")) is not None]
        return [_ceiling(ways * min(peaks))] if peaks and not link.nvlinks else []

    def _by_median(self, figure: Figure, card: Card, credible: Sequence[Figure]) -> list[Reference]:
        values = [
            each.value
            for each in credible
            if _key(each) == _key(figure)
            and _joined(self._link(each)) == _joined(self._link(figure))
            and (other := self.card_of(each)) is not None
            and (other.kind, other.name) == (card.kind, card.name)
        ]
        count = len(values)
        if count < 2:
            return []
        if card.shares_threads or card.part is not None:
            why = "logical CPUs, which share their threads" if card.shares_threads else f"{card.part}s"
            source = f"median of {count} {why}"
            return [Reference(median(values), source, 0.0, inf, 0.0, inf, judges=False)]
        noun = "copies of this kind" if figure.peer else "GPUs of this model" if card.is_gpu else "CPU cores"
        if count < _FOR_TOO_FAST:
            return [_relative(max(values), f"the faster of {count} {noun}", figure, card, fast=False)]
        return [_relative(median(values), f"median of {count} {noun}", figure, card)]

    def _by_history(self, figure: Figure, card: Card) -> list[Reference]:
        ends = [_identity(end, self.cards) for end in (figure.device, figure.peer)]
        values = []
        for run in self.history:
            before = {each.label: each for each in run.cards}
            values += [
                each.value
                for result in run.results
                for each in result.figures
                if _key(each) == _key(figure) and [_identity(end, before) for end in (each.device, each.peer)] == ends
            ]
        if not values or card.part is not None:
            return []
        return [_relative(median(values), f"median of {len(values)} earlier measurements", figure, card)]


def _joined(link: PairLink | None) -> tuple[int, str] | None:
    return None if link is None else (link.nvlinks, "" if link.nvlinks else link.way)


def _ceiling(peak: float) -> Reference:
    return Reference(peak, "peak of the PCIe link", 0.0, peak * _ABOVE_PEAK, 0.0, peak * _ABOVE_PEAK)


def _key(figure: Figure) -> tuple[object, ...]:
    return figure.name, figure.unit, figure.size_bytes


def _identity(label: str | None, cards: Mapping[str, Card]) -> object:
    """Return what tells a card from others in every run: its UUID, or its label and name."""
    card = cards.get(label or "")
    return label if card is None else card.uuid or (card.label, card.name)


def _relative(value: float, source: str, figure: Figure, card: Card, fast: bool = True) -> Reference:
    policy = POLICIES[figure.quantity or Quantity.RATE]
    if not card.is_gpu:
        high = value * policy.cpu_warn_above if fast else inf
        return Reference(value, source, value * policy.cpu_warn_below, high, 0.0, inf)
    high, fail_high = (value * policy.warn_above, value * policy.fail_above) if fast else (inf, inf)
    return Reference(value, source, value * policy.warn_below, high, value * policy.fail_below, fail_high)


def _offence(figure: Figure, card: Card, reference: Reference) -> Offence | None:
    if reference.low <= figure.value <= reference.high:
        return None
    failed = figure.value < reference.fail_low or figure.value > reference.fail_high
    return Offence(figure, card, reference, Verdict.FAIL if failed else Verdict.WARN)


def _scope(figures: Sequence[Figure], unjudged: Sequence[str], informational: set[str]) -> tuple[str, ...]:
    sources = sorted({each.expected_from for each in figures if each.expected_from} - informational)
    scope = [f"rates judged against: {'; '.join(sources)}"] if sources else []
    scope += [f"for information only, not judged: rates compared with the {each}" for each in sorted(informational)]
    if unjudged:
        scope.append(
            f"rates not judged (no profile, no other device of the model, no earlier run): {', '.join(unjudged)}"
        )
    return tuple(scope)
