"""What is wrong with the results of an operation: of one card alone, and of cards that should agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from harness.hardware.arithmetic.bounds import Allowed
from harness.hardware.disagreement import Deviation, bits, deviation, odd_ones
from harness.hardware.naming import described, device_of
from harness.records import Card, Finding, Verdict

#: Operations of which a library may choose another algorithm on each card, by measuring: the bits may then differ.
_CHOSEN_BY_MEASURING = ("convolution",)


@dataclass(frozen=True)
class Ran:
    """Two runs of an operation on a card: ``wide`` results to compare with ``reference``, and ``raw`` ones for bits.

    Without a reference the bits alone are judged.
    """

    operation: str
    card: Card
    wide: tuple[NDArray[Any], ...]
    raw: tuple[NDArray[Any], NDArray[Any]]
    reference: NDArray[Any] | None
    allowed: Allowed | None


def judge_alone(ran: Ran) -> list[Finding]:
    """``arithmetic`` where a result is beyond its bound, ``nondeterminism`` where the second run has other bits."""
    findings = []
    if ran.reference is not None and ran.allowed is not None:
        worst = max((deviation(each, ran.reference, ran.allowed) for each in ran.wide), key=lambda each: each.share)
        if worst.count:
            findings.append(_beyond(ran, worst))
    again = bits(*ran.raw)
    if again.count:
        findings.append(
            Finding(
                kind="nondeterminism",
                where=ran.operation,
                device=device_of(ran.card),
                expected=f"element {list(again.index)}: {again.first}, as in the first run",
                found=f"{again.second} in a second run of the same operands",
                message=f"{described(ran.card)} gives other bits for {ran.operation} when it runs again: "
                f"{again.count} element(s)",
            )
        )
    return findings


def _beyond(ran: Ran, worst: Deviation) -> Finding:
    return Finding(
        kind="arithmetic",
        where=f"{ran.operation}, element {list(worst.index)}",
        device=device_of(ran.card),
        expected=f"{worst.expected}, within the bound of its arithmetic",
        found=worst.found,
        message=f"{described(ran.card)} computes {ran.operation} wrong: {worst.count} element(s) beyond the bound, the "
        f"worst by {_times(worst.share)}",
    )


def _times(share: float) -> str:
    return (
        "more than any bound, where the result is exact or not finite"
        if share == float("inf")
        else f"{share:.3g} times"
    )


def judge_alike(
    operation: str, cards: Sequence[Card], digests: Mapping[str, str], found: Sequence[Finding]
) -> list[Finding]:
    """``corruption`` of each card whose bits differ from most cards of its kind and model.

    ``digests`` are of the results, by label. A card of which ``found`` already says that this operation is wrong is not
    named again.
    """
    odd, sure = odd_ones({card.label: digests[card.label] for card in cards})
    known = {each.device for each in found if each.where.partition(",")[0] == operation}
    named = [card for card in cards if card.label in odd and device_of(card) not in known]
    if not sure and len(named) < len(odd):
        # One of those that differ is known to be wrong, so that the others need not be.
        return []
    severity = Verdict.WARN if operation.startswith(_CHOSEN_BY_MEASURING) else Verdict.FAIL
    if not sure:
        labels = " and ".join(described(card) for card in named)
        message = f"{labels} give different bits for {operation}, and too few cards agree to say which is wrong"
        return [_differs(operation, None, message, severity)] if named else []
    return [
        _differs(
            operation,
            device_of(card),
            f"{described(card)} gives other bits for {operation} than most of the {len(cards)} cards of its kind",
            severity,
        )
        for card in named
    ]


def _differs(operation: str, device: str | None, message: str, severity: Verdict) -> Finding:
    if severity is Verdict.WARN:
        message += "; a library that chooses its algorithm by measuring may choose another one on each card"
    return Finding(
        kind="corruption",
        where=operation,
        device=device,
        expected="the same bits on each card of the same kind",
        found="other bits",
        message=message,
        severity=severity,
    )


_STEPS = {
    "arithmetic": "run --only arithmetic --level deep again, and take {card} out of use if it is wrong again: its "
    "results cannot be trusted",
    "nondeterminism": "take {card} out of use until --only arithmetic --only corruption passes ten times; look at its "
    "memory errors and its temperature (check sustained-load)",
    "corruption": "run --only corruption, and move {card} to another slot: what goes with the card is the card's; "
    "where convolutions alone differ, set TF_CUDNN_USE_AUTOTUNE=0 and run it again first",
    "rate": "look at clocks, temperature and power of {card} (check sustained-load) and at its link (check copies); "
    "then swap it with another card: slowness that goes with the card is the card's",
}
_TOO_FAST = (
    "no card does more than its peak: either the work of {card} was not done, or the clock or the profile is wrong; "
    "compare the name that nvidia-smi -L gives with the profile, and run --only software --only arithmetic again"
)


def next_step(findings: Sequence[Finding]) -> str:
    """What to do about the findings that fail, or else about the warnings, naming the card of each."""
    steps = []
    for severity in (Verdict.FAIL, Verdict.WARN):
        for kind, step in _STEPS.items():
            of_kind = [each for each in findings if (each.kind, each.severity) == (kind, severity)]
            fast = [each for each in of_kind if "faster than" in each.message]
            steps += _said(step, [each for each in of_kind if each not in fast]) + _said(_TOO_FAST, fast)
        if steps:
            return "; ".join(steps)
    return "run it with --level standard, and with devices that have kernels for it"


def _said(step: str, findings: Sequence[Finding]) -> list[str]:
    """The step with the cards of the findings in it; nothing where there are none."""
    cards = list(dict.fromkeys(_card(each) for each in findings))
    return [step.format(card=", ".join(cards))] if cards else []


def _card(finding: Finding) -> str:
    if finding.device is None:
        return "each of the cards named"
    return finding.device.rpartition("/device:")[2] or finding.device
