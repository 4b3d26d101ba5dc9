"""The values that each card must hold after a collective, whose share is missing, and the bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.hardware.bits import changed_bits
from harness.hardware.finding import amount, finding
from harness.hardware.machine import Pair, PairLink
from harness.plural import plural
from harness.records import Card, Finding, Verdict

#: A collective that takes less than this at the rate of the links, in seconds, is too short to be judged.
LEAST_S = 1e-4
#: Shares of the links' rate below which the bus bandwidth warns and fails. NCCL reaches 0.7 to 0.9 with large arrays.
WARN_SHARE, FAIL_SHARE = 0.4, 0.2
#: Elements that are compared before whole arrays are.
_PROBED = 64
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")


def expected(kind: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return what each card holds after a collective of ``arrays``, one for each card, of one shape and dtype.

    ``all-gather`` joins along the first axis; ``reduce-scatter`` gives card ``i`` part ``i`` of the sum along it;
    ``broadcast`` sends the array of the first card.
    """
    if kind == "all-gather":
        return [np.concatenate(list(arrays))] * len(arrays)
    if kind == "broadcast":
        return [arrays[0]] * len(arrays)
    total = np.sum(np.stack(list(arrays)), axis=0, dtype=arrays[0].dtype)
    return [total] * len(arrays) if kind == "all-reduce" else np.split(total, len(arrays))


class Wrong(NamedTuple):
    """A finding about a collective of ``kind``.

    ``everywhere`` is whether all results lack the share of the card that it names, or contain it twice.
    """

    kind: str
    finding: Finding
    everywhere: bool = False


@dataclass(frozen=True)
class Ratio:
    """GB/s (1e9): ``algorithm`` is size by time, ``bus`` is independent of the number of cards."""

    algorithm: float
    bus: float
    size_bytes: int


def bandwidth(kind: str, share_bytes: int, cards: int, seconds: float) -> Ratio:
    """Return the bandwidths of a collective to which each card contributed ``share_bytes``.

    The size is that of the largest array which a card contributes or receives. Bus bandwidth is ``2 (n - 1) / n`` times
    the other for all-reduce, ``(n - 1) / n`` times for all-gather and reduce-scatter, and the same for broadcast
    (NVIDIA, nccl-tests, doc/PERFORMANCE.md).
    """
    size = share_bytes * (cards if kind == "all-gather" else 1)
    part = (cards - 1) / cards
    factor = {"all-reduce": 2 * part, "all-gather": part, "reduce-scatter": part, "broadcast": 1.0}[kind]
    algorithm = size / seconds / 1e9
    return Ratio(algorithm, algorithm * factor, size)


def common_gbs(links: Mapping[Pair, PairLink], cards: Sequence[Card]) -> float | None:
    """Return what the NVLinks between every two cards carry one way, in GB/s; ``None`` where a pair has none."""
    if any(card.part is not None for card in cards):
        return None
    rates = [links[pair].gbs if pair in links else None for pair in permutations((card.label for card in cards), 2)]
    known = [rate for rate in rates if rate is not None]
    return min(known) if known and len(known) == len(rates) else None


def judge_bandwidth(kind: str, share_bytes: int, cards: int, seconds: float, expected_gbs: float) -> Finding | None:
    """Report a collective of NCCL that took much longer than the links between the cards need.

    Faster is no fault: switches that add up do half of the work.
    """
    bus = bandwidth(kind, share_bytes, cards, seconds).bus if seconds > 0 else expected_gbs
    least_s = bandwidth(kind, share_bytes, cards, 1.0).bus / expected_gbs
    if least_s < LEAST_S or bus >= WARN_SHARE * expected_gbs:
        return None
    rate = amount(bus, "GB/s")
    return finding(
        "link",
        None,
        f"{kind} by nccl",
        expected=f"at least {amount(WARN_SHARE * expected_gbs, 'GB/s')}",
        found=rate,
        message=f"{kind} by nccl reaches a bus bandwidth of {rate}, {bus / expected_gbs:.0%} of the "
        f"{amount(expected_gbs, 'GB/s')} that the NVLinks between all GPUs carry",
        next_step="run the check with NCCL_DEBUG=INFO, which shows whether NCCL uses NVLink (P2P, NVLS) or the host "
        "(SHM), and look at the copies between the GPUs (check 'copies')",
        severity=Verdict.FAIL if bus < FAIL_SHARE * expected_gbs else Verdict.WARN,
        subject="bus bandwidth",
    )


def judge_collective(
    kind: str, algorithm: str, cards: Sequence[Card], arrays: Sequence[NDArray[Any]], found: Sequence[NDArray[Any]]
) -> list[Wrong]:
    """Report cards that hold wrong values; if the shares of one or two cards explain all of them, only these.

    ``arrays`` are integers whose sums are exact in their dtype, so every bit counts.
    """
    where = f"{kind} by {algorithm}"
    if len(found) != len(cards):
        message = f"{where} gave {plural(len(found), 'result')} for {plural(len(cards), 'device')}"
        given = f"{len(found)} results"
        return [Wrong(kind, _finding(where, algorithm, None, f"{len(cards)} results", given, message))]
    wanted = expected(kind, arrays)
    differ = [changed_bits(*pair) for pair in zip(found, wanted, strict=True)]
    wrong = [number for number, each in enumerate(differ) if each]
    culprits = {_share(kind, number, wanted, arrays, found) for number in wrong}
    culprit = next(iter(culprits)) if len(culprits) == 1 else None
    if kind == "broadcast" and len(wrong) == len(cards) and all(np.array_equal(each, found[0]) for each in found):
        # What all of them hold came from the first one.
        culprit = (0,), "is missing from"
    if culprit is not None:
        numbers, how = culprit
        message = f"gave a share that {how} the result of {where} on {plural(len(wrong), 'device')}"
        every, one = "the share of each device, counted once", f"one {how} the result"
        made = [_finding(where, algorithm, cards[number], every, one, message) for number in numbers]
        return [Wrong(kind, each, everywhere=len(wrong) == len(cards)) for each in made]
    reported = []
    for group in _alike(wrong, found):
        each = differ[group[0]]
        held = f"{plural(each.elements, 'wrong element')} after {where}"
        values = [f"element {list(each.index)}: {value}" for value in (each.expected, each.found)]
        card = cards[group[0]] if len(group) == 1 else None
        labels = ", ".join(cards[number].label for number in group)
        passed_on = f"{labels} hold the same {held}: the error is on one of them, or on the way there"
        message = passed_on if card is None else f"holds {held}"
        reported.append(Wrong(kind, _finding(where, algorithm, card, values[0], values[1], message)))
    return reported


def _alike(wrong: Sequence[int], found: Sequence[NDArray[Any]]) -> list[list[int]]:
    """Group the cards that hold the same: what one of them computed or received wrongly was passed on to the others."""
    groups: dict[bytes, list[int]] = {}
    for number in wrong:
        groups.setdefault(found[number].tobytes(), []).append(number)
    return list(groups.values())


def _share(
    kind: str, at: int, wanted: Sequence[NDArray[Any]], arrays: Sequence[NDArray[Any]], found: Sequence[NDArray[Any]]
) -> tuple[tuple[int, ...], str] | None:
    """Return the cards whose shares explain what the card ``at`` holds, and how: they are missing, or counted twice."""
    if wanted[at].shape != found[at].shape or kind == "broadcast":
        return None
    off = wanted[at].astype(np.float64) - found[at].astype(np.float64)
    shares = []
    for number, array in enumerate(arrays):
        share = array.astype(np.float64)
        if kind == "all-gather":
            place = np.zeros_like(off)
            place[number * len(share) : (number + 1) * len(share)] = share
            share = place
        elif kind == "reduce-scatter":
            share = np.split(share, len(arrays))[at]
        shares.append(share)
    # A few elements rule out most of the pairs: adding up whole shares takes a hundred times as long.
    probe = np.unique(np.linspace(0, off.size - 1, _PROBED).astype(np.int64)) if off.size else np.zeros(0, np.int64)
    few = [share.reshape(-1)[probe] for share in shares]
    for numbers in (*combinations(range(len(shares)), 1), *combinations(range(len(shares)), 2)):
        part, seen = np.sum([few[number] for number in numbers], axis=0), off.reshape(-1)[probe]
        missing, twice = np.array_equal(seen, part), kind != "all-gather" and np.array_equal(seen, -part)
        if not missing and not twice:
            continue
        share = np.sum([shares[number] for number in numbers], axis=0)
        if missing and np.array_equal(off, share):
            return numbers, "is missing from"
        if twice and np.array_equal(off, -share):
            return numbers, "is counted twice in"
    return None


def _finding(where: str, algorithm: str, card: Card | None, wanted: str, found: str, message: str) -> Finding:
    copies = f"copies {'to and from it' if card is not None else 'between all devices'} (check 'copies')"
    step = f"look at the {copies}"
    if algorithm == "nccl":
        step = (
            "run the check with NCCL_DEBUG=INFO, then with NCCL_P2P_DISABLE=1; if the values are right without "
            f"peer-to-peer, look at the {copies}"
        )
    return finding(
        "corruption", card, where, expected=wanted, found=found, message=message, next_step=step, subject=algorithm
    )
