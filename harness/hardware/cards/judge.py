"""Judges which cards are there: what the driver knows against what TensorFlow has, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.hardware.advised import Advised, advised
from harness.records import Card, Verdict


def judge_numbering(
    cards: Sequence[Card], present: Sequence[Card], numbering: Sequence[str], visible: str | None
) -> tuple[list[Advised], list[str]]:
    """What is wrong, and what could not be told.

    ``cards`` are those that are checked, ``present`` those of the driver in its order, ``numbering`` the UUIDs of all
    cards that TensorFlow has in its order (empty where nobody can tell), ``visible`` is ``CUDA_VISIBLE_DEVICES``.
    """
    scope: list[str] = []
    found = list(_twice(cards))
    known = [card for card in present if card.uuid is not None]
    if not known or not numbering:
        if any(card.label.startswith("GPU") for card in cards):
            scope.append("the driver's list of cards could not be had: that none is missing is not proven")
        else:
            scope.append("logical CPUs: there is no driver to compare their numbers with")
        return found, scope
    expected = _expected(known, visible)
    found += _missing(expected, numbering, len(known))
    there = [card.uuid for card in expected if card.uuid in set(numbering)]
    names = {card.name for card in known}
    if len(names) > 1 and not _numbers(visible):
        scope.append(f"{len(names)} models of card: CUDA sorts them by speed, so that their order is not judged")
    elif not found:
        found += _order(cards, there, numbering)
    shown = visible if visible is not None else "not set"
    scope.append(
        f"the driver knows {len(known)} cards, CUDA_VISIBLE_DEVICES is {shown}, TensorFlow has {len(numbering)}"
    )
    return found, scope


def _twice(cards: Sequence[Card]) -> Iterator[Advised]:
    for field in ("device", "uuid", "pci"):
        values = Counter(getattr(card, field) for card in cards)
        for card in cards:
            value = getattr(card, field)
            # Logical GPUs share a card, and so its UUID and PCI id; their devices differ.
            if value is not None and values[value] > 1 and field == "device":
                yield advised(
                    "missing-device",
                    card,
                    f"{field} {value}",
                    "each card once",
                    f"{values[value]} times",
                    f"has the same {field} as another card: {value}",
                    "look at CUDA_VISIBLE_DEVICES; a card that is named twice is one card",
                )


def _numbers(visible: str | None) -> bool:
    """Whether cards are chosen by UUID alone, which leaves nothing to CUDA's own order."""
    return visible is not None and all(part.strip().startswith("GPU-") for part in visible.split(","))


def _expected(known: Sequence[Card], visible: str | None) -> list[Card]:
    """The cards that CUDA should show, in order: up to the first entry that names none, as CUDA's guide says."""
    if visible is None:
        return list(known)
    chosen: list[Card] = []
    for part in (each.strip() for each in visible.split(",")):
        if part.isdigit():
            named = [known[int(part)]] if int(part) < len(known) else []
        else:
            named = [card for card in known if part.startswith("GPU-") and (card.uuid or "").startswith(part)]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return chosen


def _missing(expected: Sequence[Card], numbering: Sequence[str], known: int) -> Iterator[Advised]:
    for card in expected:
        if card.uuid not in numbering:
            yield advised(
                "missing-device",
                card,
                "the list of TensorFlow's GPUs",
                f"all {known} cards of the driver that are not hidden",
                "not there",
                f"is known to the driver as number {card.index} and is not there for TensorFlow",
                "see what TensorFlow says of it when it starts (TF_CPP_MIN_LOG_LEVEL=0) and the kernel's log (dmesg); "
                "look at MIG, at the compute mode and at who may use /dev/nvidia*",
            )


def _order(cards: Sequence[Card], expected: Sequence[str | None], numbering: Sequence[str]) -> Iterator[Advised]:
    if list(expected) == list(numbering):
        return
    by_uuid = {card.uuid: card for card in cards}
    for at, (wanted, got) in enumerate(zip(expected, numbering, strict=False)):
        card = by_uuid.get(got)
        if wanted != got and card is not None:
            yield advised(
                "missing-device",
                card,
                f"number {at} of TensorFlow's GPUs",
                str(wanted),
                got,
                f"is number {at} for TensorFlow, where CUDA_VISIBLE_DEVICES puts another card ({wanted})",
                "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name cards by UUID in CUDA_VISIBLE_DEVICES",
                Verdict.WARN,
            )
