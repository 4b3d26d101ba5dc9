"""Judges the modes of the cards: fabric, ECC and persistence. The last two are hints, except on a card that differs."""

from __future__ import annotations

from collections.abc import Sequence

from harness.hardware.driver_errors import FABRIC
from harness.hardware.finding import finding
from harness.hardware.sustained_load.measure import Load
from harness.plural import plural
from harness.records import Finding, Verdict

#: What a line of the scope begins with that an operator should read.
HINT = "hint: "
#: NVML's states of a fabric in which the card cannot use it.
_NOT_SET_UP = {1: "not started", 2: "in progress"}
_ECC_ON = "switch it on with nvidia-smi -e 1 and reset the card, unless it was switched off on purpose"


def judge_settings(loads: Sequence[Load]) -> tuple[list[Finding], list[str]]:
    """Return the cards without ECC beside others of their model that have it, and hints about modes."""
    found: list[Finding] = []
    hints: list[str] = []
    without_ecc: list[str] = []
    transient: list[str] = []
    for load in loads:
        details, card = load.readings[-1].details, load.card
        if (state := _NOT_SET_UP.get(details.fabric or 0)) is not None:
            found.append(
                finding(
                    "link",
                    card,
                    "fabric",
                    expected="completed",
                    found=state,
                    message=f"has no NVSwitch fabric: its registration is {state}",
                    next_step=FABRIC,
                    subject="fabric",
                )
            )
        alike = [other for other in loads if other.card.name == card.name and other is not load]
        if details.ecc_on is False:
            if sum(bool(other.readings[-1].details.ecc_on) for other in alike) > len(alike) / 2:
                found.append(
                    finding(
                        "mixed-cards",
                        card,
                        "ECC mode",
                        expected="on, as on the others of its model",
                        found="off",
                        message="has ECC off, unlike the others of its model: errors of its memory go unnoticed",
                        next_step=_ECC_ON,
                        severity=Verdict.WARN,
                        subject="ECC mode",
                    )
                )
            else:
                without_ecc.append(card.label)
        if details.persistent is False:
            transient.append(card.label)
    if without_ecc:
        hints.append(f"{HINT}ECC is off on {_named(without_ecc)}: errors of the memory go unnoticed; {_ECC_ON}")
    if transient:
        hints.append(
            f"{HINT}persistence mode is off on {_named(transient)}: without a program, the driver forgets its error "
            "counts and settings, and the next program starts slowly; run nvidia-persistenced, or nvidia-smi -pm 1"
        )
    return found, hints


def _named(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= 4 else plural(len(labels), "GPU")
