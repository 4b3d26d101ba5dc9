"""The devices of the machine: their ids, their links, and the findings on each."""

from __future__ import annotations

from harness.records import Card, Figure, RunRecord, Verdict
from harness.report.printable import device_label
from harness.report.quantities import TIMES, number, quantity, size
from harness.report.verdicts import SEVERITY

#: Words in the names of figures about links.
_LINK_WORDS = ("link", "pcie", "host-to-device", "device-to-host", "replay")


def cards_of(record: RunRecord) -> list[dict[str, object]]:
    """List the devices of the machine with their facts and links; empty where no check looked at them.

    ``worst`` is ``None`` without findings, which is not a pass: the device may not have been checked.
    """
    return [_view(record, card) for card in record.cards]


def _view(record: RunRecord, card: Card) -> dict[str, object]:
    known = {card.label, card.device} - {None}
    severities = [
        Verdict.WARN if result.accepted_as is not None else finding.severity
        for result in record.results
        for finding in result.findings
        if finding.device in known or device_label(finding.device) == card.label
    ]
    return {
        "card": card,
        "facts": _facts(card),
        "links": _links(record, card),
        "worst": min(severities, key=SEVERITY.index, default=None),
        "findings": len(severities),
    }


def _facts(card: Card) -> tuple[tuple[str, str], ...]:
    others = "correct results (rates are informational)" if card.shares_threads else "the median of this machine"
    facts = (
        ("index", None if card.index is None else str(card.index)),
        ("PCI", card.pci),
        ("NUMA node", None if card.numa_node is None else str(card.numa_node)),
        ("compute capability", card.compute_capability),
        ("memory", None if card.memory_bytes is None else size(card.memory_bytes)),
        ("UUID", card.uuid),
        ("serial number", card.serial),
        ("slot", card.slot),
        ("board part number", card.board_part),
        ("VBIOS", card.vbios),
        ("judged against", None if card.error else card.profile or others),
        ("error", card.error),
    )
    return tuple((name, text) for name, text in facts if text is not None)


def is_of_link(name: str) -> bool:
    """Whether a figure or sensor of that name is about a link."""
    return any(word in name.lower() for word in _LINK_WORDS)


def _against(figure: Figure) -> str:
    of = f" of {number(figure.expected)}" if figure.expected else ""
    return f"{number(figure.value)}{of} {figure.unit}".rstrip() + (" expected" if of else "")


def _links(record: RunRecord, card: Card) -> tuple[tuple[str, str], ...]:
    """Give the last figure or reading of each name that is about a link of the device."""
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
