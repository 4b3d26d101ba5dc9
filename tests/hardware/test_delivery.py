"""A faulty path between two cards is told from a faulty card at one of its ends."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from harness.checking.check import Level
from harness.hardware.blame import Trials
from harness.hardware.delivery import COPIES, copy, judge_delivery
from harness.hardware.machine import Mismatch, Pattern
from harness.hardware.patterns import STEP, words
from harness.records import Card, Finding

_PATTERN, _WORDS = Pattern(7, STEP), 16


class _Machine:
    """Two cards; what ``wrong`` makes is garbage from its second time on, every other time, and it does not notice."""

    cards = tuple(Card(label, "x") for label in ("GPU:0", "GPU:1"))

    def __init__(self, wrong: str) -> None:
        self._wrong, self._times = wrong, 0

    def fill(self, label: str, size: int, pattern: Pattern) -> Any:
        self._times += label == self._wrong
        garbage = label == self._wrong and self._times % 2 == 0
        return np.full(size // 8, -1) if garbage else words(pattern, size // 8)

    def mismatch(self, buffer: Any, pattern: Pattern) -> Mismatch:
        return Mismatch(0)

    def fetch(self, buffer: Any) -> Any:
        return buffer

    def move(self, buffer: Any, label: str) -> Any:
        return buffer


class _Cut(_Machine):
    """No copy arrives, or none of those to one card; what is made where it lies is right."""

    def __init__(self, *to: str) -> None:
        super().__init__("none")
        self._to = to

    def move(self, buffer: Any, label: str) -> Any:
        return np.zeros_like(buffer) if label in self._to else buffer

    def mismatch(self, buffer: Any, pattern: Pattern) -> Mismatch:
        return Mismatch(int(np.count_nonzero(buffer != words(pattern, buffer.size))), 0, 0)


def _judged(wrong: str) -> tuple[Finding | None, Trials]:
    made, trials = cast("Any", _Machine(wrong)), Trials()
    arrived = Mismatch(_WORDS, 0, 0)
    sent = made.fill("GPU:0", _WORDS * 8, _PATTERN)
    return judge_delivery(made, sent, "GPU:0", "GPU:1", arrived, _PATTERN, _WORDS * 8, trials), trials


@pytest.mark.parametrize("card", ["GPU:0", "GPU:1"])
def test_a_card_that_makes_the_pattern_wrong_at_times_is_to_blame_and_not_the_path(card: str) -> None:
    memory, trials = _judged(card)
    assert not trials.trials[0].wrong
    assert memory is not None
    assert memory.device == card


def test_a_path_between_cards_that_make_it_right_is_to_blame() -> None:
    memory, trials = _judged("none")
    assert memory is None
    assert trials.trials[0].wrong
    assert trials.details == {"GPU:0 -> GPU:1": "all 16 words arrived as zeros"}


def test_where_no_copy_arrives_more_copies_and_more_proofs_of_the_memory_are_left_out() -> None:
    for to, each in ((("GPU:0", "GPU:1"), COPIES[Level.QUICK]), (("GPU:1",), COPIES[Level.STANDARD])):
        made, trials = _Cut(*to), Trials()
        assert copy(cast("Any", made), Level.STANDARD, 1, trials) == []
        assert len(trials.trials) == 2 * each
        assert {trial.card for trial in trials.trials if trial.wrong} == set(to)
        assert set(trials.proofs.values()) == {4}
