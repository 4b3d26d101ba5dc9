"""Silent corruption that is hard to see: on one card alone, of work that is left out, and of a single result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from numpy.typing import NDArray
from numpy_machine import NumpyMachine, context, gpus, wrong_element

from harness.hardware.corruption.check import CHECK
from harness.hardware.machine import Mismatch, Operation, Pattern
from harness.records import Verdict


class _Copying(NumpyMachine):
    """What is copied arrives."""

    def fill(self, card: str, size_bytes: int, pattern: Pattern) -> Any:
        return card, lambda: None

    def mismatch(self, buffer: Any, pattern: Pattern) -> Mismatch:
        return Mismatch(0)


@dataclass
class _WritesOnce(_Copying):
    """Each result lies where the last one of its operation was; of ``idle`` nothing is written after the first run."""

    idle: str = ""
    left: dict[str, NDArray[Any]] = field(default_factory=dict)

    def run(self, operation: Operation, card: str, buffers: Sequence[Any], repeats: int = 1) -> Any:
        array = super().run(operation, card, buffers, repeats)[1]()
        if operation.name == self.idle:
            array = self.left.setdefault(operation.name, array)
        return card, lambda: array


def test_a_program_that_computes_nothing_any_more_is_found() -> None:
    assert CHECK.run(context(_WritesOnce(gpus(1)))).verdict is Verdict.PASS
    outcome = CHECK.run(context(_WritesOnce(gpus(1), idle="matmul float64")))
    assert outcome.verdict is Verdict.FAIL
    assert [finding.device for finding in outcome.findings] == ["/job:localhost/replica:0/task:0/device:GPU:0"]
    assert "matmul float64" in outcome.findings[0].message


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_card_that_is_wrong_once_is_named_and_not_the_index_that_it_had(count: int) -> None:
    card = gpus(count)[-1]
    # A round runs 6 programs and their digests on each card.
    once = wrong_element("matmul float64", card.label, 1.0, only=lambda number: 90 < number <= 90 + 12 * count)
    outcome = CHECK.run(context(_Copying(gpus(count), change=once)))
    assert outcome.verdict is Verdict.FAIL
    assert [finding.device for finding in outcome.findings] == [card.device]
