"""The faults of described machines act in what TensorFlow executes: each is found on its card, and clean twins pass."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from executed_machines import FAULTY, LEAKING, all_machines, every_machine

from harness.devices.described.description import FAULT_KINDS
from harness.records import Verdict
from harness.softgpu.compiler import NAMES

_WITHOUT = not any(shutil.which(name) for name in NAMES)
#: What no check of a machine with software GPUs can show: it takes another process, rates, or more than one run.
ELSEWHERE = {"absent", "cuda-unavailable", "nondeterministic", "slow"}


def test_there_are_40_faulty_machines_and_40_clean_ones_of_every_kind() -> None:
    planted = {fault.split(" ")[0] for machine in (*FAULTY, *LEAKING) for fault in machine.faults}
    assert planted | ELSEWHERE == set(FAULT_KINDS)
    verdicts = [machine.verdict for machine in all_machines()]
    assert verdicts.count(Verdict.PASS) >= 40
    assert len(verdicts) - verdicts.count(Verdict.PASS) >= 40


@pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")
def test_every_fault_is_found_on_its_card_and_every_clean_machine_passes(fresh_process: Callable[..., object]) -> None:
    fresh_process(every_machine, timeout_s=1100)
