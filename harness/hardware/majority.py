"""What is to blame for wrong results: a card, an index, an ordered pair of cards, or all cards alike.

Work is permuted over the cards, so that every index ran on every card. What is always wrong is blamed first; what is
left is blamed on what explains most of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

#: 0.975 quantile of the normal distribution: two-sided intervals of 95 %.
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Trial:
    """One result that has an exact answer: computed on ``card`` at ``index``, or copied there from ``source``.

    ``found`` tells two wrong results apart: a digest.
    """

    card: str
    wrong: bool
    index: int | None = None
    source: str | None = None
    found: int | None = None
    program: str = ""


@dataclass(frozen=True, slots=True)
class Blame:
    """What explains wrong results: ``wrong`` of its ``trials``. ``sure`` is false where something else does so too.

    ``card`` is the card, or that a pair leads to; ``source`` where the pair comes from; ``index`` for an index.
    ``programs`` are named where it is always wrong in these and never in others; then the counts are of these.
    """

    kind: Literal["card", "index", "pair", "into", "out-of", "all"]
    wrong: int
    trials: int
    card: str | None = None
    index: int | None = None
    source: str | None = None
    sure: bool = True
    programs: tuple[str, ...] = ()

    @property
    def intermittent(self) -> bool:
        """Whether it was right at times."""
        return self.wrong < self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Where the rate is with 95 % confidence."""
        return wilson(self.wrong, self.trials)


def wilson(wrong: int, trials: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for a rate (E. B. Wilson, JASA 22, 1927). Nothing tried: anything from 0 to 1."""
    if not trials:
        return 0.0, 1.0
    share, weight = wrong / trials, _Z**2 / trials
    middle = share + weight / 2
    spread = _Z * math.sqrt(share * (1 - share) / trials + weight / (4 * trials))
    low = 0.0 if wrong == 0 else (middle - spread) / (1 + weight)
    high = 1.0 if wrong == trials else (middle + spread) / (1 + weight)
    return low, high


def unseen_rate(trials: int) -> float:
    """The rate that ``trials`` without a fault leave possible with 95 % confidence."""
    return 1.0 - 0.05 ** (1.0 / trials) if trials else 1.0


def blame_computing(trials: Sequence[Trial]) -> list[Blame]:
    """Which cards or indices are to blame. All cards alike, with one wrong answer at each index, is ``all``."""
    wrong = [trial for trial in trials if trial.wrong]
    if not wrong:
        return []
    if _all_alike(trials):
        return [Blame("all", len(wrong), len(trials))]
    cards = _cards(trials)
    suspects = [_Suspect(Blame("card", 0, 0, card=card), _is_card(card)) for card in cards]
    # One card alone had each index: that an index is wrong whatever card it is on takes two.
    indices = _indices(trials) if len(cards) > 1 else []
    suspects += [_Suspect(Blame("index", 0, 0, index=index), _is_index(index)) for index in indices]
    return _explain(trials, suspects)


def blame_copying(trials: Sequence[Trial]) -> list[Blame]:
    """Which ordered pairs are to blame, or all that lead into a card or out of one."""
    suspects = [
        _Suspect(Blame("pair", 0, 0, card=card, source=source), _is_pair(source, card))
        for source, card in sorted({(trial.source or "", trial.card) for trial in trials})
    ]
    suspects += [_Suspect(Blame("into", 0, 0, card=card), _is_card(card)) for card in _cards(trials)]
    sources = sorted({trial.source for trial in trials if trial.source is not None})
    suspects += [_Suspect(Blame("out-of", 0, 0, card=source), _is_source(source)) for source in sources]
    return _explain(trials, suspects)


@dataclass(frozen=True, slots=True)
class _Suspect:
    blame: Blame
    covers: Callable[[Trial], bool]


def _explain(trials: Sequence[Trial], suspects: Sequence[_Suspect]) -> list[Blame]:
    covered = [{at for at, trial in enumerate(trials) if suspect.covers(trial)} for suspect in suspects]
    left = {at for at, trial in enumerate(trials) if trial.wrong}
    wrong = frozenset(left)
    blamed: list[Blame] = []
    for always in (True, False):
        while left:
            scores = [
                (len(each & left), len(each & wrong) / len(each))
                if each and (not always or each <= wrong)
                else (0, 0.0)
                for each in covered
            ]
            best = max(scores)
            if not best[0]:
                break
            # Of those that explain as much at the same rate, the first: they are given with the likeliest in front.
            chosen = scores.index(best)
            mine = covered[chosen] & left
            rivals = sum(mine <= each for at, each in enumerate(covered) if at != chosen and scores[at] >= best)
            named, of = _programs_always_wrong([trials[at] for at in covered[chosen]]), covered[chosen]
            if named:
                of = {at for at in of if trials[at].program in named}
            made = suspects[chosen].blame
            blamed.append(replace(made, wrong=len(of & wrong), trials=len(of), sure=rivals == 0, programs=named))
            left -= mine
    return blamed


def _programs_always_wrong(trials: Sequence[Trial]) -> tuple[str, ...]:
    """The programs that were wrong every time, where all others were right every time."""
    right = {trial.program for trial in trials if not trial.wrong}
    wrong = {trial.program for trial in trials if trial.wrong}
    return () if right & wrong or not right else tuple(sorted(wrong))


def _all_alike(trials: Sequence[Trial]) -> bool:
    """Whether several cards agree on another answer, at every index and every time."""
    answers: dict[int | None, set[int | None]] = {}
    for trial in trials:
        if not trial.wrong or trial.found is None:
            return False
        answers.setdefault(trial.index, set()).add(trial.found)
    return len(_cards(trials)) > 1 and all(len(found) == 1 for found in answers.values())


def _cards(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.card for trial in trials))


def _indices(trials: Sequence[Trial]) -> list[int]:
    return sorted({trial.index for trial in trials if trial.index is not None})


def _is_card(card: str) -> Callable[[Trial], bool]:
    return lambda trial: trial.card == card


def _is_index(index: int) -> Callable[[Trial], bool]:
    return lambda trial: trial.index == index


def _is_source(source: str) -> Callable[[Trial], bool]:
    return lambda trial: trial.source == source


def _is_pair(source: str, card: str) -> Callable[[Trial], bool]:
    return lambda trial: trial.source == source and trial.card == card
