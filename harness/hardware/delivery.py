"""Tells a faulty path between two cards from faulty memory at one of its ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.hardware.machine import Buffer, Machine, Mismatch, Pattern
from harness.hardware.memory.judge import judge_pattern
from harness.hardware.patterns import array_mismatch
from harness.records import Card, Finding

#: How often each end makes the pattern again, and how much of it: a card that is wrong half of the time passes once in
#: 256 times, and how much it computes does not matter.
_TIMES, _MOST_BYTES = 8, 2**16


@dataclass(frozen=True, slots=True)
class Delivery:
    """What arrived. ``memory`` is a finding about a card that cannot hold the pattern; then the path is innocent."""

    mismatch: Mismatch
    memory: Finding | None = None

    @property
    def wrong(self) -> bool:
        """Whether the path is at fault."""
        return self.mismatch.count > 0 and self.memory is None

    def text(self, words: int) -> str:
        """Describe what is wrong, of ``words`` 64-bit words."""
        if self.mismatch.count == words and self.mismatch.found == 0:
            return f"zeros arrived instead of all {words:,} words"
        return f"{self.mismatch.count:,} of {words:,} words differ, the first is word {self.mismatch.first_word}"


def judge_delivery(
    machine: Machine,
    cards: Mapping[str, Card],
    sent: Buffer,
    source: str,
    target: str,
    mismatch: Mismatch,
    pattern: Pattern,
    size: int,
) -> Delivery:
    """Look at the memory of both ends if what arrived on ``target`` is wrong.

    ``sent`` is on ``source`` and has ``size`` bytes. The arrived copy is free again, so its place is reused.
    """
    if not mismatch.count:
        return Delivery(mismatch)
    at_source = machine.mismatch(sent, pattern)
    if at_source.count:
        return Delivery(mismatch, judge_pattern(cards[source], pattern, "of a copy, before it was sent", 0, at_source))
    # Write the same pattern there without a copy: a stuck cell shows again.
    written = machine.fill(target, size, pattern)
    there = machine.mismatch(written, pattern)
    if there.count:
        return Delivery(mismatch, judge_pattern(cards[target], pattern, "of a copy, written there", 0, there))
    for label in (source, target):
        made = _made(machine, label, min(size, _MOST_BYTES), pattern)
        if made.count:
            return Delivery(mismatch, judge_pattern(cards[label], pattern, "of a copy, written there", 0, made))
    return Delivery(mismatch)


def _made(machine: Machine, label: str, size: int, pattern: Pattern) -> Mismatch:
    """Return what is wrong with the pattern that a card makes. On the host: such a card would agree with itself."""
    for _ in range(_TIMES):
        wrong = array_mismatch(machine.fetch(machine.fill(label, size, pattern)), pattern)
        if wrong.count:
            return wrong
    return Mismatch(0)
