"""Finds the cause of wrong results: a card, an index, an ordered pair of cards, or all cards alike.

Work is permuted over the cards, so every index ran on every card. What is always wrong is blamed first, then what
explains most of the rest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.hardware.finding import (
    ACCESS_CONTROL,
    FABRIC_WAY,
    HOST_MEMORY,
    LINK,
    NVLINKS,
    REPLACE,
    device_of,
    finding,
)
from harness.records import Card, Finding

#: 0.975 quantile of the normal distribution: two-sided intervals of 95 %.
_Z = 1.959964
#: What happens less often is not taken for chance.
CHANCE = 0.05
#: What joins cards directly, in the place of a way over PCIe.
NVLINK = "NVLink"


@dataclass(frozen=True, slots=True)
class Trial:
    """One result with a known answer: computed on ``card`` at ``index``, or copied there from ``source``.

    ``found`` is a digest that tells wrong results apart.
    """

    card: str
    wrong: bool
    index: int | None = None
    source: str | None = None
    found: int | None = None
    program: str = ""


@dataclass(slots=True)
class Trials:
    """The trials so far, and details of the first wrong one by card, index or pair.

    ``proofs`` is how often the memory of a card was found to be right after a wrong copy.
    """

    trials: list[Trial] = field(default_factory=list)
    details: dict[str, str] = field(default_factory=dict)
    proofs: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Blame:
    """A cause of wrong results: ``wrong`` of its ``trials``.

    ``sure`` is false if another cause explains as much, or if copies of a card with some of the others were all right.

    ``card`` is the card, or the target of a pair whose source is ``source``; ``cards`` are those of a ``way`` that none
    of them is to blame for. ``way`` is what joins them, or the pair. ``programs`` are set if it is wrong in these and
    never in others, more than by chance; the counts are then of these.
    """

    kind: Literal["card", "index", "pair", "into", "out-of", "all", "way"]
    wrong: int
    trials: int
    card: str | None = None
    index: int | None = None
    source: str | None = None
    sure: bool = True
    programs: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    way: str = ""

    @property
    def intermittent(self) -> bool:
        """Whether some trials were right."""
        return self.wrong < self.trials

    def covers(self, trial: Trial) -> bool:
        """Whether the cause would make the trial wrong."""
        if self.kind == "index":
            return trial.index == self.index
        if self.kind == "out-of":
            return trial.source == self.card
        return trial.card == self.card and (self.kind != "pair" or trial.source == self.source)


def wilson(wrong: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a rate (E. B. Wilson, JASA 22, 1927); without trials, 0 to 1."""
    if not trials:
        return 0.0, 1.0
    share, weight = wrong / trials, _Z**2 / trials
    middle = share + weight / 2
    spread = _Z * math.sqrt(share * (1 - share) / trials + weight / (4 * trials))
    low = 0.0 if wrong == 0 else (middle - spread) / (1 + weight)
    high = 1.0 if wrong == trials else (middle + spread) / (1 + weight)
    return low, high


def unseen_rate(trials: int) -> float:
    """Return the highest rate that ``trials`` without a fault leave possible, with 95 % confidence."""
    return 1.0 - 0.05 ** (1.0 / trials) if trials else 1.0


def blame_computing(trials: Sequence[Trial]) -> list[Blame]:
    """Blame cards or indices; ``all`` if all cards give the same wrong answer at each index."""
    wrong = [trial for trial in trials if trial.wrong]
    if not wrong:
        return []
    if _all_alike(trials):
        return [Blame("all", len(wrong), len(trials))]
    cards = _cards(trials)
    by_card = [Blame("card", 0, 0, card=card) for card in cards]
    # With one card, an index cannot be told from the card.
    indices = sorted({trial.index for trial in trials if trial.index is not None}) if len(cards) > 1 else []
    blamed = _explain(trials, by_card + [Blame("index", 0, 0, index=index) for index in indices])
    found = [each for each in blamed if each.kind == "index"]
    if found and all(each.intermittent for each in found):
        # Of cards that are all wrong now and then, chance makes some index the one with the most wrong results.
        alone = _explain(trials, by_card)
        if len(alone) <= len(blamed) and all(_wrong_all_over(each, trials) for each in alone):
            return alone
    return blamed


