"""Each planted fault is found, with its kinds of finding, its cause and the first op; its clean twin passes."""

from __future__ import annotations

import pytest
import sentences

import harness
from harness.faults.catalogue import FAULTS
from harness.faults.fault import Case, Fault
from harness.faults.selftest import kinds_in, names_one_of, origin_of
from harness.records import Verdict

pytest_plugins = ["four_devices"]

_SAID = sentences.stored()
#: The first of each class, such as V01; another one of its class is a variant.
_FIRST = {fault.id: fault.name for fault in reversed(list(FAULTS.values()))}
_ALL = pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=() if fault.name == _FIRST[fault.id] else pytest.mark.variant)
        for fault in FAULTS.values()
    ],
)
#: One of each class whose finding has to do with which devices there are. XLA takes seconds to compile, so not again.
_PLACES = {fault.id: fault for fault in FAULTS.values() if fault.group in ("placement", "set-up") and fault.id != "P06"}


def _skip_where_unsuited(fault: Fault[Case], devices: harness.Devices) -> None:
    if why := fault.unsuited(devices):
        pytest.skip(why)


@_ALL
def test_a_planted_fault_is_found_in_every_mode(fault: Fault[Case], four_cpus: harness.Devices) -> None:
    _skip_where_unsuited(fault, four_cpus)
    case = fault.plant(four_cpus)
    found = case.judge(four_cpus, faulty=True)
    assert found.verdict is Verdict.FAIL, found
    for mode in case.modes:
        assert case.kinds <= kinds_in(found, mode) <= case.kinds | case.also, found
    assert fault.names_cause(found.reason, len(four_cpus)), found
    assert not fault.rule or {finding.cause for finding in found.findings if finding.cause} == {fault.rule}, found
    origin = origin_of(fault, four_cpus)
    assert not origin or names_one_of(origin, found.reason), (origin, found)
    assert len(str(found).splitlines()) <= 10, found
    if four_cpus[0].kind == "logical-cpu":  # on GPUs, sentences name these
        assert sentences.shown(found.reason) == _SAID[fault.name], "if that is meant: python tests/faults/sentences.py"


@_ALL
def test_the_clean_twin_of_a_fault_passes(fault: Fault[Case], four_cpus: harness.Devices) -> None:
    _skip_where_unsuited(fault, four_cpus)
    case = fault.plant(four_cpus)
    clean = case.judge(four_cpus, faulty=False)
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean
    assert clean.exercised.programs == len(case.modes)
    assert clean.exercised.values > 0
    assert clean.exercised.ops > 0
    # On GPUs the host may have a part in it.
    exercised = [name for name in clean.exercised.devices if name in four_cpus.names]
    assert tuple(exercised) == four_cpus.names[: len(exercised)]
    assert exercised
    assert {*clean.exercised.devices} <= {*four_cpus.names, four_cpus.host}
    assert bool(clean.exercised.gradients) == case.gradients


@pytest.mark.parametrize("fault", _PLACES.values(), ids=str)
def test_a_fault_is_found_and_its_twin_passes_away_from_the_host(
    fault: Fault[Case], four_cpus: harness.Devices
) -> None:
    """On two devices, neither of which is the host, as with two GPUs."""
    devices = four_cpus[2:]
    case = fault.plant(devices)
    mode = case.modes[:1]
    found = case.judge(devices, faulty=True, modes=mode)
    clean = case.judge(devices, faulty=False, modes=mode)
    kinds = {finding.kind for finding in found.findings}
    # Work without a scope is on the first GPU, which is none of the devices here; that they are idle follows from it.
    on_gpus = devices[0].parsed.kind == "GPU"
    if on_gpus and "op-placement" in kinds:
        assert case.kinds - {"unused-device"} <= kinds <= case.kinds | case.also | {"op-placement"}, found
    else:
        assert case.kinds <= kinds <= case.kinds | case.also, found
    # The twin of P10 leaves its optimizer without a scope, so on the first GPU, which is found there.
    is_p10 = on_gpus and str(fault).startswith("P10")
    there = [each for each in clean.findings if is_p10 and "without a device scope" in each.message]
    assert clean.findings == tuple(there), clean
    assert clean.passed or there, clean
