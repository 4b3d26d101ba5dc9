"""What to do with each GPU: one line for each that has findings, and one for all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.plural import plural
from harness.records import Card, Finding, RunRecord, Verdict
from harness.report.printable import device_label, one_line

#: Words of next steps, and the action that they come to; the first that occurs in any finding counts.
_ACTIONS = (
    ("replaced", "replace"),
    ("out of service", "replace"),
    ("reset", "reset"),
    ("power the node off", "reset"),
    ("reseat", "reseat"),
    ("fans", "cool"),
    ("power cables", "look at its power supply"),
    ("nvidia-smi -pl", "raise its power limit"),
)
_ELSE = "look at it"
#: Findings shown of each card.
_SHOWN = 2


def card_verdicts(record: RunRecord) -> list[str]:
    """Return the lines, worst cards first; none where no finding is about a GPU."""
    cards = {card.label: card for card in record.cards if card.is_gpu}
    found: dict[str, list[Finding]] = {}
    for finding in (each for result in record.results for each in result.findings):
        subject = " -> ".join(finding.pair) if finding.pair else device_label(finding.device)
        if finding.pair or subject in cards or subject.startswith(("nvml:", "pci:")):
            found.setdefault(subject, []).append(finding)
    if not cards or not found:
        return []
    lines = [_line(subject, cards.get(subject), findings) for subject, findings in sorted(found.items(), key=_rank)]
    named = {label for subject in found for label in subject.split(" -> ")}
    others = len(cards.keys() - named)
    return [*lines, *([f"{plural(others, 'other GPU')}: healthy"] if others else [])]


def _rank(entry: tuple[str, list[Finding]]) -> tuple[bool, str]:
    return not any(each.severity is Verdict.FAIL for each in entry[1]), entry[0]


def _line(subject: str, card: Card | None, findings: Iterable[Finding]) -> str:
    strongest = sorted(findings, key=lambda each: (each.severity is not Verdict.FAIL, _action_of(each)[0]))
    what = f"GPU {subject}" if subject.startswith(("nvml:", "pci:")) else subject
    facts = ", ".join(_facts(card)) if card is not None else ""
    shown = "; ".join(dict.fromkeys(_message(each, subject) for each in strongest))
    parts = shown.split("; ")
    more = f"; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    action = min(_action_of(each) for each in strongest)[1]
    if " -> " in subject and action == _ELSE:
        action = "look at the link"
    return f"{what}{f' ({facts})' if facts else ''}: {action}: {'; '.join(parts[:_SHOWN])}{more}"


def _facts(card: Card) -> Iterator[str]:
    for name, value in (("serial", card.serial), ("", card.uuid), ("PCI", card.pci)):
        if value is not None:
            yield f"{name} {value}".strip()


def _message(finding: Finding, subject: str) -> str:
    """Return the message without the name of the card, which stands in front of the line."""
    text = one_line(finding.message)
    if text.startswith(subject):
        text = text.removeprefix(subject).lstrip()
        if text.startswith("(PCI "):
            text = text.partition(") ")[2]
    return text.replace("; ", ", ")


def _action_of(finding: Finding) -> tuple[int, str]:
    for rank, (words, action) in enumerate(_ACTIONS):
        if words in finding.next_step:
            return rank, action
    return len(_ACTIONS), _ELSE
