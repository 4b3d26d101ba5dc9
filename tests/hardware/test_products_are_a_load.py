"""Under sustained load a card must work, also where starting a product takes long: on a clock that is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.hardware.machine import Operation
from harness.hardware.sustained_load.measure import side_for


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
