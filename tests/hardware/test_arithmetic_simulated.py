"""The check arithmetic on simulated machines: who is wrong is named, and rates are judged."""

from __future__ import annotations

from functools import cache

import pytest
from actions import wrong_actions
from simulated import DescribedMachine, devices, machine, read_description

from harness.checking.check import CheckContext, Level
from harness.checking.execute import execute
from harness.hardware.arithmetic import check as arithmetic
from harness.records import CheckResult, Verdict

pytest_plugins = ["little_data"]
pytestmark = pytest.mark.usefixtures("little_data")

MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L4", "Tesla V100-SXM2-16GB", "Tesla T4")


@cache
def _result(fault: str = "", count: int = 4, model: str = "NVIDIA L4") -> CheckResult:
    text = f'schema_version = 1\n[cards]\ncount = {count}\nmodel = "{model}"\n'
    if fault:
        kind, _, keys = fault.partition(" ")
        text += "\n".join(["[[fault]]", f'kind = "{kind}"', *filter(None, keys.split(", "))])
    made = read_description("described.toml", text)
    return execute(arithmetic.CHECK, CheckContext(devices(made), level=Level.QUICK, machine=DescribedMachine(made)))


@pytest.mark.parametrize("model", MODELS)
def test_a_machine_in_good_order_passes(model: str) -> None:
    result = _result(model=model)
    assert (result.verdict, result.findings) == (Verdict.PASS, ()), result.reason
    assert len(result.exercised.devices) == 4


def test_a_machine_in_good_order_passes_at_a_deeper_level_too() -> None:
    made = read_description("described.toml", f'schema_version = 1\n[cards]\ncount = 2\nmodel = "{MODELS[0]}"\n')
    given = CheckContext(devices(made), level=Level.STANDARD, machine=DescribedMachine(made))
    result = execute(arithmetic.CHECK, given)
    assert (result.verdict, result.findings) == (Verdict.PASS, ()), result.reason
    assert "matmul float16" in {figure.name for figure in result.figures}


def test_rates_of_known_cards_are_judged_by_their_profile() -> None:
    figures = [figure for figure in _result().figures if figure.name == "matmul float32"]
    assert len(figures) == 4
    assert all("profile L4" in (figure.expected_from or "") for figure in figures)


#: The fault, what kinds of finding it gives, and the card that is named.
FAULTS = [
    ('wrong-arithmetic card = 2, dtype = "float32"', "arithmetic", 2),
    ('wrong-arithmetic card = 1, dtype = "float64", relative_error = 1e-9', "arithmetic", 1),
    ("wrong-card card = 3", "arithmetic", 3),
    ("bit-flip card = 1, probability = 1.0", "nondeterminism", 1),
    ("slow card = 2", "rate", 2),
    ("stuck-allocation card = 1, share = 1.0", "memory", 1),
]


@pytest.mark.parametrize(("fault", "kind", "card"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_a_fault_fails_and_names_its_card_alone(fault: str, kind: str, card: int) -> None:
    result = _result(fault)
    assert result.verdict is Verdict.FAIL
    assert kind in {finding.kind for finding in result.findings}
    named = {finding.device for finding in result.findings if finding.device is not None}
    assert named == {f"/job:localhost/replica:0/task:0/device:GPU:{card}"}
    assert f"GPU:{card}" in result.next_step
    assert wrong_actions(machine(4, "NVIDIA L4", fault), result.findings, [fault]) == []


def test_a_little_slower_is_a_warning() -> None:
    result = _result("slow card = 2, factor = 0.88")
    assert result.verdict is Verdict.WARN
    assert {finding.device for finding in result.findings} == {"/job:localhost/replica:0/task:0/device:GPU:2"}
