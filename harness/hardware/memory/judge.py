"""Judges a card's memory: how much could be allocated, what was read back, and whether a repeated step leaks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from harness.hardware.finding import FREE_MEMORY, REPLACE, finding
from harness.hardware.machine import Mismatch, Pattern
from harness.hardware.patterns import word_at
from harness.plural import plural
from harness.records import Card, Finding, Verdict

#: Share of the free memory of a GPU that must be allocated and tested.
LEAST_SHARE = 0.9
#: The largest share of a card's memory that others may hold before the run: a desktop and contexts of CUDA need some.
MOST_HELD = 0.3
#: Less growth than this over all steps is not a leak, in bytes: allocators round, and a process allocates on its own.
LEAST_LEAK_BYTES = {"card": 64 * 2**10, "host": 8 * 2**20}
#: Share of the samples in which a leak must grow.
GROWING_SHARE = 0.6


def judge_coverage(card: Card, had_bytes: int, free_bytes: int) -> Finding | None:
    """Report a card of whose free memory less than :data:`LEAST_SHARE` could be allocated."""
    if had_bytes >= LEAST_SHARE * free_bytes:
        return None
    return finding(
        "memory",
        card,
        "allocation",
        expected=f"at least {LEAST_SHARE:.0%} of {gigabytes(free_bytes)} free",
        found=gigabytes(had_bytes),
        message=f"reports {gigabytes(free_bytes)} free; only {gigabytes(had_bytes)} could be allocated",
        next_step=FREE_MEMORY,
    )


def judge_held(
    card: Card, by_process: Mapping[tuple[str, int], int | None], alive: Callable[[int], bool]
) -> Finding | None:
    """Report a card of whose memory others held a large part before the run. ``by_process`` is in MiB."""
    if card.memory_bytes is None or card.free_bytes is None or card.part in ("logical GPU", "MIG slice"):
        return None
    held = card.memory_bytes - card.free_bytes
    if held <= MOST_HELD * card.memory_bytes:
        return None
    who = [
        f"process {process}{'' if alive(process) else ', which no longer runs,'} holds "
        f"{'an unknown part' if mib is None else gigabytes(mib * 2**20)}"
        for (uuid, process), mib in sorted(by_process.items())
        if uuid == card.uuid
    ]
    return finding(
        "memory",
        card,
        "memory before the run",
        expected=f"at most {MOST_HELD:.0%} of {gigabytes(card.memory_bytes)} in use",
        found=f"{gigabytes(held)} in use",
        message=f"has only {gigabytes(card.free_bytes)} of {gigabytes(card.memory_bytes)} free: "
        f"{'; '.join(who) or 'the driver names no process that holds the rest'}",
        next_step=FREE_MEMORY,
    )


def judge_pattern(card: Card, pattern: Pattern, name: str, offset_bytes: int, mismatch: Mismatch) -> Finding | None:
    """Report a pattern that changed in memory. The buffer begins at byte ``offset_bytes`` of what is tested."""
    if not mismatch.count:
        return None
    first = mismatch.first_word or 0
    expected, found = word_at(pattern, first), mismatch.found
    place = offset_bytes + first * 8
    bits = "" if found is None else f" ({plural((found ^ expected).bit_count(), 'bit')})"
    return finding(
        "memory",
        card,
        f"pattern {name}, byte {place}",
        expected=f"{expected:#018x}",
        found=f"{found:#018x}" if found is not None else plural(mismatch.count, "wrong word"),
        message=f"did not hold the pattern {name}: {plural(mismatch.count, '64-bit word')} changed, the first at "
        f"byte {place:,}{bits}",
        next_step=REPLACE,
    )


def judge_growth(card: Card, used_bytes: Sequence[int], steps: int, *, host: bool = False) -> Finding | None:
    """Report a leak from the memory in use, at least 6 samples evenly over ``steps`` repetitions of a warmed-up step.

    A leak grows all the time: from the first third to the last by more than :data:`LEAST_LEAK_BYTES`, and from most
    samples to the next. A single jump is not a leak.
    """
    third = len(used_bytes) // 3
    # The medians of the thirds are two thirds of the way apart.
    growth = 1.5 * (statistics.median(used_bytes[-third:]) - statistics.median(used_bytes[:third]))
    rising = sum(later > earlier for earlier, later in pairwise(used_bytes)) / (len(used_bytes) - 1)
    if growth < LEAST_LEAK_BYTES["host" if host else "card"] or rising < GROWING_SHARE:
        return None
    return finding(
        "memory",
        card,
        f"{steps} repetitions of a step",
        expected="no growth",
        found=f"{growth / steps:,.0f} bytes per step",
        message=f"leaks: {'the memory of this process' if host else 'its memory in use'} grew by {growth / 2**20:.1f} "
        f"MiB over {steps:,} repetitions of a step",
        next_step="try another version of TensorFlow and of the driver; long-running programs will run out of memory",
        severity=Verdict.WARN if host else Verdict.FAIL,
    )


def gigabytes(size_bytes: float) -> str:
    """Format a size in GB (1e9 bytes) or MB."""
    return f"{size_bytes / 1e9:,.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"
