"""What ``harness devices`` and ``harness list`` print."""

from __future__ import annotations

import io
from dataclasses import replace

from pydantic import TypeAdapter
from rich.console import Console

from harness.checks.registry import SUITE
from harness.devices.device import Device
from harness.devices.profile import shipped_profiles
from harness.records import Fingerprint, GpuFacts
from harness.report.checks import print_checks
from harness.report.machine import MachineFacts, print_machine
from harness.runner.messages import plain

FACTS = Fingerprint("2.21.0", "3.15", "2.4", "3.11", False, "a [fast] cpu", 8, 4, 4096, "linux")
MACHINE = MachineFacts(("CPU:0",), "auto took cpu:4", None, (), FACTS)


def shown(machine: MachineFacts) -> str:
    stream = io.StringIO()
    print_machine(Console(file=stream, width=100, highlight=False), machine, shipped_profiles())
    return stream.getvalue()


def test_the_machine_is_described_with_what_auto_would_take_and_all_profiles() -> None:
    text = shown(MACHINE)
    assert "a [fast] cpu, 8 cores (4 physical)" in text
    assert "4,096 MiB" in text
    assert "auto took cpu:4" in text
    assert "no usable GPU" in text
    assert "configured" not in text
    for profile in shipped_profiles():
        assert f"@{profile.name} " in text
        assert profile.description in text


def test_configured_devices_are_named_in_full() -> None:
    device = Device("/job:localhost/replica:0/task:0/device:CPU:1", "logical-cpu", "/physical_device:CPU:0")
    text = shown(replace(MACHINE, reason="as asked", devices=(device,)))
    assert "as asked" in text
    assert f"{device.name}  logical-cpu on {device.physical}" in text


def test_gpu_software_is_named_and_what_is_not_known_is_said_to_be() -> None:
    facts = replace(FACTS, gpus=(GpuFacts("a card"),), driver="555.1", cores_logical=None, cpu_model=None)
    text = shown(replace(MACHINE, fingerprint=facts))
    assert "driver 555.1, CUDA unknown, cuDNN unknown" in text
    assert "unknown, cores unknown" in text


def test_the_answer_of_the_process_that_looked_is_parsed() -> None:
    answer: dict[str, object] = {
        "physical": ["CPU:0"],
        "auto": "auto took cpu:4",
        "reason": None,
        "devices": [],
        "fingerprint": plain(FACTS),
    }
    assert TypeAdapter(MachineFacts).validate_python(answer) == MACHINE


def test_the_list_names_each_check_with_what_it_proves_needs_and_takes() -> None:
    stream = io.StringIO()
    print_checks(Console(file=stream, width=200, highlight=False), SUITE.checks)
    text = stream.getvalue()
    for check in SUITE.checks:
        assert check.id in text
        assert f"{check.typical_s:g} s" in text
        assert check.proves[:40] in text
    assert "1 device " in text
    assert "2 devices" in text
