"""Under sustained load a card must work, also where starting a product takes long: on a clock that is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.hardware.machine import Operation
from harness.hardware.sustained_load.measure import matrices, product, side_for


class Distant:
    """A machine that only counts the time: a product takes ``starting_s``, and its work at 30 GFLOP/s."""

    def __init__(self, starting_s: float) -> None:
        self.starting_s = starting_s
        self.now_s = 0.0

    def clock_s(self) -> float:
        return self.now_s

    def put(self, array: object, card: str) -> object:
        return array

    def run(self, operation: Operation, card: str, buffers: Sequence[object], repeats: int = 1) -> object:
        self.now_s += self.starting_s + (operation.flop or 0.0) / 30e9
        return buffers[0]


@pytest.mark.parametrize(("starting_s", "wanted"), [(1e-5, 1024), (3e-3, 1024), (12e-3, 2048)])
def test_a_product_is_so_large_that_most_of_its_time_is_work(starting_s: float, wanted: int) -> None:
    machine: Any = Distant(starting_s)
    side, taken_s = side_for(machine, "core/0/CPU:0", "matmul float32")
    assert side == wanted
    assert 2 * side**3 / 30e9 > 0.85 * taken_s


class Arrays:
    """A machine that computes by NumPy, in float32 and in another order than a matrix product does."""

    def put(self, array: Any, card: str) -> Any:
        return array

    def run(self, operation: Operation, card: str, buffers: Sequence[Any], repeats: int = 1) -> Any:
        return np.asarray(operation.reference(*buffers), operation.result_dtype)


@pytest.mark.parametrize("side", [8, 64, 257, 1024])
def test_every_element_of_a_load_is_known_exactly_and_a_changed_bit_of_one_is_seen(side: int) -> None:
    machine: Any = Arrays()
    matrix, exact, wrong = matrices(machine, "GPU:0", side)
    whole = matrix.astype(np.int64)
    assert np.array_equal(whole @ whole, exact.astype(np.int64))
    assert np.abs(whole).max() < 2**10, "TF32 has 11 bits"
    assert int(np.abs(whole).max()) ** 2 * max(side, 8192) < 2**24, "float32 adds up integers below it exactly"
    square = product(side, "matmul float32").reference
    assert not square(matrix, exact, wrong)[0]
    random = np.random.default_rng(side)
    for _ in range(20):
        spoilt = exact.copy()
        spoilt.view(np.uint32).reshape(-1)[random.integers(side**2)] ^= np.uint32(1 << int(random.integers(31)))
        assert square(matrix, spoilt, wrong)[0]
    assert square(matrix, exact, np.ones(1, bool))[0], "what was wrong before stays wrong"


def test_tensorflow_finds_the_same(devices: Any) -> None:
    import tensorflow as tf

    machine: Any = Arrays()
    matrix, exact, wrong = matrices(machine, "CPU:0", 512)
    square = tf.function(product(512, "matmul float32").tensorflow, autograph=False)
    spoilt = exact.copy()
    spoilt.view(np.uint32)[300, 7] ^= 1
    for device in devices:
        with tf.device(device.name):
            assert [bool(square(*map(tf.constant, (matrix, each, wrong)))[0]) for each in (exact, spoilt)] == [
                False,
                True,
            ]
