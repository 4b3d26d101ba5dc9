"""Joins findings that are alike on all cards of a machine: they have one cause, and it is outside of the cards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.hardware.finding import card_name, device_of
from harness.records import Card, Finding

#: On so many cards, what is alike on all is taken for one cause.
LEAST_CARDS = 3
#: Each card is wrong in its own way, whatever the others compute.
_OF_ONE_CARD = frozenset({"corruption", "memory", "nondeterminism", "arithmetic"})


def joined(findings: Iterable[Finding], cards: Sequence[Card]) -> list[Finding]:
    """Return the findings, with one in the place of those that are alike on all of ``cards``.

    Alike are those with the same place, severity and next step. Devices that share a card count as one.
    """
    found = list(findings)
    by_device = {device_of(card): card for card in cards if card.is_gpu}
    count = len({card.uuid or card.label for card in by_device.values()})
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for each in found:
        if each.device in by_device and each.pair is None and each.kind not in _OF_ONE_CARD:
            # The number of an Xid says what happened, and not how much.
            what = each.found if each.subject == "Xid" else ""
            key = (each.kind, each.where, each.subject, each.severity, each.next_step, what)
            groups.setdefault(key, []).append(each)
    for group in groups.values():
        devices = tuple(dict.fromkeys(str(each.device) for each in group))
        if count >= LEAST_CARDS and len({by_device[name].uuid or name for name in devices}) == count:
            found[found.index(group[0])] = _one(group, devices, by_device)
            found = [each for each in found if not any(each is other for other in group)]
    return found


def _one(group: Sequence[Finding], devices: tuple[str, ...], cards: dict[str, Card]) -> Finding:
    texts = [
        each.message.removeprefix(f"{card_name(cards[str(each.device)])} ").removeprefix(f"{each.device} ")
        for each in group
    ]
    alike = texts[0] if len(set(texts)) == 1 else f"{texts[0]}, or nearly so"
    return replace(
        group[0],
        device=None,
        devices=devices,
        message=f"each of the {len(devices)} GPUs {alike}",
        lasting=all(each.lasting for each in group),
    )
