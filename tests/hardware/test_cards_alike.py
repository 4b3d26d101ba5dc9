"""A card that differs from most of the others is named; machines that are mixed on purpose are left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.hardware.cards.alike import judge_alike
from harness.records import Card, CheckResult, Exercised, Finding, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts

GIB = 2**30
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
RESULT = CheckResult("cards", Verdict.WARN, "", "", Exercised(values=1))


def cards(count: int, **odd: object) -> list[Card]:
    """Cards of one kind; the last one differs by ``odd``."""
    alike = [
        Card(f"GPU:{at}", H100, uuid=f"GPU-{at}", memory_bytes=80 * GIB, vbios="96.1", board_part="692", kind="GPU")
        for at in range(count)
    ]
    return [*alike[:-1], replace(alike[-1], **odd)]  # type: ignore[arg-type]


def actions(found: list[Finding]) -> list[str]:
    result = replace(RESULT, findings=tuple(found))
    record = RunRecord("", "", (), "", Verdict.WARN, 0, True, (result,), cards=tuple(cards(8)))
    return [each.action for each in card_verdicts(record)]


@pytest.mark.parametrize(
    ("odd", "what", "action"),
    [
        ({"name": A100}, "model", "find out whether it belongs here"),
        ({"memory_bytes": 40 * GIB}, "memory", "compare its ECC mode with that of the other cards"),
        ({"vbios": "96.2"}, "VBIOS", "update its VBIOS"),
    ],
)
@pytest.mark.parametrize("count", [4, 8])
def test_the_card_that_is_unlike_the_others_is_a_warning(
    count: int, odd: dict[str, object], what: str, action: str
) -> None:
    found, _ = judge_alike(cards(count, **odd))
    assert [(each.kind, each.device, each.where, each.severity) for each in found] == [
        ("mixed-cards", f"GPU:{count - 1}", what, Verdict.WARN)
    ]
    assert actions(found) == [action]


@pytest.mark.parametrize(
    "known",
    [
        cards(8),
        cards(1),
        cards(2, name=A100),
        cards(3, vbios="96.2"),
        # Boards of different makers, and cards that do not say which board they are.
        cards(8, vbios="97.0", board_part="699"),
        [replace(card, board_part=None, vbios=card.label) for card in cards(8)],
        # A card for a display, as in a workstation with four large ones.
        cards(5, name="NVIDIA DGX Display", memory_bytes=4 * GIB),
        # Half and half, on purpose.
        [*cards(4), *(replace(card, uuid=f"B{card.uuid}", name=A100) for card in cards(4))],
        # What the driver keeps for itself.
        cards(8, memory_bytes=80 * GIB - 2**20),
        # Two halves of one card, and slices of another one.
        [replace(card, uuid="GPU-0") for card in cards(4, name=A100)],
        [replace(card, uuid=f"MIG-{card.label}") for card in cards(4, memory_bytes=10 * GIB)],
    ],
)
def test_cards_that_are_alike_or_mixed_on_purpose_are_not(known: list[Card]) -> None:
    assert judge_alike(known)[0] == []


def test_without_a_majority_different_vbios_are_told_and_not_judged() -> None:
    assert judge_alike(cards(2, vbios="96.2")) == ([], ["VBIOS versions differ: GPU:0 has 96.1, GPU:1 has 96.2"])
