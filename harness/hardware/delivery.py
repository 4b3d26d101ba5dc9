"""Tells a faulty path between two cards from faulty memory at one of its ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.hardware.machine import Buffer, Machine, Mismatch, Pattern
from harness.hardware.memory.judge import judge_pattern
from harness.records import Card, Finding


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
    return Delivery(mismatch)
