"""Silent corruption that is hard to see: on one card alone, of work that is left out, and of a single result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_machine import NumpyMachine, context, gpus, wrong_element

from harness.checking.check import Level
from harness.hardware.blame import Trial
from harness.hardware.corruption import measure
from harness.hardware.corruption.check import CHECK, excluded_rates
from harness.hardware.corruption.measure import AT_ONCE
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


def test_a_pass_states_what_it_excludes_and_standard_excludes_1_in_300_of_each_type() -> None:
    for level, least in ((Level.QUICK, 10), (Level.STANDARD, 300)):
        outcome = CHECK.run(replace(context(_Copying(gpus(2))), level=level))
        assert outcome.verdict is Verdict.PASS
        rates = {
            text.partition(":")[0]: int(text.partition("less than 1 in ")[2].partition(" ")[0].replace(",", ""))
            for text in outcome.scope
            if "less than 1 in" in text
        }
        products = {f"matmul {dtype}" for dtype in ("float32", "float64", "float16", "bfloat16")}
        assert set(rates) == {*products, "convolution float32", "permutation and sums int64"}
        assert min(rates.values()) >= least
        assert not [text for text in outcome.scope if text.startswith("hint: ")]
        assert f"less than 1 in {min(rates.values()):,} results are wrong, at 95 %" in outcome.reason


def test_the_rate_is_that_of_the_binomial_distribution_and_of_the_card_with_the_fewest_results() -> None:
    made = [Trial("GPU:0", False, program="a")] * 3000 + [Trial("GPU:1", False, program="a")] * 2000
    made += [Trial("GPU:0", False, program="digest of a")] * 10
    assert excluded_rates(made) == {"a": 668}
    assert pytest.approx((1 - 1 / 668) ** 2000, rel=0.01) == 0.05


@pytest.mark.parametrize("name", ["matmul bfloat16", "convolution float32", "permutation and sums int64"])
def test_one_wrong_result_in_hundreds_is_found_at_standard_with_its_card_and_type(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(measure.ROUNDS, Level.STANDARD, 3)

    def rarely(operation: Operation, card: str, number: int, result: NDArray[Any]) -> NDArray[Any]:
        if operation.name == name and card == "GPU:1" and result.size == AT_ONCE:
            return np.where(np.arange(result.size) == 3, 1, result)
        return result

    outcome = CHECK.run(replace(context(_Copying(gpus(3), change=rarely)), level=Level.STANDARD))
    (found,) = outcome.findings
    assert found.device == gpus(3)[1].device
    assert f"{name}: result 3 is wrong in 1 of 32 runs" in found.message


def test_what_the_time_is_too_short_for_is_said_and_no_rate_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(measure.ROUNDS, Level.STANDARD, 3)
    monkeypatch.setitem(measure.RESULTS_LIMIT_S, Level.STANDARD, -1.0)
    outcome = CHECK.run(replace(context(_Copying(gpus(3))), level=Level.STANDARD))
    assert outcome.verdict is Verdict.PASS
    (hint,) = (text for text in outcome.scope if text.startswith("hint: "))
    assert "too slow to exclude that 1 in 300 results is wrong" in hint
    assert "less than 1 in 172 results are wrong, at 95 %" in outcome.reason
