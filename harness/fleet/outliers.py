"""Which cards are slower than the others of their cohort? Medians and spreads that faulty cards cannot move."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.fleet.policy import Judging
from harness.fleet.seen import Seen
from harness.fleet.statistics import center_and_spread, discoveries, median, tail
from harness.records import CheckResult, Figure, Quantity
from harness.report.printable import device_label
from harness.report.quantities import NOTHING, TIMES, percent, quantity, size

#: What is measured, the same on every machine: check, figure, size, and the kinds of its ends.
Measured = tuple[str, str, str, str]
#: What else has to be the same for values to be compared: the model of the card, the harness, its firmware, the driver.
Conditions = tuple[str, str, str, str]
_HOST = "host"


@dataclass(frozen=True, slots=True)
class Place:
    """One value: of a card, of the link between two, or of the machine (without labels)."""

    run: int
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Cohort:
    """The values that are compared, and what is usual among them."""

    measured: Measured
    conditions: Conditions
    unit: str
    cards: int
    center: float
    spread: float

    def distance(self, value: float) -> float:
        """Return how far a value is on the bad side, in spreads."""
        away = value - self.center if self.unit in TIMES else self.center - value
        return away / self.spread if self.spread > 0 else 0.0

    def is_far(self, value: float, judging: Judging) -> bool:
        """Whether a value is worse than usual by enough to matter."""
        return self.distance(value) * self.spread > judging.least_effect * abs(self.center)


@dataclass(frozen=True, slots=True)
class Outlier:
    """A card, a link or a machine whose figure is worse than that of its cohort."""

    run: int
    labels: tuple[str, ...]
    cohort: Cohort
    value: float

    @property
    def figure(self) -> str:
        """The name of the figure."""
        return self.cohort.measured[1]

    @property
    def pair(self) -> bool:
        """Whether it is about the way between two cards."""
        return len(self.labels) == 2

    @property
    def text(self) -> str:
        """What was measured, and what is usual."""
        of = f" of {self.cohort.measured[2]}" if self.cohort.measured[2] else ""
        share = percent(self.value / self.cohort.center) if self.cohort.center else NOTHING
        unit = self.cohort.unit
        return (
            f"{self.figure}{of}: {quantity(self.value, unit)}, {share} of the median of {self.cohort.cards} "
            f"({quantity(self.cohort.center, unit)}, spread {quantity(self.cohort.spread, unit)})"
        )


@dataclass(frozen=True, slots=True)
class Shift:
    """A whole cohort that is slower than the others of its model: a fault of what it has in common."""

    measured: Measured
    unit: str
    fact: str
    value: str
    center: float
    others: float
    runs: frozenset[int]


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """What the comparison found, and how much was compared."""

    outliers: tuple[Outlier, ...]
    shifts: tuple[Shift, ...]
    #: Values that were judged, and those without enough others to compare with.
    judged: int
    too_few: int
    #: The cohorts, to judge earlier values by.
    cohorts: Mapping[tuple[Measured, Conditions], Cohort]


def compare(runs: Sequence[Seen], judging: Judging) -> ComparedRuns:
    """Compare the figures of ``runs``, one of each machine."""
    narrow: dict[tuple[Measured, Conditions], list[Place]] = defaultdict(list)
    units: dict[Measured, str] = {}
    for number, seen in enumerate(runs):
        for measured, unit, conditions, labels, value in values_of(seen):
            units.setdefault(measured, unit)
            if units[measured] == unit:
                narrow[measured, conditions].append(Place(number, labels, value))
    wide: dict[tuple[Measured, Conditions], list[Place]] = defaultdict(list)
    for (measured, conditions), places in narrow.items():
        wide[measured, _widened(conditions)] += places
    cohorts: dict[tuple[Measured, Conditions], Cohort] = {}
    tested: list[tuple[Cohort, Place]] = []
    too_few = 0
    for (measured, conditions), places in sorted(narrow.items()):
        enough = len(places) >= judging.least_cards
        basis = conditions if enough else _widened(conditions)
        among = places if enough else wide[measured, basis]
        if len(among) < judging.least_cards:
            too_few += len(places)
            continue
        if (measured, basis) not in cohorts:
            center, spread = center_and_spread([each.value for each in among], judging.spread_floor)
            cohorts[measured, basis] = Cohort(measured, basis, units[measured], len(among), center, spread)
        cohort = cohorts[measured, conditions] = cohorts[measured, basis]
        tested += [(cohort, place) for place in places]
    # A value on the better side, or near the median, cannot stand out.
    rate = judging.false_discovery_rate
    far = [(cohort, place, tail(z)) for cohort, place in tested if (z := cohort.distance(place.value)) > 1]
    far = [each for each in far if each[2] <= rate]
    believed = discoveries([chance for _, _, chance in far], rate, len(tested))
    found = [
        Outlier(place.run, place.labels, cohort, place.value)
        for (cohort, place, _), sure in zip(far, believed, strict=True)
        if sure and cohort.is_far(place.value, judging)
    ]
    slow = {(each.run, each.cohort.measured) for each in found if each.pair}
    links: dict[tuple[int, Measured], Counter[str]] = defaultdict(Counter)
    for cohort, place in tested:
        if (place.run, cohort.measured) in slow:
            links[place.run, cohort.measured].update(place.labels)
    return ComparedRuns(
        tuple(_by_card(found, links)),
        tuple(_shifts(narrow, units, judging)),
        len(tested),
        too_few,
        cohorts,
    )


def values_of(seen: Seen) -> Iterator[tuple[Measured, str, Conditions, tuple[str, ...], float]]:
    """Yield the figures of a run that can be compared with those of other machines."""
    cohort, cards = seen.cohort, seen.cards
    if cohort is None:
        return
    of_card = {label: (card.name, cohort.harness, card.vbios or "", cohort.driver) for label, card in cards.items()}
    of_machine = (cohort.card, cohort.harness, cohort.vbios, cohort.driver)
    whole = {label for label, card in cards.items() if card.part is None and not card.shares_threads}
    for result in seen.record.results:
        made: dict[tuple[str, int | None, bool, bool], Measured] = {}
        for figure in result.figures:
            one, other = device_label(figure.device), device_label(figure.peer)
            labels = tuple(end for end in (one, other) if end and end != _HOST)
            # Figures of parts of cards, and of devices that share cores, say nothing of a card.
            if not math.isfinite(figure.value) or figure.quantity is Quantity.POWER:
                continue
            if not whole.issuperset(labels) if labels else len(whole) < len(cards):
                continue
            key = (figure.name, figure.size_bytes, one == _HOST, other == _HOST)
            if key not in made:
                made[key] = _measured(result, figure, one, other)
            yield made[key], figure.unit, of_card[labels[0]] if labels else of_machine, labels, figure.value


def _measured(result: CheckResult, figure: Figure, one: str, other: str) -> Measured:
    kinds = "→".join(_HOST if end == _HOST else "card" for end in (one, other) if end)
    return result.check, figure.name, size(figure.size_bytes) if figure.size_bytes is not None else "", kinds


def _widened(conditions: Conditions) -> Conditions:
    return (*conditions[:2], "", "")


def _by_card(found: Iterable[Outlier], links: Mapping[tuple[int, Measured], Mapping[str, int]]) -> Iterator[Outlier]:
    """Yield the outliers; where most links of a card are slow, the card with its worst link instead of the links."""
    pairs: dict[tuple[int, Measured], list[Outlier]] = defaultdict(list)
    for each in found:
        if each.pair:
            pairs[each.run, each.cohort.measured].append(each)
        else:
            yield each
    for key, slow in pairs.items():
        left = slow
        while left:
            count = Counter(label for each in left for label in each.labels)
            label, many = min(count.items(), key=lambda item: (-item[1] / links[key][item[0]], item[0]))
            if many < 2 or many < links[key][label] / 2:
                yield from left
                break
            own = [each for each in left if label in each.labels]
            worst = max(own, key=lambda each: each.cohort.distance(each.value))
            yield Outlier(worst.run, (label,), worst.cohort, worst.value)
            left = [each for each in left if label not in each.labels]


def _shifts(
    narrow: Mapping[tuple[Measured, Conditions], Sequence[Place]], units: Mapping[Measured, str], judging: Judging
) -> Iterator[Shift]:
    """Yield the drivers, firmwares and harnesses whose machines are slower than all others of their model."""
    values: dict[tuple[Measured, str, str], dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
    for (measured, conditions), places in sorted(narrow.items()):
        for fact, value in zip(("harness", "VBIOS", "driver"), conditions[1:], strict=True):
            values[measured, conditions[0], fact][value] += places
    for (measured, _, fact), by_value in sorted(values.items()):
        enough = {value: places for value, places in by_value.items() if len(places) >= judging.least_cards}
        centers = {value: median([each.value for each in places]) for value, places in enough.items()}
        for value, center in centers.items():
            others = [other for name, other in centers.items() if name != value]
            better = (min if units[measured] in TIMES else max)(others, default=center)
            away = center - better if units[measured] in TIMES else better - center
            if away > judging.least_effect * abs(better):
                runs = frozenset(each.run for each in enough[value])
                yield Shift(measured, units[measured], fact, value, center, better, runs)