def blame_copying(trials: Sequence[Trial]) -> list[Blame]:
    """Blame ordered pairs, or all copies into a card or out of one."""
    pairs = sorted({(trial.source or "", trial.card) for trial in trials})
    sources = sorted({trial.source for trial in trials if trial.source is not None})
    suspects = [Blame("pair", 0, 0, card=card, source=source) for source, card in pairs]
    suspects += [Blame("into", 0, 0, card=card) for card in _cards(trials)]
    suspects += [Blame("out-of", 0, 0, card=source) for source in sources]
    return _explain(trials, suspects)


def _explain(trials: Sequence[Trial], suspects: Sequence[Blame]) -> list[Blame]:
    covered = [{at for at, trial in enumerate(trials) if suspect.covers(trial)} for suspect in suspects]
    left = {at for at, trial in enumerate(trials) if trial.wrong}
    wrong = frozenset(left)
    all_over = [_wrong_all_over(suspect, trials) for suspect in suspects]
    blamed: list[Blame] = []
    explained: set[int] = set()
    for always in (True, False):
        while left:
            scores = [
                (likely, len(each & left), len(each & left) / len(each - explained))
                if each & left and (not always or each <= wrong)
                else (False, 0, 0.0)
                for each, likely in zip(covered, all_over, strict=True)
            ]
            best = max(scores)
            if not best[1]:
                break
            # Of equal explanations the first one, which is the likeliest.
            chosen = scores.index(best)
            mine = covered[chosen] & left
            rivals = sum(mine <= each for at, each in enumerate(covered) if at != chosen and scores[at] >= best)
            named, of = _programs_wrong([trials[at] for at in covered[chosen]]), covered[chosen]
            if named:
                of = {at for at in of if trials[at].program in named}
            sure = rivals == 0
            if suspects[chosen].kind == "pair":
                sure = True  # the least that explains its copies
            elif suspects[chosen].kind in ("into", "out-of"):
                sure = sure and all(ends[0] for ends in _by_end(suspects[chosen], trials))
            blamed.append(replace(suspects[chosen], wrong=len(of & wrong), trials=len(of), sure=sure, programs=named))
            left -= mine
            explained |= covered[chosen]
    return blamed


def _by_end(suspect: Blame, trials: Sequence[Trial]) -> list[tuple[int, int]]:
    """Return how many trials that a cause covers were wrong, and how many there were, at each index or other card."""
    counts: dict[object, tuple[int, int]] = {}
    for trial in trials:
        if suspect.covers(trial):
            end = trial.card if suspect.kind in ("index", "out-of") else trial.source or trial.index
            wrong, count = counts.get(end, (0, 0))
            counts[end] = wrong + trial.wrong, count + 1
    return list(counts.values())


def _wrong_all_over(suspect: Blame, trials: Sequence[Trial]) -> bool:
    """Return whether what a cause covers is wrong at each index, or at each other card, or was right there by chance.

    Two bad links of a card are wrong at two of its ends only, so the card is not the cause.
    """
    ends = _by_end(suspect, trials)
    hit = [each for each in ends if each[0]]
    share = sum(count for _, count in hit) / max(1, sum(count for _, count in ends))
    # If all ends were wrong as often: the chance that all wrong results are at so few of them, whichever these are.
    return math.comb(len(ends), len(hit)) * share ** sum(wrong for wrong, _ in hit) > CHANCE


