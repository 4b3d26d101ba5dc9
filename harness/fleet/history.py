"""What runs show over time: a fault that moves with a card or stays with its place, and figures that get worse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.fleet.outliers import Conditions, Measured, values_of
from harness.fleet.policy import Judging
from harness.fleet.seen import Seen, identity, place
from harness.fleet.statistics import center_and_spread
from harness.fleet.verdicts import Offender, Trend
from harness.records import Verdict
from harness.report.card_verdicts import card_verdicts
from harness.report.quantities import TIMES, percent, quantity

#: Earlier values without which there is no trend, and spreads by which the last one has to differ.
_LEAST, _FAR = 3, 3.0
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Stay:
    """A card in one run: where it sat, and what was wrong with it."""

    started_at: str
    machine: str
    place: str
    verdict: Verdict
    reason: str
    path: str


@dataclass(frozen=True, slots=True)
class CardHistory:
    """All runs of a card, and what follows from where it sat."""

    card: str
    stays: tuple[Stay, ...]
    #: Places where it failed, with the other cards that failed there.
    shared_places: tuple[tuple[str, int], ...]
    conclusion: str


def of_card(runs: Sequence[Seen], serial: str) -> CardHistory:
    """Return the history of the card with a serial number, or a UUID."""
    stays: list[tuple[Seen, str, Stay]] = []
    failed_at: dict[str, set[str]] = defaultdict(set)
    for seen in _in_time(runs):
        faults = _faults(seen)
        for label, card in seen.cards.items():
            fault = faults.get(label)
            where = place(seen, label)
            if fault is not None:
                failed_at[where].add(identity(seen, label))
            if serial in (card.serial, card.uuid):
                verdict = Verdict.FAIL if fault is not None else _passed(seen)
                stay = Stay(seen.record.started_at, seen.host, where, verdict, fault or "", seen.path)
                stays.append((seen, label, stay))
    own = [stay for _, _, stay in stays]
    names = {identity(seen, label) for seen, label, _ in stays}
    bad = [stay.place for stay in own if stay.verdict is Verdict.FAIL]
    others = {where: len(failed_at[where] - names) for where in dict.fromkeys(bad)}
    return CardHistory(serial, tuple(own), tuple(others.items()), _conclusion(own, others))


def offenders(by_host: Mapping[str, Sequence[Seen]]) -> list[Offender]:
    """Return the cards that failed in more than one run, the most often first."""
    runs: dict[str, int] = defaultdict(int)
    failed: dict[str, int] = defaultdict(int)
    places: dict[str, dict[str, None]] = defaultdict(dict)
    for own in by_host.values():
        if len(own) == 1 and not own[0].record.cards:
            continue
        for seen in own:
            faults = _faults(seen)
            for label in seen.cards:
                card = identity(seen, label)
                runs[card] += 1
                if label in faults:
                    failed[card] += 1
                    places[card][place(seen, label)] = None
    found = [Offender(card, count, runs[card], tuple(places[card])) for card, count in failed.items() if count > 1]
    return sorted(found, key=lambda each: (-each.failed, each.card))


def trends(by_host: Mapping[str, Sequence[Seen]], judging: Judging) -> Iterator[Trend]:
    """Yield the figures that were worse in a card's last run than in its earlier ones, the worst first."""
    values: dict[tuple[str, Measured, Conditions], list[tuple[str, str, float]]] = defaultdict(list)
    for own in by_host.values():
        if len(own) <= _LEAST:
            continue
        for seen in own:
            for measured, unit, conditions, labels, value in values_of(seen):
                if len(labels) == 1:
                    values[identity(seen, labels[0]), measured, conditions].append((seen.host, unit, value))
    found = []
    for (card, measured, _), series in values.items():
        machine, unit, last = series[-1]
        if len(series) <= _LEAST:
            continue
        center, spread = center_and_spread([value for _, _, value in series[:-1]], judging.spread_floor)
        away = last - center if unit in TIMES else center - last
        if center and away > judging.least_effect * abs(center) and away > _FAR * spread:
            text = (
                f"{measured[1]}: {quantity(last, unit)}, {percent(last / center)} of the median of its "
                f"{len(series) - 1} earlier runs ({quantity(center, unit)})"
            )
            found.append((-away / abs(center), card, machine, text))
    for _, card, machine, text in sorted(found)[:_SHOWN]:
        yield Trend(card, machine, text)


def _faults(seen: Seen) -> dict[str, str]:
    """Return the first reason of each card that failed, by label; of a bad link, on both of its ends."""
    return {
        label: each.reasons[0] if each.reasons else each.action
        for each in reversed(card_verdicts(seen.record))
        if each.severity is Verdict.FAIL
        for label in each.labels
    }


def _passed(seen: Seen) -> Verdict:
    return Verdict.PASS if seen.record.complete and seen.exercised and not seen.unproven else Verdict.UNKNOWN


def _in_time(runs: Sequence[Seen]) -> list[Seen]:
    return sorted(runs, key=lambda seen: (seen.started is not None and seen.started.timestamp(), seen.path))


def _conclusion(stays: Sequence[Stay], others: Mapping[str, int]) -> str:
    failed = list(dict.fromkeys(stay.place for stay in stays if stay.verdict is Verdict.FAIL))
    fine = list(
        dict.fromkeys(stay.place for stay in stays if stay.verdict is Verdict.PASS and stay.place not in failed)
    )
    if not stays:
        return "no run of this card"
    if not failed:
        return "never failed"
    if len(failed) > 1:
        return f"failed in {len(failed)} places: the fault moves with the card; replace it"
    if others[failed[0]]:
        return (
            f"other cards failed at {failed[0]} too: the fault stays with the place; look at its slot, riser and power"
        )
    if fine:
        return f"failed only at {failed[0]}, and passed at {', '.join(fine)}: look at the place"
    return f"failed at {failed[0]}, the only place where it was seen: swap it with another card, and run both again"
