"""The check ``arithmetic`` on machines of NumPy: each fault beside its clean twin."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_machine import CPU_SOFTWARE, Change, NumpyMachine, context, cpus, gpus, with_software, wrong_element

from harness.checking.check import Level
from harness.hardware.arithmetic.check import CHECK
from harness.hardware.arithmetic.trials import Trial, both_ways, rates_of, values_of
from harness.hardware.machine import DeviceMemoryFull, Operation
from harness.records import Card, CheckResult, Verdict

pytest_plugins = ["little_data"]
pytestmark = pytest.mark.usefixtures("little_data")

FOUR = gpus(4)


def _run(machine: NumpyMachine, level: Level = Level.QUICK) -> CheckResult:
    return CHECK.run(context(machine, level))


def _found(outcome: CheckResult) -> set[tuple[str, str | None]]:
    return {(finding.kind, finding.device) for finding in outcome.findings}


@pytest.mark.parametrize("level", [Level.QUICK, Level.STANDARD])
@pytest.mark.parametrize("cards", [FOUR, gpus(1), cpus(2)], ids=["four GPUs", "one GPU", "two CPUs"])
def test_a_clean_machine_passes_and_says_what_it_rests_on(cards: tuple[Card, ...], level: Level) -> None:
    facts = CPU_SOFTWARE if cards == cpus(2) else with_software()
    outcome = _run(NumpyMachine(cards, facts=facts), level)
    assert (outcome.verdict, outcome.findings) == (Verdict.PASS, ())
    assert outcome.exercised.values > 10_000
    assert set(outcome.exercised.devices) == {card.device for card in cards}
    assert any("matmul float64" in said for said in outcome.scope)
    if cards == cpus(2) and level is Level.QUICK:
        assert outcome.figures == (), "rates of logical CPUs say nothing"
        return
    rates = {figure.name: figure for figure in outcome.figures if figure.device == outcome.figures[0].device}
    assert rates["matmul float32"].value == pytest.approx(1000, rel=1e-6)
    assert rates["matmul float32"].unit == "GFLOP/s"
    assert rates["memory bandwidth"].value == pytest.approx(1000, rel=1e-6)
    assert rates["memory bandwidth"].unit == "GB/s"


@pytest.mark.parametrize("operation", ["matmul float64", "matmul float32", "matmul bfloat16", "convolution float32",
    "reduction float32", "elementwise float32", "fft complex64", "sort float32", "matmul int32"])  # fmt: skip
def test_a_wrong_digit_on_one_card_is_arithmetic_and_names_the_card(operation: str) -> None:
    outcome = _run(NumpyMachine(FOUR, change=wrong_element(operation, "GPU:2", 1.0)))
    assert outcome.verdict is Verdict.FAIL
    assert ("arithmetic", FOUR[2].device) in _found(outcome)
    assert {device for _, device in _found(outcome)} == {FOUR[2].device}
    (first, *_) = outcome.findings
    assert first.where.startswith(operation)
    assert "0000:03:00.0" in first.message
    assert "GPU:2" in outcome.next_step


class _Full(NumpyMachine):
    """A machine whose second card has no memory."""

    def put(self, array: NDArray[Any], card: str) -> Any:
        if card == "GPU:1":
            raise DeviceMemoryFull(card, array.nbytes)
        return super().put(array, card)


class _FullUnderWay(NumpyMachine):
    """A machine whose second card has no memory for the results of rates."""

    def run(self, operation: Operation, card: str, buffers: Sequence[Any], repeats: int = 1) -> Any:
        if card == "GPU:1" and repeats > 1:
            raise DeviceMemoryFull(card, 2**24)
        return super().run(operation, card, buffers, repeats)


def test_rates_of_the_others_are_measured_where_a_card_runs_out_of_memory() -> None:
    outcome = _run(_FullUnderWay(FOUR))
    assert _found(outcome) == {("memory", FOUR[1].device)}
    assert len(outcome.findings) == 1
    assert {each.device for each in outcome.figures if each.name == "memory bandwidth"} == {"GPU:0", "GPU:2", "GPU:3"}


def test_a_device_of_little_memory_gets_vectors_that_fit() -> None:
    for room in (None, 64 * 2**20, 32 * 2**20):
        for trial in rates_of(Level.QUICK, False, room):
            assert room is None or 5 * sum(4 * math.prod(shape) for shape in trial.shapes) // 2 <= room


def test_a_card_without_memory_is_named_once_and_the_others_are_tested() -> None:
    outcome = _run(_Full(FOUR, change=wrong_element("sort float32", "GPU:2", 1.0)))
    assert {("memory", FOUR[1].device), ("arithmetic", FOUR[2].device)} <= _found(outcome)
    assert {device for _, device in _found(outcome)} == {FOUR[1].device, FOUR[2].device}
    assert [each.kind for each in outcome.findings].count("memory") == 1


def test_a_last_bit_on_one_card_is_found_though_every_bound_allows_it() -> None:
    machine = NumpyMachine(FOUR, change=wrong_element("matmul float32", "GPU:1", 0.0))
    assert _found(_run(machine)) == {("corruption", FOUR[1].device)}


def test_of_two_cards_that_differ_both_are_named_and_neither_is_accused() -> None:
    outcome = _run(NumpyMachine(FOUR[:2], change=wrong_element("matmul float32", "GPU:1", 0.0)))
    (finding,) = {(each.kind, each.device, each.message) for each in outcome.findings if each.where == "matmul float32"}
    assert finding[:2] == ("corruption", None)
    assert "GPU:0" in finding[2]
    assert "GPU:1" in finding[2]


def test_of_two_cards_the_one_beyond_its_bound_alone_is_accused() -> None:
    outcome = _run(NumpyMachine(FOUR[:2], change=wrong_element("sort float32", "GPU:1", 0.5)))
    assert _found(outcome) == {("arithmetic", FOUR[1].device)}


def test_cards_of_other_models_need_not_have_the_same_bits() -> None:
    cards = (*FOUR[:3], replace(FOUR[3], name="Another GPU"))
    machine = NumpyMachine(cards, change=wrong_element("matmul float32", "GPU:3", 0.0))
    assert _run(machine).verdict is Verdict.PASS


def test_another_algorithm_of_a_convolution_on_one_card_is_a_warning_that_says_why() -> None:
    outcome = _run(NumpyMachine(FOUR, change=wrong_element("convolution float32", "GPU:1", 0.0)))
    assert outcome.verdict is Verdict.WARN
    assert "pick a different one" in outcome.findings[0].message


def test_other_bits_in_a_second_run_are_nondeterminism() -> None:
    change = wrong_element("reduction float32", "GPU:3", 0.0, only=lambda number: number % 2 == 0)
    outcome = _run(NumpyMachine(FOUR, change=change))
    assert outcome.verdict is Verdict.FAIL
    assert ("nondeterminism", FOUR[3].device) in _found(outcome)
    assert {device for _, device in _found(outcome)} == {FOUR[3].device}


def test_nan_is_never_within_a_bound() -> None:
    def nan(of: Operation, on: str, number: int, result: NDArray[Any]) -> NDArray[Any]:
        return np.full_like(result, np.nan) if (of.name, on) == ("fft complex64", "GPU:0") else result

    assert ("arithmetic", FOUR[0].device) in _found(_run(NumpyMachine(FOUR, change=nan)))


@pytest.mark.parametrize(
    ("speed", "verdict"), [(1.0, Verdict.PASS), (0.95, Verdict.PASS), (0.88, Verdict.WARN), (0.6, Verdict.FAIL),
    (1.12, Verdict.WARN), (1.5, Verdict.FAIL)]
)  # fmt: skip
def test_a_card_is_judged_against_the_median_of_its_kind(speed: float, verdict: Verdict) -> None:
    outcome = _run(NumpyMachine(gpus(8), speed={"GPU:5": speed}))
    assert outcome.verdict is verdict
    assert {finding.device for finding in outcome.findings} <= {gpus(8)[5].device}
    assert all("median of 8 GPUs of this model" in (figure.expected_from or "") for figure in outcome.figures)
    assert verdict is Verdict.PASS or "GPU:5" in outcome.next_step


def test_a_core_that_is_slow_for_a_while_is_no_more_than_a_warning() -> None:
    cores = tuple(replace(card, label=f"core/{index}/CPU:0") for index, card in enumerate(cpus(4)))
    half = NumpyMachine(cores, facts=CPU_SOFTWARE, speed={"core/1/CPU:0": 0.5})
    assert _run(half).verdict is Verdict.PASS
    tenth = NumpyMachine(cores, facts=CPU_SOFTWARE, speed={"core/1/CPU:0": 0.1})
    assert _run(tenth).verdict is Verdict.WARN


def test_rates_of_logical_cpus_are_told_and_not_judged() -> None:
    tenth = _run(NumpyMachine(cpus(4), facts=CPU_SOFTWARE, speed={"CPU:1": 0.1}), Level.STANDARD)
    assert tenth.verdict is Verdict.PASS
    assert any("not judged: rates compared with the median of 4 logical CPUs" in each for each in tenth.scope)
    assert not any(each.startswith("rates judged against") for each in tenth.scope)


def _coarse(card: str, dtype: str = "float32") -> Change:
    """Operands of products are rounded as TF32 does it, to 11 bits: so the result's errors are of that size."""

    def change(of: Operation, on: str, number: int, result: NDArray[Any]) -> NDArray[Any]:
        if on != card or of.name not in (f"matmul {dtype}", f"convolution {dtype}"):
            return result
        noise = np.random.default_rng(1).normal(0, 2.0**-12, result.shape)
        coarse: NDArray[Any] = (result + noise * np.sqrt(np.mean(np.square(result)))).astype(result.dtype)
        return coarse

    return change