def _programs_wrong(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return the programs that were wrong, if all others were right, and not by chance or because they ran less."""
    wrong = {trial.program for trial in trials if trial.wrong}
    if {trial.program for trial in trials} == wrong:
        return ()
    always = not any(trial.program in wrong and not trial.wrong for trial in trials)
    share = sum(trial.program in wrong for trial in trials) / len(trials)
    alone = share ** sum(trial.wrong for trial in trials) < CHANCE
    return tuple(sorted(wrong)) if always or alone else ()


def _all_alike(trials: Sequence[Trial]) -> bool:
    """Return whether several cards agree on a wrong answer, at every index and every time."""
    answers: dict[int | None, set[int | None]] = {}
    for trial in trials:
        if not trial.wrong or trial.found is None:
            return False
        answers.setdefault(trial.index, set()).add(trial.found)
    return len(_cards(trials)) > 1 and all(len(found) == 1 for found in answers.values())


def _cards(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.card for trial in trials))


def computing_findings(
    blame: Sequence[Blame], cards: Mapping[str, Card], details: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the findings of :func:`blame_computing`. ``details`` are by card, or ``index N``."""
    for each in blame:
        rate, where, subject = _rate(each), "known answers", ""
        if each.kind == "card":
            sure = (
                "at every shard index"
                if each.sure
                else "but there were too few trials to tell whether the device or its shard index is the cause"
            )
            sure = "with no other device to compare it with" if len(cards) == 1 else sure
            message, step = f"computes wrong results {rate}, {sure}; {details.get(each.card or '', '')}", REPLACE
        elif each.kind == "index":
            where = subject = f"index {each.index}"
            message = f"results at shard {where} are wrong on every device, {rate}; {details.get(where, '')}"
            step = (
                "no device is to blame: each of them got this index in turn and gave wrong results; try another "
                "version of TensorFlow, its libraries and the driver"
            )
        else:
            message = f"all {len(cards)} devices agree on a wrong result: {next(iter(details.values()), '')}"
            step = (
                f"no device is to blame, because {', '.join(cards)} agree; test the host's processor and memory, "
                "and try another version of TensorFlow and its libraries"
            )
        yield finding(
            "corruption",
            cards.get(each.card or ""),
            where,
            expected="the exact result",
            found=rate,
            message=message.rstrip(";: "),
            next_step=step,
            subject=subject,
        )


def copying_findings(
    blame: Sequence[Blame], cards: Mapping[str, Card], details: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the findings of :func:`blame_copying`. ``details`` are by ``GPU:1 -> GPU:3``."""
    for each in blame:
        label, rate = each.card or "", _rate(each)
        if each.kind == "way":
            yield _way_finding(each, cards, details)
            continue
        if each.kind == "pair":
            where = f"{each.source} -> {label}"
            message = f"the copy {where} delivers wrong data {rate}; {details.get(where, '')}".rstrip("; ")
        else:
            way, does = ("into", "receives") if each.kind == "into" else ("out of", "sends")
            where = f"copies {way} {label}"
            sure = (
                "whichever device is at the other end"
                if each.sure
                else "but there were too few trials to tell whether the device or some of its links are the cause"
            )
            message = f"corrupts the copies that it {does}, {rate}, {sure}"
        yield finding(
            "corruption",
            cards[label],
            where,
            expected="the data that was sent",
            found=rate,
            message=message,
            next_step=REPLACE if each.kind != "pair" else _step_of_pair(each) if cards[label].is_gpu else HOST_MEMORY,
            pair=(each.source or "", label) if each.kind == "pair" else None,
        )


def _step_of_pair(blame: Blame) -> str:
    return NVLINKS if blame.way == NVLINK else LINK


def _way_finding(blame: Blame, cards: Mapping[str, Card], details: Mapping[str, str]) -> Finding:
    """Report what is wrong between cards that are all right."""
    detail = next((text for name, text in details.items() if set(name.split(" -> ")) <= set(blame.cards)), "")
    gpus = all(cards[label].is_gpu for label in blame.cards)
    step = HOST_MEMORY if not gpus else FABRIC_WAY if blame.way == NVLINK else ACCESS_CONTROL
    made = finding(
        "corruption",
        None,
        f"copies between {', '.join(blame.cards)}",
        expected="the data that was sent",
        found=_rate(blame),
        message=f"copies between {', '.join(blame.cards)} deliver wrong data both ways, {_rate(blame)}"
        f"{f' ({detail})' if detail else ''}, but each of them computes and keeps what it is given: the way between "
        "them is at fault, and none of them",
        next_step=step,
        subject="copies",
    )
    return replace(made, devices=tuple(device_of(cards[label]) for label in blame.cards))


def _rate(blame: Blame) -> str:
    of = f" of {', '.join(blame.programs)}" if blame.programs else ""
    if not blame.intermittent:
        return f"in {'the only trial' if blame.trials == 1 else f'all {blame.trials:,} trials'}{of}"
    low, high = wilson(blame.wrong, blame.trials)
    share = f"{blame.wrong / blame.trials:.2%}, 95% interval {low:.2%} to {high:.2%}"
    return f"in {blame.wrong:,} of {blame.trials:,} trials{of} ({share})"
