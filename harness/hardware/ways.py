"""Finds wrong copies whose cause is the way that many pairs of cards share, and no card and no single link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.hardware.blame import Blame, Trial
from harness.hardware.machine import Pair, PairLink

#: What joins cards directly, in the place of a way over PCIe.
NVLINK = "NVLink"


def shared_way(trials: Sequence[Trial], links: Mapping[Pair, PairLink]) -> Blame | None:
    """Return the cards between which copies are wrong both ways, where no single card explains it; else ``None``.

    That is so if all pairs that are joined in the same way are wrong, or so many that no card is at an end of all and
    none is wrong with every other card. The memory of both ends has been found to be right.
    """
    wrong = {(trial.source or "", trial.card) for trial in trials if trial.wrong}
    tested = {(trial.source or "", trial.card) for trial in trials}
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


def _of_ways(wrong: set[Pair], tested: set[Pair], links: Mapping[Pair, PairLink]) -> bool:
    """Whether the wrong pairs are all pairs of one way or more, and not those of one card."""
    ways: dict[str, set[Pair]] = {}
    for pair in tested:
        link = links.get(pair, PairLink())
        ways.setdefault(NVLINK if link.nvlinks else link.way, set()).add(pair)
    whole = [pairs for pairs in ways.values() if pairs <= wrong]
    return not _covering(wrong) and set().union(*whole) == wrong


def _scattered(wrong: set[Pair], tested: set[Pair]) -> bool:
    """Whether no card is at an end of all wrong pairs, and none is wrong with every other card."""
    full = any(
        all(pair in wrong for pair in tested if card in pair) for card in {end for pair in wrong for end in pair}
    )
    return not _covering(wrong) and not full


def _covering(wrong: set[Pair]) -> set[str]:
    first, *others = wrong
    return set(first).intersection(*others)