def test_tf32_is_seen_from_the_arithmetic_and_its_rates_have_its_name() -> None:
    outcome = _run(NumpyMachine(gpus(1), change=_coarse("GPU:0", "tfloat32")))
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert "GPU:0: TF32 is on, float32 products use it (about 3 decimal digits)" in outcome.scope
    assert {figure.name for figure in outcome.figures} >= {"matmul tfloat32", "memory bandwidth"}


@pytest.mark.parametrize(
    "machine",
    [
        NumpyMachine(gpus(1), facts=with_software(tf32=False), change=_coarse("GPU:0")),
        NumpyMachine(gpus(1, "Tesla V100", "7.0"), change=_coarse("GPU:0")),
        NumpyMachine(cpus(1), facts=CPU_SOFTWARE, change=_coarse("CPU:0")),
    ],
    ids=["switched off", "a card without it", "a CPU"],
)
def test_arithmetic_as_coarse_as_tf32_is_a_fault_where_there_is_none(machine: NumpyMachine) -> None:
    outcome = _run(machine)
    assert {kind for kind, _ in _found(outcome)} == {"arithmetic"}


def test_tf32_that_is_on_and_not_used_is_said() -> None:
    assert "GPU:0: TF32 is on, float32 products do not use it" in _run(NumpyMachine(gpus(1))).scope


