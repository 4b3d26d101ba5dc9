"""The rates of a card that is done with a product sooner than it can be told to start: on a clock that is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.hardware.machine import Operation
from harness.hardware.profile_rates import memory_rate, product_rate
from harness.records import Card

#: What starting an op and seeing its result takes at the best, in seconds.
STARTING_S = 150e-6
#: What the card does, as a large GPU does: in FLOP/s and B/s.
FLOPS, BANDWIDTH = 8e14, 3.3e12
CARD = Card("GPU:0", "a fast card", uuid="GPU-1", compute_capability="9.0")


class Fast:
    """A machine that only counts the time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock_s(self) -> float:
        return self.now_s

    def put(self, array: Any, card: str) -> int:
        return int(array.nbytes)

    def run(self, operation: Operation, card: str, buffers: Sequence[int], repeats: int = 1) -> None:
        once_s = operation.flop / FLOPS if operation.flop is not None else 3 * buffers[0] / BANDWIDTH
        self.now_s += STARTING_S + repeats * once_s


def test_what_starting_an_operation_takes_is_not_in_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is multiplied does not matter, and large matrices take long to draw.
    monkeypatch.setattr("harness.hardware.profile_rates.matrices", lambda side, dtype: [_Sized(side * side * 2)] * 2)
    machine: Any = Fast()
    product = product_rate(machine, CARD, "float16")
    assert product is not None
    assert product.value * 1e9 == pytest.approx(FLOPS, rel=0.02)
    assert memory_rate(machine, CARD).value * 1e9 == pytest.approx(BANDWIDTH, rel=0.02)


class _Sized:
    """Stands for an array."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
