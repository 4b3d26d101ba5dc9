"""Rows of shards are those of a scan of the reference but for the carry, which is another one that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from harness.judgement.diagnosis.origins import place_of_step
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.recorded import Step, close, named, slack
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import Search, searched
from harness.judgement.diagnosis.wording import rows_text
from harness.judgement.values import wide

#: A carry that is read several times is reported up to so many.
_MOST_TIMES = 16


@dataclass(frozen=True)
class _Law:
    """How a carry goes into a shard: it is added, or multiplied with, and how that is undone."""

    join: Callable[[Any, Any], Any]
    undo: Callable[[Any, Any], Any]
    nothing: float


_LAWS = (_Law(np.add, np.subtract, 0.0), _Law(np.multiply, np.divide, 1.0))


def _claims(question: Question) -> Iterator[Cause]:
    if question.only_gradients:
        return
    search = searched(question)
    partners = search.partners
    if not partners.aligned or len(partners.shards) < 2:
        return
    for number, whole in enumerate(search.whole):
        result = whole.result
        if result is None or not result.size or not result.ndim or not (parts := partners.parts(number)):
            continue
        for law in _LAWS:
            for last in (False, True):
                if (scan := _Scan.of(result, parts, partners.sizes, law, last)) is not None:
                    yield from _causes(search, whole, scan)


@dataclass(frozen=True)
class _Scan:
    """The parts of a scan in the order in which it runs, the carry into each of them, and its own total.

    ``shards`` are their numbers: those of a scan that begins with the last row run backwards.
    """

    law: _Law
    shards: list[int]
    parts: list[Array]
    carries: list[Array]
    totals: list[Array]

    @classmethod
    def of(cls, whole: Array, parts: Sequence[Array], sizes: Sequence[int], law: _Law, last: bool) -> _Scan | None:
        """The scan along the first axis, if each part is the whole one's but for a carry, and the first has none."""
        if len(whole) != sum(sizes) or min(sizes) < 2:
            return None
        if any(part.shape != (size, *whole.shape[1:]) for part, size in zip(parts, sizes, strict=True)):
            return None
        rows = np.split(wide(whole), np.cumsum(sizes)[:-1])
        order = list(range(len(parts)))[:: -1 if last else 1]
        own = [wide(parts[shard]) for shard in order]
        carries = (_carry(rows[shard], part, law, whole) for shard, part in zip(order, own, strict=True))
        known = [carry for carry in carries if carry is not None]
        none = [bool(np.allclose(carry, law.nothing, rtol=0.0, atol=slack(whole))) for carry in known]
        if len(known) < len(parts) or not none[0] or all(none):
            return None
        return cls(law, order, own, known, [part[0 if last else -1] for part in own])

    def told(self, at: int, carry: Array, off: float) -> str | None:
        """Which wrong carry this is; ``None`` for one that is not known."""
        join, undo, right = self.law.join, self.law.undo, self.carries[at]

        def is_(other: Array) -> bool:
            return bool(np.allclose(carry, other, rtol=1e-4, atol=off))

        if is_(right):
            return None
        after = reduce(join, self.totals[at + 1 :], np.full_like(right, self.law.nothing))
        if at + 1 < len(self.totals) and is_(after):
            return "made from the later shards instead of the earlier ones"
        made = right
        for times in range(2, _MOST_TIMES):
            made = join(made, right)
            if is_(made):
                return f"counted {times} times"
        if is_(join(right, self.totals[at])):
            return "made from the shard's own rows too"
        if at > 1 and is_(self.totals[at - 1]):
            return f"made from shard {self.shards[at - 1]} alone, instead of all earlier shards"
        for other in range(at):
            if is_(undo(right, self.totals[other])):
                return f"without the part of shard {self.shards[other]}"
        for other in range(len(self.carries)):
            if other != at and is_(self.carries[other]):
                return f"the carry into shard {self.shards[other]}"
        if is_(undo(self.law.nothing, right)):
            return (
                "subtracted instead of added" if self.law.nothing == 0.0 else "used as a divisor instead of as a factor"
            )
        return None


def _carry(whole: Array, part: Array, law: _Law, scale: Array) -> Array | None:
    """What all rows of a part differ by."""
    with np.errstate(all="ignore"):
        carry = np.asarray(law.undo(whole, part)[:1])
        made = law.join(part, carry)
    if not np.all(np.isfinite(carry)):
        return None
    return carry[0] if bool(np.all(close(made, whole, slack(scale)))) else None


def _with_carry(search: Search, step: Step, scan: _Scan) -> bool:
    """Whether a step makes the rows of a shard with the right carry, and not without."""
    made = step.first
    if made is None or search.is_bad(step):
        return False
    shapes = [part for part in scan.parts if part.shape == made.shape]
    return bool(shapes) and not any(np.all(close(wide(made), part, slack(made))) for part in shapes)


def _causes(search: Search, whole: Step, scan: _Scan) -> Iterator[Cause]:
    wrong: dict[int, tuple[Step, str]] = {}
    result = whole.result
    assert result is not None
    for step in search.steps:
        made = step.first
        if made is None or made.dtype != result.dtype or not step.place:
            continue
        status, made = search.status[step.outputs[0]], wide(made)
        alone = status == "local" and any(_with_carry(search, each, scan) for each in search.groups[id(step)])
        for at, part in enumerate(scan.parts):
            if made.shape != part.shape:
                continue
            if at and alone and np.all(close(made, part, slack(result))):
                wrong[at] = step, "left out"
            carry = _carry(made, part, scan.law, result) if status == "differs" else None
            if carry is not None and (text := scan.told(at, carry, 4.0 * slack(result))) is not None:
                wrong[at] = step, text
    if wrong:
        first = min(wrong)
        step, text = wrong[first]
        shards = sorted(scan.shards[at] for at, (_, other) in wrong.items() if other == text)
        yield Cause(
            f"the carry of {named(whole)} into {rows_text(shards, 'shard')} is wrong: it is {text}",
            place_of_step(step, search.shared),
            "pass on to each shard the carry of all shards before it, once",
        )


RULE = Rule("C414", "wrong-carry", "a wrong carry of a scan", _claims)