def test_a_missing_kernel_is_said_and_no_failure() -> None:
    outcome = _run(NumpyMachine(FOUR, without_kernels=("matmul int32",)))
    assert outcome.verdict is Verdict.PASS
    assert "no kernel for matmul int32 on GPU:0, GPU:1, GPU:2, GPU:3" in outcome.scope


def test_a_machine_that_can_run_nothing_does_not_pass() -> None:
    names = [trial.operation.name for trial in _all_trials()]
    outcome = _run(NumpyMachine(FOUR, without_kernels=tuple(names)))
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.exercised.nothing


def test_a_clock_that_stands_still_gives_no_rate_and_no_pass() -> None:
    outcome = _run(NumpyMachine(gpus(1), stopped=True))
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.figures == ()
    assert "clock did not advance" in outcome.reason


def test_without_a_machine_or_a_card_nothing_is_said_to_be_right() -> None:
    assert CHECK.run(context(None)).verdict is Verdict.UNKNOWN
    assert CHECK.run(context(NumpyMachine(()))).verdict is Verdict.UNKNOWN


def _all_trials() -> list[Trial]:
    return both_ways([*values_of(Level.QUICK), *rates_of(Level.QUICK, True)])


class _Place:
    """Memory on a card, which is given out again when nobody refers to it."""

    def __init__(self, card: str, array: NDArray[Any]) -> None:
        self._of = (card, lambda: array)

    def __getitem__(self, index: int) -> Any:
        return self._of[index]


@dataclass
class _WritesOnce(NumpyMachine):
    """A machine on which a product is computed once; later its kernel is started, and writes nothing."""

    last: dict[tuple[str, str], tuple[weakref.ref[_Place], NDArray[Any]]] = field(default_factory=dict)

    def run(self, operation: Operation, card: str, buffers: Sequence[Any], repeats: int = 1) -> Any:
        array = super().run(operation, card, buffers, repeats)[1]()
        if operation.name == "matmul float64" and (operation.name, card) in self.last:
            place, left = self.last[operation.name, card]
            array = left if place() is None else np.zeros_like(array)
        made = _Place(card, array)
        self.last[operation.name, card] = weakref.ref(made), array
        return made


def test_a_second_run_that_writes_nothing_is_not_taken_for_the_first() -> None:
    outcome = _run(_WritesOnce(gpus(1)))
    assert ("nondeterminism", FOUR[0].device) in _found(outcome)
