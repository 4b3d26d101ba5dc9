"""The machine as the page shows it: its cards with their ids, their links, and what was found on each."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records import Card, Figure, RunRecord, Verdict
from harness.report.printable import device_label
from harness.report.quantities import TIMES, number, quantity, size
from harness.report.standing import SEVERITY

#: Words in the names of figures that say what a link is and does.
_LINK_WORDS = ("link", "pcie", "host-to-device", "device-to-host", "replay")


@dataclass(frozen=True, slots=True)
class CardView:
    """One card: its facts and what its links are and reach, as names with texts. ``worst`` is of the findings on it.

    ``worst`` is ``None`` where no finding names the card, which is no pass: it may not have been looked at.
    """

    label: str
    name: str
    facts: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    worst: Verdict | None
    findings: int


def cards_of(record: RunRecord) -> tuple[CardView, ...]:
    """The cards of the machine, in TensorFlow's order; empty where no check looked at the machine."""
    return tuple(_view(record, card) for card in record.cards)


def _view(record: RunRecord, card: Card) -> CardView:
    known = {card.label, card.device} - {None}
    severities = [
        Verdict.WARN if result.accepted_as is not None else finding.severity
        for result in record.results
        for finding in result.findings
        if finding.device in known or device_label(finding.device) == card.label
    ]
    return CardView(
        label=card.label,
        name=card.name,
        facts=_facts(card),
        links=_links(record, card),
        worst=min(severities, key=SEVERITY.index, default=None),
        findings=len(severities),
    )


def _facts(card: Card) -> tuple[tuple[str, str], ...]:
    others = "right results; its rates are told" if card.shares_threads else "the median of this machine"
    facts = (
        ("index", None if card.index is None else str(card.index)),
        ("PCI", card.pci),
        ("NUMA node", None if card.numa_node is None else str(card.numa_node)),
        ("compute capability", card.compute_capability),
        ("memory", None if card.memory_bytes is None else size(card.memory_bytes)),
        ("UUID", card.uuid),
        ("judged against", card.profile or others),
    )
    return tuple((name, text) for name, text in facts if text is not None)


def is_of_link(name: str) -> bool:
    """Whether a figure or a sensor of that name says something of a card's link."""
    return any(word in name.lower() for word in _LINK_WORDS)


def _against(figure: Figure) -> str:
    of = f" of {number(figure.expected)}" if figure.expected else ""
    return f"{number(figure.value)}{of} {figure.unit}".rstrip()


def _links(record: RunRecord, card: Card) -> tuple[tuple[str, str], ...]:
    """The last figure of each name that says something of a link of the card, and the last reading of such a sensor."""
    found: dict[str, str] = {}
    for result in record.results:
        for figure in result.figures:
            ends = (device_label(figure.device), device_label(figure.peer))
            single = card.label in ends and ("host" in ends or figure.peer is None)
            if single and is_of_link(figure.name) and figure.unit not in TIMES:
                found[figure.name] = _against(figure)
        for series in result.series:
            known = [value for value in series.values if value is not None]
            if known and is_of_link(series.name) and device_label(series.device) == card.label:
                found[series.name] = quantity(known[-1], series.unit)
    return tuple(found.items())
