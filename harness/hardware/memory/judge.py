"""Judges a card's memory: what could be had of it, what came back from it, and whether a step leaves some behind."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from harness.hardware.advised import Advised, advised
from harness.hardware.machine import Mismatch, Pattern
from harness.hardware.words import word_at
from harness.records import Card, Verdict

#: What of the free memory of a GPU must be had and tested.
LEAST_SHARE = 0.9
#: Less growth than this over all steps is no leak, in bytes: an allocator rounds, and a process has habits.
LEAST_LEAK_BYTES = {"card": 64 * 2**10, "host": 8 * 2**20}
#: The share of the steps of time in which a leak must be seen to grow.
GROWING_SHARE = 0.6

_REPLACE = "take it out of use and have the card replaced; the maker's field diagnostic will show it too"


def judge_coverage(card: Card, had_bytes: int, free_bytes: int) -> Advised | None:
    """Less than :data:`LEAST_SHARE` of what is said to be free could be allocated."""
    if had_bytes >= LEAST_SHARE * free_bytes:
        return None
    return advised(
        "memory",
        card,
        "allocation",
        f"at least {LEAST_SHARE:.0%} of {gigabytes(free_bytes)} free",
        gigabytes(had_bytes),
        f"says that {gigabytes(free_bytes)} are free, and {gigabytes(had_bytes)} could be had",
        "look for another process that holds its memory (nvidia-smi), end it, and reset the card if there is none",
    )


def judge_pattern(card: Card, pattern: Pattern, name: str, offset_bytes: int, mismatch: Mismatch) -> Advised | None:
    """A pattern that was written and held did not come back. ``offset_bytes`` is where the buffer began."""
    if not mismatch.count:
        return None
    first = mismatch.first_word or 0
    expected = word_at(pattern, first)
    found = mismatch.found
    bits = "" if found is None else f", {(found ^ expected).bit_count()} bit(s) of the first differ"
    return advised(
        "memory",
        card,
        f"pattern {name}, byte {offset_bytes + first * 8}",
        f"{expected:#018x}",
        f"{found:#018x}" if found is not None else f"{mismatch.count} words differ",
        f"did not keep pattern {name}: {mismatch.count} 64-bit word(s) changed, the first at byte "
        f"{offset_bytes + first * 8} of what was tested{bits}",
        _REPLACE,
    )


def judge_growth(card: Card, used_bytes: Sequence[int], steps: int, *, host: bool = False) -> Advised | None:
    """Memory in use, sampled evenly over ``steps`` repetitions of a step after it has settled.

    A leak grows all the time: from the first third to the last by more than :data:`LEAST_LEAK_BYTES`, and from most
    samples to the next. A single jump is no leak.
    """
    if len(used_bytes) < 6:
        raise ValueError(f"{len(used_bytes)} samples; accepted: 6 or more")
    third = len(used_bytes) // 3
    growth = statistics.median(used_bytes[-third:]) - statistics.median(used_bytes[:third])
    # The medians of the thirds are two thirds of the way apart.
    whole = growth * 1.5
    rising = sum(later > earlier for earlier, later in pairwise(used_bytes)) / (len(used_bytes) - 1)
    if whole < LEAST_LEAK_BYTES["host" if host else "card"] or rising < GROWING_SHARE:
        return None
    where = "the memory of this process" if host else "its memory in use"
    return advised(
        "memory",
        card,
        f"{steps} repetitions of a step",
        "no growth",
        f"{whole / steps:.0f} bytes a step",
        f"leaks: {where} grew by {whole / 2**20:.1f} MiB over {steps} repetitions of a step",
        "try another version of TensorFlow and of the driver; a program that runs for long will run out of memory",
        Verdict.WARN if host else Verdict.FAIL,
    )


def gigabytes(size_bytes: float) -> str:
    """A size for people, in GB (1e9 bytes) or MB."""
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"
