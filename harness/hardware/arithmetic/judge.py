"""Judges the results of an operation: of one card by themselves, and of cards that should agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.hardware.arithmetic.bounds import Allowed
from harness.hardware.bits import changed_bits
from harness.hardware.finding import REPLACE, amount, card_name, device_of, finding
from harness.hardware.operations import wide
from harness.plural import plural
from harness.records import Card, Finding, Verdict

#: Operations for which a library measures which algorithm is fastest on each card, so the bits may differ.
_AUTOTUNED = ("convolution",)

_ARITHMETIC = (
    "run the check 'arithmetic' again with --level deep; if only this device fails again, take it out of service; if "
    "all devices fail, test the host's memory and try other versions of the libraries"
)
_NONDETERMINISM = (
    "take it out of service until it passes this check ten times in a row; look at its temperature (check "
    "'sustained-load'); on a GPU, also look at the ECC counts and try TF_CUDNN_USE_AUTOTUNE=0"
)
_MOVE = "move the card to another slot: if the difference moves with the card, the card is faulty"
_REPEAT = f"run the check again; if the same device differs again, {REPLACE}"
_TOO_FEW = (
    "run the check 'arithmetic' with more devices of this model: those whose bits differ from most of the others are "
    "faulty"
)


@dataclass(frozen=True)
class Ran:
    """The results of two runs of an operation on a card. Without a reference only their bits are judged."""

    operation: str
    card: Card
    results: tuple[NDArray[Any], NDArray[Any]]
    reference: NDArray[Any] | None = None
    allowed: Allowed | None = None


def judge_card(ran: Ran) -> list[Finding]:
    """Report ``arithmetic`` for a result beyond its bound, ``nondeterminism`` for other bits in the second run."""
    findings = []
    if ran.reference is not None and ran.allowed is not None:
        deviations = [deviation(wide(each), ran.reference, ran.allowed) for each in ran.results]
        worst = max(deviations, key=lambda each: each.share)
        if worst.count:
            findings.append(_beyond(ran, worst))
    again = changed_bits(ran.results[1], ran.results[0])
    if again:
        findings.append(
            finding(
                "nondeterminism",
                ran.card,
                ran.operation,
                expected=f"element {list(again.index)}: {again.expected}, as in the first run",
                found=f"{again.found} in a second run with the same operands",
                message=f"gives different bits for {plural(again.elements, 'element')} of {ran.operation} in a second "
                "run",
                next_step=_NONDETERMINISM,
                subject=ran.operation,
            )
        )
    return findings


def _beyond(ran: Ran, worst: Deviation) -> Finding:
    if worst.share == inf:
        far = "where the bound is 0 or the result is not finite"
    elif worst.share > 1e6:
        far = "by more than a million times the bound"
    else:
        far = f"up to {amount(worst.share, 'times')} the bound"
    return finding(
        "arithmetic",
        ran.card,
        f"{ran.operation}, element {list(worst.index)}",
        expected=f"{worst.expected}, within its rounding bound",
        found=worst.found,
        message=f"computes {ran.operation} incorrectly: {plural(worst.count, 'element')} beyond the rounding bound, "
        f"{far}",
        next_step=_ARITHMETIC,
        subject=ran.operation,
    )


def judge_alike(
    operation: str, cards: Sequence[Card], digests: Mapping[str, str], known: Sequence[Finding]
) -> list[Finding]:
    """Report ``corruption`` for each card whose bits differ from most cards of its model.

    ``digests`` are by label. A card with a finding in ``known`` about this operation is not named again.
    """
    odd, sure = odd_ones({card.label: digests[card.label] for card in cards})
    reported = {each.device for each in known if each.subject == operation}
    named = [card for card in cards if card.label in odd and device_of(card) not in reported]
    # If one of those that differ is known to be wrong, the others need not be.
    if not named or (not sure and len(named) < len(odd)):
        return []
    if sure:
        message = f"differs from most of the {len(cards)} devices of its model in the result bits of {operation}"
        return [_differs(operation, card, message, _MOVE if card.is_gpu else _REPEAT, card.is_gpu) for card in named]
    names = " and ".join(card_name(card) for card in named)
    message = f"{names} give different bits for {operation}, and too few devices agree to tell which is wrong"
    return [_differs(operation, None, message, _TOO_FEW, named[0].is_gpu)]


def _differs(operation: str, card: Card | None, message: str, step: str, gpus: bool) -> Finding:
    autotuned = operation.startswith(_AUTOTUNED)
    if autotuned:
        if gpus:
            step = f"run the check again with TF_CUDNN_USE_AUTOTUNE=0; if the bits still differ, {step}"
        message += "; a library that picks the fastest algorithm by measuring may pick a different one on each device"
    return finding(
        "corruption",
        card,
        operation,
        expected="the same bits on each device of one model",
        found="different bits",
        message=message,
        next_step=step,
        severity=Verdict.WARN if autotuned else Verdict.FAIL,
        subject=operation,
    )


@dataclass(frozen=True)
class Deviation:
    """``count`` elements (or rows) exceed the bound; ``share`` is the largest error as a share of what is allowed.

    ``index``, ``found`` and ``expected`` are of the worst one. ``inf`` is an error where none is allowed.
    """

    count: int
    share: float
    index: tuple[int, ...] = ()
    found: str = ""
    expected: str = ""


def deviation(result: NDArray[Any], reference: NDArray[Any], allowed: Allowed) -> Deviation:
    """Compare ``result`` with ``reference`` (float64, complex128 or integers, of the same shape).

    What is not finite and differs exceeds every bound, so NaN never passes.
    """
    if result.shape != reference.shape:
        return Deviation(int(reference.size), np.inf, (), f"shape {result.shape}", f"shape {reference.shape}")
    same = result == reference
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(same, 0.0, np.abs(result - reference))
    error = np.where(np.isfinite(error), error, np.inf)
    if allowed.by_row:
        error = np.sqrt(np.sum(np.square(error), axis=-1))
    limit = np.broadcast_to(allowed.error, error.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(error == 0, 0.0, error / limit)
    worst = tuple(int(each) for each in np.unravel_index(int(np.argmax(shares)), shares.shape)) if shares.size else ()
    return Deviation(
        int(np.count_nonzero(shares > 1)),
        float(shares[worst]) if shares.size else 0.0,
        worst,
        _shown(result, worst, allowed),
        _shown(reference, worst, allowed),
    )


def _shown(array: NDArray[Any], index: tuple[int, ...], allowed: Allowed) -> str:
    if not array.size:
        return "nothing"
    return f"norm {float(np.linalg.norm(array[index])):.9g}" if allowed.by_row else f"{array[index]:.17g}"


def odd_ones(results: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """Return who differs from most, of names to digests of results, and whether they are surely wrong.

    If more than half agree, the others are the odd ones. Otherwise all are named.
    """
    if len(set(results.values())) < 2:
        return (), True
    digest, count = Counter(results.values()).most_common(1)[0]
    if 2 * count > len(results):
        return tuple(name for name, each in results.items() if each != digest), True
    return tuple(results), False
