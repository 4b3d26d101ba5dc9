"""Every changed bit of a stored result is found, at any element, and nothing else is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from harness.hardware.bits import changed_bits
from harness.hardware.known_answers import digest_of, digest_weights, known_answers

FLIPS, CLEAN = 1_000, 1_000
ANSWERS = known_answers(20170717, 0, on_cpu=True)


def flipped(array: npt.NDArray[np.generic], draw: np.random.Generator) -> tuple[npt.NDArray[np.generic], set[int]]:
    """A copy with a bit, several bits or an aligned run of bits changed, and the elements in which they are."""
    made = array.copy()
    octets = made.reshape(-1).view(np.uint8)
    kind = int(draw.integers(3))
    if kind == 0:
        bits = {int(draw.integers(octets.size * 8))}
    elif kind == 1:
        bits = {int(each) for each in draw.integers(octets.size * 8, size=int(draw.integers(2, 9)))}
    else:
        length = 2 ** int(draw.integers(1, 8))
        start = int(draw.integers(octets.size * 8 // length)) * length
        bits = set(range(start, start + length))
    for bit in bits:
        octets[bit // 8] ^= np.uint8(1 << bit % 8)
    return made, {bit // 8 // array.dtype.itemsize for bit in bits}


def test_a_thousand_random_flips_are_found_by_the_host_and_by_the_digest() -> None:
    draw = np.random.default_rng(7)
    weights = {answer.operation.name: digest_weights(answer.expected.size, 1) for answer in ANSWERS}
    elements: set[int] = set()
    for number in range(FLIPS):
        answer = ANSWERS[number % len(ANSWERS)]
        found, where = flipped(answer.expected, draw)
        changed = changed_bits(found, answer.expected)
        assert changed
        assert changed.elements == len(where)
        assert changed.first == min(where)
        assert changed.bits >= changed.elements
        by = weights[answer.operation.name]
        assert digest_of(found, by) != digest_of(answer.expected, by)
        elements |= where
    assert len(elements) > 1_000, "they are all over the result"


def test_a_flip_of_each_bit_of_the_first_and_of_the_last_element_is_found() -> None:
    for answer in ANSWERS:
        for octet in (*range(8), *range(-8, 0)):
            for bit in range(8):
                found = answer.expected.copy()
                found.reshape(-1).view(np.uint8)[octet] ^= np.uint8(1 << bit)
                assert changed_bits(found, answer.expected).bits == 1


def test_a_thousand_clean_results_give_no_alarm() -> None:
    for index in range(CLEAN // 4):
        for answer in known_answers(3, index, on_cpu=True):
            again = np.asarray(answer.operation.reference(*answer.arrays)).astype(answer.expected.dtype)
            assert not changed_bits(again, answer.expected)
            assert changed_bits(again, answer.expected).first is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (np.array([0.0], np.float32), np.array([-0.0], np.float32)),
        (np.array([np.nan], np.float32), -np.array([np.nan], np.float32)),
        (np.array([1.0], np.float64), np.nextafter(np.array([1.0], np.float64), 2)),
        (np.zeros(3, np.float32), np.zeros(3, np.int32)),
        (np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)),
        (np.zeros(0, np.float32), np.zeros(2, np.float32)),
    ],
)
def test_what_looks_equal_and_is_not_the_same_bits_is_changed(
    found: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]
) -> None:
    assert changed_bits(found, expected)


def test_nan_with_the_same_bits_is_the_same() -> None:
    array = np.array([np.nan, np.inf, -0.0], np.float32)
    assert not changed_bits(array.copy(), array)


def test_the_known_answers_are_exact_in_each_dtype() -> None:
    """Whatever the order of summation: no sum of absolute values is beyond the whole numbers of the dtype."""
    whole = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}
    products = [each for each in (*ANSWERS, *known_answers(1, 2)) if each.operation.dtype in whole]
    assert {each.operation.dtype for each in products} == set(whole)
    for answer in products:
        sums = answer.operation.reference(*(np.abs(array.astype(np.float64)) for array in answer.arrays))
        assert sums.max() <= whole[answer.operation.dtype]
        assert answer.expected.dtype.name == answer.operation.dtype
