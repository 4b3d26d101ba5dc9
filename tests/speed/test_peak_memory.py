"""Peak memory: of a process its largest resident set while it was looked at, of a GPU what the allocator says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from harness.devices.device import Device
from harness.speed.memory.watch import MemoryWatch

_HERE = [Device(f"/job:localhost/replica:0/task:0/device:CPU:{index}", "logical-cpu", "") for index in range(2)]
_THERE = Device("/job:worker/replica:0/task:1/device:CPU:0", "remote", "")
_LARGE_BYTES = 1 << 28


@pytest.fixture
def other_process() -> Iterator[int]:
    """A process that does nothing until its input ends."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_what_was_there_for_a_while_is_seen_and_what_came_after_the_last_look_is_not() -> None:
    watch = MemoryWatch(_HERE)
    watch.start()
    watch.look()
    [before, _] = [memory.peak_bytes for memory in watch.peaks()]
    held = np.ones(_LARGE_BYTES, np.uint8)
    assert [memory.peak_bytes for memory in watch.peaks()] == [before, before]
    watch.look()
    del held
    watch.look()
    after = watch.peaks()[0].peak_bytes
    assert before is not None
    assert after is not None
    assert after > before + 0.9 * _LARGE_BYTES
    assert {memory.source for memory in watch.peaks()} == {
        "resident set of its process, which holds 2 of these devices"
    }


def test_each_process_is_looked_at_by_itself(other_process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.speed.memory.watch.server_process", lambda device: other_process)
    watch = MemoryWatch([_HERE[0], _THERE])
    watch.start()
    watch.look()
    own, other = watch.peaks()
    assert own.source == other.source == "resident set of its process"
    assert own.peak_bytes is not None
    assert other.peak_bytes is not None
    assert own.peak_bytes > other.peak_bytes > 0


def test_a_process_that_is_not_known_is_missing_and_not_zero() -> None:
    watch = MemoryWatch([_THERE])
    watch.start()
    watch.look()
    [memory] = watch.peaks()
    assert memory.peak_bytes is None
    assert memory.source == "the process of the device is unknown"


class _Allocator:
    """TensorFlow's statistics of the memory of GPUs, of which card 0 keeps some and card 1 none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import tensorflow as tf

        self.peak_bytes = {"GPU:0": 900}
        monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", self.reset)
        monkeypatch.setattr(tf.config.experimental, "get_memory_info", self.info)

    def reset(self, device: str) -> None:
        self.info(device)
        self.peak_bytes[device] = 100

    def info(self, device: str) -> dict[str, int]:
        if device not in self.peak_bytes:
            raise ValueError(f"Allocator stats not available for device '{device}'")
        return {"current": 50, "peak": self.peak_bytes[device]}


def test_a_gpu_tells_of_its_peak_since_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = _Allocator(monkeypatch)
    gpus = [Device(f"/job:localhost/replica:0/task:0/device:GPU:{index}", "gpu", "") for index in range(2)]
    watch = MemoryWatch(gpus)
    watch.start()
    allocator.peak_bytes["GPU:0"] += 200
    watch.look()
    assert [memory.peak_bytes for memory in watch.peaks()] == [300, None], "missing is not 0"
    assert {memory.source for memory in watch.peaks()} == {"TensorFlow's allocator on the device"}
