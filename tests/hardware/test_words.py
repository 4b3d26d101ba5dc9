"""Patterns: their words, and how two of them differ, found by arithmetic and by looking."""

from __future__ import annotations

import numpy as np
import pytest
from simulated.contents import pattern_mismatch

from harness.hardware.machine import Mismatch, Pattern
from harness.hardware.patterns import array_mismatch, word_at, words

TOP = 2**64 - 1
PATTERNS = [
    Pattern(0),
    Pattern(TOP),
    Pattern(5, 3),
    Pattern(5, 2**63),
    Pattern(2**63, 2**63),
    Pattern(TOP, TOP),
    Pattern(0, 2**60),
    Pattern(-7, 1),
    Pattern(11, 2),
]


def test_the_words_are_what_the_pattern_says() -> None:
    made = words(Pattern(2**64 - 2, 3), 4)
    assert made.dtype == np.int64
    assert [int(word) % 2**64 for word in made] == [TOP - 1, 1, 4, 7]
    assert [word_at(Pattern(TOP - 1, 3), index) for index in range(4)] == [TOP - 1, 1, 4, 7]
    with pytest.raises(ValueError, match="read-only"):
        made[0] = 0


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64])
def test_two_patterns_differ_where_their_words_do(count: int) -> None:
    for there in PATTERNS:
        for asked in PATTERNS:
            assert pattern_mismatch(there, asked, count) == array_mismatch(words(there, count), asked), (there, asked)


def test_a_changed_word_is_found_in_an_array_of_any_dtype() -> None:
    made = words(Pattern(3, 5), 100).copy()
    assert array_mismatch(made, Pattern(3, 5)) == Mismatch(0)
    made[41] ^= 1 << 40
    made[77] = 0
    wrong = array_mismatch(made.view(np.float32).reshape(2, 100), Pattern(3, 5))
    assert wrong == Mismatch(2, 41, (3 + 41 * 5) ^ 1 << 40)


def test_eighty_gigabytes_are_compared_without_being_made() -> None:
    count = 10**10
    assert pattern_mismatch(Pattern(1, 3), Pattern(1, 3), count).count == 0
    assert pattern_mismatch(Pattern(0), Pattern(1, 3), count).count == count, "1 + 3 i is 0 far beyond"
    assert pattern_mismatch(Pattern(0), Pattern(0, 2**62), count).count == count - count // 4
