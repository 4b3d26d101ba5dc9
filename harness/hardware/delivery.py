"""Copies between all ordered pairs of cards, and whether the path or the memory at one of its ends is faulty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from harness.checking.check import Level
from harness.hardware.blame import CHANCE, NVLINK, Blame, Trial, Trials, blame_copying
from harness.hardware.machine import Buffer, Machine, Mismatch, Pair, PairLink, Pattern
from harness.hardware.memory.judge import judge_pattern
from harness.hardware.patterns import STEP, array_mismatch, next_first
from harness.records import Finding

#: How often each ordered pair is copied, and how much.
COPIES = {Level.QUICK: 8, Level.STANDARD: 40, Level.DEEP: 200}
COPIED_BYTES = 64 * 2**10
#: How often each end makes the pattern again, and how much of it: a card that is wrong half of the time passes once in
#: 256 times, and how much it computes does not matter.
_TIMES, _MOST_BYTES = 8, 2**16
#: How often a card proves this before wrong copies are no longer held against it.
_PROOFS = 4
#: Up to so many causes of wrong copies are taken as they are.
_FEW = 2
#: Of more cards, it takes too long to find the fewest at which all wrong copies end.
_MOST_COVERED = 16


def copy(machine: Machine, level: Level, seed: int, into: Trials) -> list[Finding]:
    """Copy between every ordered pair of cards, each time another pattern, and compare it on the target by ops there.

    Return the findings about faulty memory.
    """
    labels = [card.label for card in machine.cards]
    faulty, first, before = [], seed, len(into.trials)
    for number in range(COPIES[level]):
        if number >= COPIES[Level.QUICK] and all_wrong(into.trials[before:]):
            break  # more copies would show nothing else
        for source in labels:
            first = next_first(first)
            pattern = Pattern(first, STEP)
            made = machine.fill(source, COPIED_BYTES, pattern)
            for target in labels:
                if target != source:
                    mismatch = machine.mismatch(machine.move(made, target), pattern)
                    faulty.append(judge_delivery(machine, made, source, target, mismatch, pattern, COPIED_BYTES, into))
    return list(filter(None, faulty))


def all_wrong(trials: Sequence[Trial]) -> bool:
    """Whether no copy arrived."""
    return bool(trials) and all(trial.wrong for trial in trials)


def blame_copies(machine: Machine, seed: int, trials: Trials) -> list[Blame]:
    """Return who is to blame for wrong copies. Where too few tell a card from its links, copy more, into ``trials``."""
    blamed = blame_copying(trials.trials)
    # What is wrong at times and has many causes may have one.
    many = len(blamed) > _FEW and any(each.intermittent for each in blamed)
    if (many or any(not each.sure for each in blamed)) and not all_wrong(trials.trials):
        # Patterns other than those that the cards may still hold.
        copy(machine, Level.STANDARD, seed + 1, trials)
        blamed = blame_copying(trials.trials)
    if not blamed:
        return []
    links = machine.pair_links()
    shared = shared_way(trials.trials, links)
    if shared is not None:
        return [shared]
    return [
        replace(each, way=_way({(each.source or "", each.card or "")}, links)) if each.kind == "pair" else each
        for each in blamed
    ]


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
    memory = _of_memory(machine, sent, source, target, pattern, size, into.proofs) if mismatch.count else None
    wrong = bool(mismatch.count) and memory is None
    into.trials.append(Trial(target, wrong, source=source))
    if wrong:
        into.details.setdefault(f"{source} -> {target}", _text(mismatch, size // 8))
    return memory


def _text(mismatch: Mismatch, words: int) -> str:
    if mismatch.count == words and mismatch.found == 0:
        return f"all {words:,} words arrived as zeros"
    return f"{mismatch.count:,} of {words:,} words wrong, the first is word {mismatch.first_word}"


def _of_memory(
    machine: Machine, sent: Buffer, source: str, target: str, pattern: Pattern, size: int, proofs: Counter[str]
) -> Finding | None:
    """Look at the memory of both ends. ``proofs`` counts how often each card has made the pattern right."""
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
        if proofs[label] >= _PROOFS:
            continue
        proofs[label] += 1
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


def shared_way(trials: Sequence[Trial], links: Mapping[Pair, PairLink]) -> Blame | None:
    """Return the cards between which copies are wrong both ways, where no single card explains it; else ``None``.

    That is so if all pairs that are joined in the same way are wrong, or so many that no card is at an end of all and
    none is wrong with every other card. The memory of both ends has been found to be right. Where copies are wrong at
    times, some pairs were right by chance: they count as wrong where no half of the cards explains the others.
    """
    wrong = {(trial.source or "", trial.card) for trial in trials if trial.wrong}
    tested = {(trial.source or "", trial.card) for trial in trials}
    wrong |= _right_by_chance(trials, tested, links)
    if not wrong or any((target, source) not in wrong for source, target in wrong):
        return None
    ends = {end for pair in tested for end in pair}
    if len(ends) == 2 or (len(wrong) > 2 and (_of_ways(wrong, tested, links) or _scattered(wrong, tested))):
        cards = tuple(sorted({end for pair in wrong for end in pair}))
        covered = [trial for trial in trials if (trial.source or "", trial.card) in wrong]
        return Blame("way", sum(trial.wrong for trial in covered), len(covered), cards=cards, way=_way(wrong, links))
    return None


def _way(pairs: set[Pair], links: Mapping[Pair, PairLink]) -> str:
    joined = [links.get(pair, PairLink()).nvlinks for pair in pairs]
    return NVLINK if all(joined) else "PCIe"


def _by_way(tested: set[Pair], links: Mapping[Pair, PairLink]) -> list[set[Pair]]:
    ways: dict[str, set[Pair]] = {}
    for pair in tested:
        link = links.get(pair, PairLink())
        ways.setdefault(NVLINK if link.nvlinks else link.way, set()).add(pair)
    return list(ways.values())


def _of_ways(wrong: set[Pair], tested: set[Pair], links: Mapping[Pair, PairLink]) -> bool:
    """Whether the wrong pairs are all pairs of one way or more, and not those of one card."""
    whole = [pairs for pairs in _by_way(tested, links) if pairs <= wrong]
    return not _covering(wrong) and set().union(*whole) == wrong


def _right_by_chance(trials: Sequence[Trial], tested: set[Pair], links: Mapping[Pair, PairLink]) -> set[Pair]:
    """Return the pairs of ways on which copies are wrong at times, where these pairs were right by chance."""
    counts = Counter((trial.source or "", trial.card) for trial in trials)
    wrong = Counter((trial.source or "", trial.card) for trial in trials if trial.wrong)
    found: set[Pair] = set()
    for pairs in _by_way(tested, links):
        hit = {pair for pair in pairs if wrong[pair]}
        share = sum(wrong[pair] for pair in hit) / max(1, sum(counts[pair] for pair in hit))
        if all((1 - share) ** counts[pair] > CHANCE for pair in pairs - hit) and _beyond_half(hit, pairs):
            found |= pairs
    return found


def _beyond_half(hit: set[Pair], pairs: set[Pair]) -> bool:
    """Whether each half of the cards of ``pairs`` leaves a pair of ``hit`` unexplained."""
    cards = {end for pair in pairs for end in pair}
    if not 2 < len(cards) <= _MOST_COVERED:
        return False
    return not any(all(set(pair) & set(half) for pair in hit) for half in combinations(cards, len(cards) // 2))


def _scattered(wrong: set[Pair], tested: set[Pair]) -> bool:
    """Whether no card is at an end of all wrong pairs, and none is wrong with every other card."""
    full = any(
        all(pair in wrong for pair in tested if card in pair) for card in {end for pair in wrong for end in pair}
    )
    return not _covering(wrong) and not full


def _covering(wrong: set[Pair]) -> set[str]:
    first, *others = wrong
    return set(first).intersection(*others)
