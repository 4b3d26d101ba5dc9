"""A finding about a card with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records import Card, Finding, Verdict


@dataclass(frozen=True, slots=True)
class Advised:
    """A finding, and the next step for whoever looks after the machine."""

    finding: Finding
    do: str


def named(card: Card) -> str:
    """How a text names a card: by its label, and by its place in the machine where that is known."""
    return f"{card.label} (PCI {card.pci})" if card.pci is not None else card.label


def device_of(card: Card) -> str:
    """What a finding calls the card: TensorFlow's full name, or the label of one that TensorFlow does not see."""
    return card.device or card.label


def advised(
    kind: str,
    card: Card,
    where: str,
    expected: str,
    found: str,
    message: str,
    do: str,
    severity: Verdict = Verdict.FAIL,
) -> Advised:
    """A finding about ``card``; ``message`` and ``do`` go on where the card's name ends."""
    name = named(card)
    made = Finding(kind, where, device_of(card), expected, found, f"{name} {message}", severity)
    return Advised(made, f"{name}: {do}")
