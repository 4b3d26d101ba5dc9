"""Tells a faulty path between two cards from faulty memory at one of its ends."""

from __future__ import annotations

from harness.hardware.blame import Trial, Trials
from harness.hardware.machine import Buffer, Machine, Mismatch, Pattern
from harness.hardware.memory.judge import judge_pattern
from harness.hardware.patterns import array_mismatch
from harness.records import Finding

#: How often each end makes the pattern again, and how much of it: a card that is wrong half of the time passes once in
#: 256 times, and how much it computes does not matter.
_TIMES, _MOST_BYTES = 8, 2**16


def judge_delivery(
    machine: Machine,
    sent: Buffer,
    source: str,
    target: str,
    mismatch: Mismatch,
    pattern: Pattern,
    size: int,
    into: Trials,
) -> Finding | None:
    """Add to the trials whether the path is at fault. It is innocent if a card cannot hold the pattern: return that.

    ``sent`` is on ``source`` and has ``size`` bytes. The arrived copy is free again, so its place is reused.
    """
    memory = _of_memory(machine, sent, source, target, pattern, size) if mismatch.count else None
    wrong = bool(mismatch.count) and memory is None
    into.trials.append(Trial(target, wrong, source=source))
    if wrong:
        into.details.setdefault(f"{source} -> {target}", _text(mismatch, size // 8))
    return memory


def _text(mismatch: Mismatch, words: int) -> str:
    if mismatch.count == words and mismatch.found == 0:
        return f"all {words:,} words arrived as zeros"
    return f"{mismatch.count:,} of {words:,} words wrong, the first is word {mismatch.first_word}"


def _of_memory(machine: Machine, sent: Buffer, source: str, target: str, pattern: Pattern, size: int) -> Finding | None:
    """Look at the memory of both ends."""
    cards = {card.label: card for card in machine.cards}
    at_source = machine.mismatch(sent, pattern)
    if at_source.count:
        return judge_pattern(cards[source], pattern, "of the copy test, before the copy", 0, at_source)
    # Write the same pattern there without a copy: a stuck cell shows again.
    written = machine.fill(target, size, pattern)
    there = machine.mismatch(written, pattern)
    if there.count:
        return judge_pattern(cards[target], pattern, "of the copy test when written there without a copy", 0, there)
    for label in (source, target):
        made = _made(machine, label, min(size, _MOST_BYTES), pattern)
        if made.count:
            return judge_pattern(cards[label], pattern, "of the copy test when written there without a copy", 0, made)
    return None


def _made(machine: Machine, label: str, size: int, pattern: Pattern) -> Mismatch:
    """Return what is wrong with the pattern that a card makes. On the host: such a card would agree with itself."""
    for _ in range(_TIMES):
        wrong = array_mismatch(machine.fetch(machine.fill(label, size, pattern)), pattern)
        if wrong.count:
            return wrong
    return Mismatch(0)
