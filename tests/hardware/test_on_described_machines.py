"""The checks software, arithmetic and collectives on simulated machines: who is wrong is named."""

from __future__ import annotations

from functools import cache

import pytest
from simulated import DescribedMachine, devices, read_description

from harness.checking.check import Check, CheckContext, Level
from harness.checking.execute import execute
from harness.hardware.arithmetic import check as arithmetic
from harness.hardware.collectives import check as collectives
from harness.hardware.software import check as software
from harness.records import CheckResult, Verdict

pytest_plugins = ["little_data"]
pytestmark = pytest.mark.usefixtures("little_data")

CHECKS = {check.id: check for check in (software.CHECK, arithmetic.CHECK, collectives.CHECK)}
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L4", "Tesla V100-SXM2-16GB", "Tesla T4")


@cache
def _result(check: str, fault: str = "", count: int = 4, model: str = "NVIDIA L4") -> CheckResult:
    text = f'schema_version = 1\n[cards]\ncount = {count}\nmodel = "{model}"\n'
    if fault:
        kind, _, keys = fault.partition(" ")
        text += "\n".join(["[[fault]]", f'kind = "{kind}"', *filter(None, keys.split(", "))])
    made = read_description("described.toml", text)
    chosen: Check = CHECKS[check]
    return execute(chosen, CheckContext(devices(made), level=Level.QUICK, machine=DescribedMachine(made)))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("check", ["software", "arithmetic", "collectives"])
def test_a_machine_in_good_order_passes(check: str, model: str) -> None:
    result = _result(check, model=model)
    assert (result.verdict, result.findings) == (Verdict.PASS, ()), result.reason
    assert len(result.exercised.devices) == 4


def test_a_machine_in_good_order_passes_at_a_deeper_level_too() -> None:
    made = read_description("described.toml", f'schema_version = 1\n[cards]\ncount = 2\nmodel = "{MODELS[0]}"\n')
    given = CheckContext(devices(made), level=Level.STANDARD, machine=DescribedMachine(made))
    result = execute(arithmetic.CHECK, given)
    assert (result.verdict, result.findings) == (Verdict.PASS, ()), result.reason
    assert "matmul float16" in {figure.name for figure in result.figures}


def test_rates_of_known_cards_are_judged_by_their_profile() -> None:
    figures = [figure for figure in _result("arithmetic").figures if figure.name == "matmul float32"]
    assert len(figures) == 4
    assert all("profile L4" in (figure.expected_from or "") for figure in figures)


#: The check, the fault, what kinds of finding it gives, and the card that is named (``None``: the software).
FAULTS = [
    ("software", "driver-too-old", "software", None),
    ("software", "library-missing", "software", None),
    ("software", "kernels-missing", "software", 0),
    ("arithmetic", 'wrong-arithmetic card = 2, dtype = "float32"', "arithmetic", 2),
    ("arithmetic", 'wrong-arithmetic card = 1, dtype = "float64", relative_error = 1e-9', "arithmetic", 1),
    ("arithmetic", "wrong-card card = 3", "arithmetic", 3),
    ("arithmetic", "bit-flip card = 1, probability = 1.0", "nondeterminism", 1),
    ("arithmetic", "slow card = 2", "rate", 2),
    ("arithmetic", "stuck-allocation card = 1, share = 1.0", "memory", 1),
    ("collectives", "collective-drop card = 3", "corruption", 3),
    ("collectives", 'collective-drop card = 1, algorithm = "ring"', "corruption", 1),
]


@pytest.mark.parametrize(("check", "fault", "kind", "card"), FAULTS, ids=[fault for _, fault, _, _ in FAULTS])
def test_a_fault_fails_and_names_its_card_alone(check: str, fault: str, kind: str, card: int | None) -> None:
    result = _result(check, fault)
    assert result.verdict is Verdict.FAIL
    assert kind in {finding.kind for finding in result.findings}
    named = {finding.device for finding in result.findings if finding.device is not None}
    if fault == "kernels-missing":
        assert len(named) == 4
        return
    assert named == (set() if card is None else {f"/job:localhost/replica:0/task:0/device:GPU:{card}"})
    assert result.next_step
    if card is not None:
        assert f"GPU:{card}" in result.next_step


def test_a_little_slower_is_a_warning() -> None:
    result = _result("arithmetic", "slow card = 2, factor = 0.88")
    assert result.verdict is Verdict.WARN
    assert {finding.device for finding in result.findings} == {"/job:localhost/replica:0/task:0/device:GPU:2"}


def test_one_algorithm_that_drops_a_share_is_named_and_no_other() -> None:
    result = _result("collectives", 'collective-drop card = 1, algorithm = "ring"')
    assert {finding.where.rpartition(" by ")[2] for finding in result.findings} == {"ring"}
    assert {finding.where.partition(" by ")[0] for finding in result.findings} == {
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "broadcast",
    }
