"""Work belongs on the device of the shard whose rows it is done on, whatever scope it asked for."""

from __future__ import annotations

from collections.abc import Callable

import clean_joins
import clean_models
import clean_shards
import misplaced_models
import misplaced_programs
import pytest
from shard_programs import Program

import harness
from harness.records import Verdict

PAIRS = {**misplaced_programs.PAIRS, **misplaced_models.PAIRS}


def _verify(program: Program, devices: harness.Devices) -> harness.Verification:
    used = devices[: program.devices]
    return harness.verify(
        program.parallel, program.reference, program.inputs, devices=used, modes=program.modes, gradients=False
    )


@pytest.mark.parametrize("name", PAIRS)
def test_work_on_another_shards_device_is_found_and_the_clean_twin_passes(name: str, devices: harness.Devices) -> None:
    program = PAIRS[name](devices, True)
    found = _verify(program, devices)
    for mode in program.modes:
        kinds = {finding.kind for finding in found.findings if mode in finding.mode.split(", ")}
        # The gradients of a forward op that is out of place are taken in the shard's scope.
        assert kinds in ({"op-placement"}, {"op-placement", "gradient-placement"}), (mode, found)
    clean = _verify(PAIRS[name](devices, False), devices)
    assert clean.findings == ()
    assert clean.verdict is Verdict.PASS, clean


@pytest.mark.parametrize("make", [*clean_joins.CLEAN, *clean_shards.CLEAN, *clean_models.CLEAN])
def test_a_right_program_passes(make: Callable[[harness.Devices], Program], devices: harness.Devices) -> None:
    clean = _verify(make(devices), devices)
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean
