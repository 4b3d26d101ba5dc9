"""Rows that one device works on alone, beside its shard, are found, and so is a shard's cache on a neighbour."""

from __future__ import annotations

from collections.abc import Callable

import few_devices_programs
import pytest
import undivided_programs
from shard_programs import Program

import harness
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=4)


def _verify(program: Program, devices: harness.Devices) -> harness.Verification:
    return harness.verify(
        program.parallel, program.reference, program.inputs, devices=devices, modes=program.modes, gradients=False
    )


@pytest.mark.cases(3, "cache_joined_on_a_neighbour", "clients_evaluated_by_one", "teacher_in_numpy")
@pytest.mark.parametrize("name", undivided_programs.PAIRS)
def test_what_one_device_does_for_all_is_found_and_the_clean_twin_passes(name: str, devices: harness.Devices) -> None:
    make = undivided_programs.PAIRS[name]
    found = _verify(make(devices, True), devices)
    kind = "unused-device" if name == "heads_of_few_rows" else "op-placement"
    # Beside most of the work on one device, what the others do may be too little to count.
    assert kind in {finding.kind for finding in found.findings} <= {kind, "unused-device"}, found
    clean = _verify(make(devices, False), devices)
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean


@pytest.mark.parametrize(("make", "kind"), few_devices_programs.PAIRS.items())
def test_what_too_few_devices_do_is_found_and_the_clean_twin_passes(
    make: Callable[[harness.Devices, bool], Program], kind: str, devices: harness.Devices
) -> None:
    found = _verify(make(devices, True), devices)
    assert {finding.kind for finding in found.findings} == {kind}, found
    clean = _verify(make(devices, False), devices)
    assert clean.verdict is Verdict.PASS, clean


@pytest.mark.cases(2)
@pytest.mark.parametrize("make", [*undivided_programs.CLEAN, *few_devices_programs.CLEAN])
def test_work_for_all_that_belongs_to_one_device_passes(
    make: Callable[[harness.Devices], Program], devices: harness.Devices
) -> None:
    clean = _verify(make(devices), devices)
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean
