"""Tasks on GPUs, with cards and memory that are faked: what a process is given, and whose memory it takes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.devices.described.order import uuid_of
from harness.devices.nvidia import Card
from harness.errors import DevicesUnavailable
from harness.parallel.task_processes import TaskResult, Tasks
from harness.parallel.tasks import Script, Slot, slots
from harness.records import Verdict

CARDS = (Card("H100", "GPU-aaaa", 80000, 79000), Card("H100", "GPU-bbbb", 80000, 79000))


def test_a_gpu_is_given_by_its_uuid() -> None:
    first, second = slots("gpu", cards=CARDS)
    assert first.environment["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    assert (second.uuid, second.cpus) == ("GPU-bbbb", None)
    assert [slot.uuid for slot in slots("gpu:1", cards=CARDS)] == ["GPU-aaaa"]
    with pytest.raises(DevicesUnavailable, match="GPU-bbbb"):
        slots("gpu:3", cards=CARDS)


def test_auto_takes_the_cards_else_the_physical_cores() -> None:
    assert len(slots("auto", cards=CARDS)) == 2
    assert [slot.cpus for slot in slots("auto", cards=(), cores=(0, 2))] == [(0,), (2,)]


def test_a_software_gpu_is_given_by_its_spec_and_one_of_a_described_machine_by_its_uuid_too() -> None:
    assert [slot.software_gpu for slot in slots("softgpu:2x512")] == ["softgpu:1x512"] * 2
    described = slots("softgpu:@missing-of-4")
    assert {str(slot.software_gpu).rpartition("/")[2] for slot in described} == {"missing-of-4.toml"}
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in described] == [uuid_of(slot) for slot in (0, 1, 3)]


def test_more_cpus_than_there_are_share_and_more_cores_are_refused() -> None:
    assert [slot.cpus for slot in slots("cpu:3", cards=(), cpus=(4, 5))] == [(4,), (5,), (4,)]
    with pytest.raises(DevicesUnavailable, match="3 CPU cores, one for each task"):
        slots("cores:3", cards=(), cores=(0, 1))


def test_a_task_that_takes_anothers_gpu_memory_is_reported_and_its_neighbour_is_not(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = tmp_path / "waits.py"
    script.write_text(f"import pathlib, time\nwhile not pathlib.Path({str(seen)!r}).exists():\n    time.sleep(0.1)\n")
    own = [Slot("GPU:0", None, {}, "GPU-aaaa"), Slot("GPU:1", None, {}, "GPU-bbbb")]
    pids: dict[int, int] = {}

    def used() -> dict[tuple[str, int], int]:
        """The second task's process is on both cards; a stranger's is on one of them."""
        if len(pids) < 2:
            return {}
        one, two = pids[0], pids[1]
        seen.touch()
        return {("GPU-aaaa", one): 10, ("GPU-bbbb", two): 20, ("GPU-aaaa", two): 30, ("GPU-bbbb", 1): 9}

    tasks = Tasks([Script(script), Script(script)], own, tmp_path / "logs", gpu_memory=used)
    for event in tasks.run():
        if not isinstance(event, TaskResult):
            pids[event[0]] = tasks.running_pid(event[0])
            time.sleep(0.1)
    first, second = sorted(tasks.results, key=lambda result: result.number)
    assert (first.verdict, first.message) == (Verdict.PASS, "")
    assert second.verdict is Verdict.FAIL
    assert second.message == "used a GPU that is not this task's: 30 MiB of GPU-aaaa"
    assert second.exit_code == 0
