"""The check ``isolation``: what a process saw, right and wrong, and two real processes on CPUs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from numpy_machine import CPU_SOFTWARE, NumpyMachine, context, cpus, gpus

from harness.checking.check import CheckContext
from harness.checks import task_processes
from harness.devices.device import Device, Devices
from harness.hardware.isolation import check as isolation
from harness.hardware.isolation.check import CHECK
from harness.hardware.isolation.judge import Given, Seen, judge_isolation
from harness.hardware.memory_settings import check as memory_settings
from harness.records import Verdict

CARD = gpus(2)[1]
GIVEN = Given(CARD, CARD.uuid)
SEEN = Seen(1, ("GPU-00000001",), ("GPU-00000001",), (0, 1), True, "/job:localhost/replica:0/task:0/device:GPU:0")
ON_CPU = Given(cpus(2)[1], None, (3,))
SEEN_ON_CPU = Seen(0, (), None, (3,), True, "/job:localhost/replica:0/task:0/device:CPU:0")


def test_a_process_with_its_card_alone_is_right() -> None:
    assert judge_isolation(GIVEN, SEEN) == []
    assert judge_isolation(GIVEN, replace(SEEN, used=None)) == []
    assert judge_isolation(ON_CPU, SEEN_ON_CPU) == []


@pytest.mark.parametrize(
    ("given", "seen", "said"),
    [
        (GIVEN, replace(SEEN, gpus=2, uuids=("GPU-00000000", "GPU-00000001")), "sees 2 GPUs"),
        (GIVEN, replace(SEEN, uuids=("GPU-00000000",)), "sees 1 GPU, GPU-00000000"),
        (GIVEN, replace(SEEN, used=("GPU-00000000", "GPU-00000001")), "memory on other GPUs: GPU-00000000"),
        (GIVEN, replace(SEEN, right=False), "incorrectly"),
        (GIVEN, replace(SEEN, device="/job:localhost/replica:0/task:0/device:CPU:0"), "computed on"),
        (GIVEN, "exit code 1", "failed: exit code 1"),
        (ON_CPU, replace(SEEN_ON_CPU, cpus=(2, 3)), "has threads on CPUs 2, 3"),
        (ON_CPU, replace(SEEN_ON_CPU, gpus=1), "sees 1 GPU"),
    ],
)
def test_whatever_is_not_alone_is_found_and_names_the_card(given: Given, seen: Seen | str, said: str) -> None:
    (finding,) = judge_isolation(given, seen)
    assert (finding.kind, finding.device) == ("isolation", given.card.device)
    assert given.card.label in finding.message
    assert said in finding.message


def _devices(count: int) -> Devices:
    names = [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(count)]
    return Devices([Device(name, "logical-cpu", "/physical_device:CPU:0") for name in names], spec=f"cpu:{count}")


def _context(count: int) -> CheckContext:
    return CheckContext(_devices(count), machine=NumpyMachine(cpus(count), facts=CPU_SOFTWARE))


@pytest.mark.usefixtures("forked_workers")
def test_real_processes_have_a_cpu_each_and_compute_right() -> None:
    outcome = CHECK.run(_context(2))
    assert (outcome.verdict, outcome.findings) == (Verdict.PASS, ())
    assert outcome.exercised.programs == 2
    assert outcome.exercised.devices == _devices(2).names


def test_a_process_that_says_nothing_is_a_finding_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "TASK", "harness.hardware.not_there:run")
    outcome = CHECK.run(_context(1))
    assert outcome.verdict is Verdict.FAIL
    assert "not_there" in outcome.findings[0].message
    assert "CPU:0" in outcome.next_step


def test_a_process_that_hears_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hears_nothing.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(isolation, "TASK", "hears_nothing:run")
    monkeypatch.setattr(isolation, "LIMIT_S", 0.0)
    outcome = CHECK.run(_context(1))
    assert outcome.verdict is Verdict.FAIL
    assert "no answer within" in outcome.findings[0].message


def test_the_cpus_of_threads_are_read_of_this_process() -> None:
    from harness.hardware.isolation.measure import allowed_cpus_of_threads

    assert allowed_cpus_of_threads() == os.sched_getaffinity(0)


def test_where_no_process_can_have_a_card_it_is_skipped_with_the_reason() -> None:
    assert CHECK.run(context(None)).verdict is Verdict.UNKNOWN
    software = Devices([Device("/device:GPU:0", "software-gpu", "/physical_device:GPU:0")], spec="softgpu:1")
    for check, why in ((isolation, "no other process"), (memory_settings, "cannot be given to another process")):
        own = check.CHECK.run(CheckContext(software, machine=NumpyMachine(gpus(1))))
        assert own.verdict is Verdict.SKIP
        assert why in own.reason
    parts = Devices([Device("/device:GPU:0", "logical-gpu", "/physical_device:GPU:0")], spec="gpu:1x2")
    shared = CHECK.run(CheckContext(parts, machine=NumpyMachine(gpus(1))))
    assert shared.verdict is Verdict.SKIP
    assert "part of a GPU" in shared.reason


@pytest.mark.parametrize("module", [isolation, memory_settings, task_processes], ids=lambda each: each.CHECK.id)
def test_no_process_is_started_beside_this_one_on_a_card_that_admits_one(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise _Started

    for name in ("on_machine", "slots"):
        monkeypatch.setattr(module, name, start, raising=False)
    names = [f"/job:localhost/replica:0/task:0/device:GPU:{index}" for index in range(2)]
    devices = Devices([Device(name, "gpu", f"/physical_device:GPU:{name[-1]}") for name in names], spec="gpu")
    for exclusive in (True, False):
        cards = tuple(replace(card, exclusive=exclusive) for card in gpus(2))
        given = CheckContext(devices, machine=NumpyMachine(cards))
        if not exclusive:
            with pytest.raises(_Started):
                module.CHECK.run(given)
            continue
        outcome = module.CHECK.run(given)
        assert outcome.verdict is Verdict.SKIP
        assert "GPU:0, GPU:1: in compute mode EXCLUSIVE_PROCESS, no process besides this one" in outcome.reason
        assert "--compute-mode DEFAULT" in outcome.next_step


class _Started(Exception):
    """A check gets to where it starts processes."""
