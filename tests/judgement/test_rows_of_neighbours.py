"""A part with a few rows of its neighbours is still this part; joined rows, and sums of replicas, are at home too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import rows_of_neighbours
from shard_programs import Program

import harness
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)


def _verify(program: Program, devices: harness.Devices) -> harness.Verification:
    return harness.verify(program.parallel, program.reference, program.inputs, devices=devices, gradients=False)


@pytest.mark.parametrize(("make", "kind"), rows_of_neighbours.PAIRS.items())
def test_what_one_device_does_for_its_neighbours_is_found_and_the_clean_twin_passes(
    make: Callable[[harness.Devices, bool], Program], kind: str, devices: harness.Devices
) -> None:
    found = _verify(make(devices, True), devices)
    assert {(finding.mode, finding.kind) for finding in found.findings} == {("eager, graph", kind)}, found
    clean = _verify(make(devices, False), devices)
    assert clean.verdict is Verdict.PASS, clean


@pytest.mark.parametrize("make", rows_of_neighbours.CLEAN)
def test_what_neighbours_exchange_and_what_they_share_passes(
    make: Callable[[harness.Devices], Program], devices: harness.Devices
) -> None:
    clean = _verify(make(devices), devices)
    assert clean.verdict is Verdict.PASS, clean
