"""The actions that the report names for the cards of a described machine, and those that its faults call for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.checking.check import Hardware
from harness.records import Card, CheckResult, Exercised, Finding, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts

_LINK, _SWAP = "look at the link between them", "swap with another, and see whether the fault moves"
_FREE, _POWER = "free its memory, or reset", "power the node off and on, and reseat"
#: What to do about a card, or a pair, with each fault, or with a variant of it.
ACTIONS = {
    "link-width": "reseat",
    "link-generation": "reseat",
    "hot": "improve its cooling",
    "ecc": "replace",
    "row-remap": "reset",
    "row-remap failed": "replace",
    "retired-pages": "reset",
    "retired-pages count": "replace",
    "power-limit": "raise its power limit",
    "memory-held": _FREE,
    "stuck-allocation": _FREE,
    "lost": _POWER,
    "xid": _POWER,
    "xid code = 48": "reset",
    "zeros": _LINK,
    "pair-flip": _LINK,
    "shifted": _LINK,
    "stale": _LINK,
    "bit-flip": "replace",
    "wrong-card": "replace",
    "wrong-arithmetic": "replace",
    "no-write": "replace",
    "stuck-bit": "replace",
    "slow": _SWAP,
    "missing": "find out why TensorFlow skips it",
    "misnumbered": "look at CUDA_VISIBLE_DEVICES",
    "replays": "reseat",
    "nvlink-down": "reseat",
    "leak": "try another TensorFlow and driver",
    "collective-drop": "look at its links",
    "kernels-missing": "use a TensorFlow that supports it",
    "nvml-error RESET_REQUIRED": "reset",
}
_ELSE = "look at it"
#: Where the cause is outside of all cards.
_SHARED = {"zeros": "switch off PCIe access control (ACS) and the IOMMU"}
_WHERE = re.compile(r"card = (\d+)|pair = \[(\d+), (\d+)\]|cards = \[(\d+), (\d+)\]")


def wrong_actions(machine: Hardware, findings: Sequence[Finding], faults: Sequence[str]) -> list[str]:
    """Return each verdict about a card or a pair whose action is not that of one of its faults."""
    result = CheckResult("x", Verdict.FAIL, "", "", Exercised(), findings=tuple(findings))
    record = RunRecord("", "", (), "", Verdict.FAIL, 1, True, (result,), cards=machine.cards)
    wanted: dict[tuple[int, ...], set[str]] = {}
    for fault in faults:
        kind, _, keys = fault.partition(" ")
        where = _WHERE.search(keys)
        slots = tuple(int(each) for each in where.groups() if each) if where else tuple(map(_slot, machine.cards))
        variant = next(
            (f"{kind} {word}" for word in ("failed", "count", "RESET_REQUIRED", "code = 48") if word in keys), kind
        )
        for named in [slots] if ACTIONS.get(kind) == _LINK else [(slot,) for slot in slots]:
            wanted.setdefault(named, set()).add(ACTIONS.get(variant, ACTIONS.get(kind, _ELSE)))
    for card in machine.cards:
        ends = {end for named in wanted if len(named) == 2 and _slot(card) in named for end in named}
        if len(ends) > 2:
            # Every copy of the card is wrong, so it is the card.
            wanted.setdefault((_slot(card),), set()).add("replace")
    cards = {card.label: card for card in (*machine.cards, *machine.present)}
    wrong = []
    kinds = {fault.partition(" ")[0] for fault in faults}
    for verdict in card_verdicts(record):
        if verdict.shared:
            if verdict.action not in {_SHARED.get(kind) for kind in kinds}:
                wrong.append(f"the machine: {verdict.action}: {verdict.reasons}")
            continue
        slots = tuple(_slot(cards[label]) for label in verdict.labels)
        if verdict.action not in wanted.get(slots, {_ELSE}):
            wrong.append(f"{slots}: {verdict.action}, and should be {wanted.get(slots)}: {verdict.reasons}")
    return wrong


def _slot(card: Card) -> int:
    if card.uuid is None:
        assert card.index is not None
        return card.index
    return int(card.uuid.rpartition("-")[2], 16)
