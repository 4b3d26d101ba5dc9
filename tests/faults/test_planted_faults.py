"""Each planted fault is found, by the kinds of finding it should be found by; its clean twin passes."""

from __future__ import annotations

import pytest
from causes import names_cause

import harness
from harness.faults.catalogue import FAULTS
from harness.faults.fault import Case, Fault, Program
from harness.records import Verdict

pytest_plugins = ["four_devices"]

_ALL = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
#: Those whose finding has to do with which devices there are. XLA takes seconds to compile, so once is enough.
_PLACES = [fault for fault in FAULTS.values() if fault.id[0] in "CP" and fault.id != "P06"]


def _verify(case: Case, program: Program, devices: harness.Devices) -> harness.Verification:
    with case.surroundings():
        return harness.verify(program, case.reference, case.inputs, devices=case.meant or devices, **case.options)


def _kinds_by_mode(verification: harness.Verification, case: Case) -> dict[str, frozenset[str]]:
    return {
        mode: frozenset(finding.kind for finding in verification.findings if mode in finding.mode.split(", "))
        for mode in case.modes
    }


@_ALL
def test_a_planted_fault_is_found_in_every_mode(fault: Fault, four_cpus: harness.Devices) -> None:
    case = fault.plant(four_cpus)
    verification = _verify(case, case.parallel, four_cpus)
    assert verification.verdict is Verdict.FAIL, verification
    assert _kinds_by_mode(verification, case) == dict.fromkeys(case.modes, case.kinds), verification
    assert names_cause(fault, verification.reason) or "no known cause" in verification.reason, verification


@_ALL
def test_the_clean_twin_of_a_fault_passes(fault: Fault, four_cpus: harness.Devices) -> None:
    case = fault.plant(four_cpus)
    verification = _verify(case, case.twin, four_cpus)
    exercised = verification.exercised
    assert verification.findings == (), verification
    assert verification.verdict is Verdict.PASS, verification
    assert exercised.programs == len(case.modes)
    assert exercised.values > 0
    assert exercised.ops > 0
    assert exercised.devices == four_cpus.names[: len(exercised.devices)]
    assert bool(exercised.gradients) == case.gradients


@pytest.mark.parametrize("fault", _PLACES, ids=str)
def test_a_fault_is_found_and_its_twin_passes_away_from_the_host(fault: Fault, four_cpus: harness.Devices) -> None:
    """On two devices, neither of which is the host, as with two GPUs."""
    devices = four_cpus[2:]
    case = fault.plant(devices)
    mode = case.modes[:1]
    with case.surroundings():
        options = {**case.options, "modes": mode, "devices": case.meant or devices}
        found = harness.verify(case.parallel, case.reference, case.inputs, **options)
        clean = harness.verify(case.twin, case.reference, case.inputs, **options)
    assert {finding.kind for finding in found.findings} == case.kinds, found
    assert clean.passed, clean
    assert clean.findings == (), clean
