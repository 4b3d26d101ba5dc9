"""What each card must have after a collective, whose share is missing, and how bandwidth is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.hardware.disagreement import bits
from harness.hardware.naming import described, device_of
from harness.records import Card, Finding

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")


def expected(kind: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """What each card has after a collective of ``arrays``, one for each card, of one shape and dtype.

    ``all-gather`` joins along the first axis; ``reduce-scatter`` gives card ``i`` the ``i``-th part of the sum along
    it, which the number of cards divides; ``broadcast`` sends what the first card has.

    Raises:
        ValueError: ``kind`` is not one of :data:`KINDS`.
    """
    if kind == "all-gather":
        return [np.concatenate(list(arrays))] * len(arrays)
    if kind == "broadcast":
        return [arrays[0]] * len(arrays)
    if kind not in KINDS:
        raise ValueError(f"collective {kind!r}; accepted: {', '.join(KINDS)}")
    total = np.sum(np.stack(list(arrays)), axis=0, dtype=arrays[0].dtype)
    return [total] * len(arrays) if kind == "all-reduce" else np.split(total, len(arrays))


@dataclass(frozen=True)
class Ratio:
    """GB/s (1e9): ``algorithm`` is size by time, ``bus`` what a link carries whatever the number of cards."""

    algorithm: float
    bus: float
    size_bytes: int


def bandwidth(kind: str, share_bytes: int, cards: int, seconds: float) -> Ratio:
    """The bandwidths of a collective in which each card gave ``share_bytes``.

    The size is that of the largest array which a card gives or has. Bus bandwidth is ``2 (n - 1) / n`` times the other
    for all-reduce, ``(n - 1) / n`` times for all-gather and reduce-scatter, and the same for broadcast (NVIDIA,
    nccl-tests, doc/PERFORMANCE.md).
    """
    size = share_bytes * (cards if kind == "all-gather" else 1)
    part = (cards - 1) / cards
    factor = {"all-reduce": 2 * part, "all-gather": part, "reduce-scatter": part, "broadcast": 1.0}[kind]
    algorithm = size / seconds / 1e9
    return Ratio(algorithm, algorithm * factor, size)


def judge_collective(
    kind: str, algorithm: str, cards: Sequence[Card], arrays: Sequence[NDArray[Any]], found: Sequence[NDArray[Any]]
) -> list[Finding]:
    """``corruption`` of each card that has something else; where a card's share explains it all, that card alone is
    named.

    ``arrays`` are whole numbers whose sums are exact in their dtype, so that every bit counts.
    """
    if len(found) != len(cards):
        message = f"{kind} by {algorithm} gave {len(found)} results for {len(cards)} cards"
        return [_finding(kind, algorithm, None, f"{len(cards)} results", f"{len(found)} results", message)]
    wanted = expected(kind, arrays)
    wrong = [number for number, pair in enumerate(zip(wanted, found, strict=True)) if bits(*pair).count]
    if not wrong:
        return []
    culprits = {_share(kind, number, wanted, arrays, found) for number in wrong}
    culprit = next(iter(culprits)) if len(culprits) == 1 else None
    if culprit is not None:
        card = cards[culprit[0]]
        message = f"{kind} by {algorithm}: the share of {described(card)} {culprit[1]}, seen on {len(wrong)} card(s)"
        return [_finding(kind, algorithm, card, "the shares of all cards, once each", culprit[1], message)]
    return [_of_card(kind, algorithm, cards[number], wanted[number], found[number]) for number in wrong]


def _of_card(kind: str, algorithm: str, card: Card, wanted: NDArray[Any], found: NDArray[Any]) -> Finding:
    differ = bits(wanted, found)
    message = f"{kind} by {algorithm}: {described(card)} has {differ.count} wrong element(s)"
    what = f"element {list(differ.index)}: "
    return _finding(kind, algorithm, card, what + differ.first, what + differ.second, message)


def _share(
    kind: str, at: int, wanted: Sequence[NDArray[Any]], arrays: Sequence[NDArray[Any]], found: Sequence[NDArray[Any]]
) -> tuple[int, str] | None:
    """The card whose share explains what the card ``at`` has, and how: it is missing, or counted twice."""
    if wanted[at].shape != found[at].shape or kind == "broadcast":
        return None
    off = wanted[at].astype(np.float64) - found[at].astype(np.float64)
    for number, array in enumerate(arrays):
        share = array.astype(np.float64)
        if kind == "all-gather":
            place = np.zeros_like(off)
            place[number * len(share) : (number + 1) * len(share)] = share
            share = place
        elif kind == "reduce-scatter":
            share = np.split(share, len(arrays))[at]
        if np.array_equal(off, share):
            return number, "is missing"
        if kind != "all-gather" and np.array_equal(off, -share):
            return number, "is counted twice"
    return None


def _finding(kind: str, algorithm: str, card: Card | None, wanted: str, found: str, message: str) -> Finding:
    device = device_of(card) if card is not None else None
    return Finding("corruption", f"{kind} by {algorithm}", device, wanted, found, message)
