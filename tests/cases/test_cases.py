"""Faults and right programs that were written without knowing the rules: the faults are found, nothing else is accused.

A commit runs a part of them (``rotated``); ``pytest tests/cases`` runs all.
"""

from __future__ import annotations

import importlib

import pytest
from case_table import CLEAN, FAULTS, Case

import harness
from harness.records import Verdict

MODULES = (
    "scaled_losses", "statistics_and_optimizers", "tables", "number_types", "metrics_and_indices", "sequences",
    "split_models", "traps", "copies_and_structures", "backward_places", "stages_and_members", "right_rows", "right_numbers", "right_states",
    "right_collectives", "right_models",
)  # fmt: skip
for _module in MODULES:
    importlib.import_module(_module)

#: What is judged wrongly today. Each turns red when it is mended, and is then removed here.
KNOWN = {
    "rare_branch_on_device_0-eager": "the branch does not run",
    "generator_leaks_its_scope-eager": "a join in the scope of a device costs nothing that can be stated",
}
#: Their results are rounding error alone, which proves nothing.
UNPROVEN = {"residual_near_zero", "loss_at_the_optimum"}
#: Keras warns of some of the programs.
pytestmark = [pytest.mark.devices(min=4), pytest.mark.filterwarnings("default")]


def _runs(cases: dict[str, Case]) -> pytest.MarkDecorator:
    """Each case in each of its modes."""
    names = {f"{name}-{mode}": (case, mode) for name, case in cases.items() for mode in case.modes}
    marks = {name: pytest.mark.xfail(strict=True, reason=KNOWN[name]) if name in KNOWN else () for name in names}
    return pytest.mark.parametrize(
        ("case", "mode"), [pytest.param(*run, id=name, marks=marks[name]) for name, run in names.items()]
    )


@pytest.mark.rotated(8)
@_runs(FAULTS)
def test_a_fault_is_found_by_one_of_its_kinds(case: Case, mode: str, devices: harness.Devices) -> None:
    found = case.verify(devices, mode)
    assert case.kinds & {str(finding.kind) for finding in found.findings}, found
    assert found.verdict is Verdict.FAIL, found


@pytest.mark.rotated(8)
@_runs(CLEAN)
def test_a_right_program_is_not_accused(case: Case, mode: str, devices: harness.Devices) -> None:
    found = case.verify(devices, mode)
    assert found.findings == (), found
    assert found.verdict is Verdict.PASS or (found.verdict is Verdict.UNKNOWN and case.name in UNPROVEN), found


def test_no_case_is_lost() -> None:
    assert len(FAULTS) == 116
    assert len(CLEAN) == 123
