"""Which speedups are none (FAULTS S06), and what the label says of each kind."""

from __future__ import annotations

import pytest

import harness
from harness.devices.cores import usable_cores
from harness.devices.device import Device
from harness.speed.label import Label, kind_of, label_of, speed_label

#: Threads in an op and between ops, and cores.
Threads = tuple[int, int, int]
_ANY: Threads = (0, 0, 1)


@pytest.mark.parametrize(
    ("kind", "count", "threads", "label"),
    [
        ("software-gpu", 1, _ANY, Label("1 software GPU, which computes on the CPU: not a GPU's speedup", gates=False)),
        ("software-gpu", 2, _ANY, Label("2 software GPUs, which compute on the CPU: not a GPU's speedup", gates=False)),
        ("logical-gpu", 2, _ANY, Label("logical GPUs share one GPU: not a speedup", gates=False)),
        ("gpu", 2, _ANY, Label("2 GPUs", gates=True)),
        ("gpu", 1, _ANY, Label("1 GPU", gates=True)),
        ("core", 2, (1, 1, 2), Label("2 CPU cores, each with its own single-threaded TensorFlow server", gates=True)),
        ("core", 2, _ANY, Label("2 CPU cores with a CPU quota of 1: not a speedup", gates=False)),
        ("core", 1, _ANY, Label("1 CPU core, with a single-threaded TensorFlow server", gates=True)),
        ("logical-cpu", 2, (1, 2, 4), Label("2 logical CPUs, one thread each, on 4 CPU cores", gates=True)),
        ("logical-cpu", 1, (1, 1, 1), Label("1 logical CPU, one thread, on 1 CPU core", gates=True)),
        ("gpu", 1200, _ANY, Label("1,200 GPUs", gates=True)),
    ],
)
def test_each_kind_has_its_label(kind: str, count: int, threads: Threads, label: Label) -> None:
    assert label_of(kind, count, *threads) == label


@pytest.mark.parametrize(
    ("threads", "why"),
    [
        ((0, 2, 2), "all intra-op threads instead of 1"),
        ((4, 2, 2), "4 intra-op threads instead of 1"),
        ((1, 1, 2), "1 inter-op thread instead of 2"),
        ((1, 0, 2), "all inter-op threads instead of 2"),
        ((1, 4, 2), "4 inter-op threads instead of 2"),
        ((1, 2, 1), "1 core for 2 devices"),
    ],
)
def test_logical_cpus_that_share_their_threads_never_gate(threads: Threads, why: str) -> None:
    label = label_of("logical-cpu", 2, *threads)
    assert not label.gates
    assert label.text == f"logical CPUs share one thread pool: not a speedup ({why})"


@pytest.mark.parametrize("kind", ["remote", "gpu+logical-cpu"])
def test_what_is_not_known_to_be_serial_never_gates(kind: str) -> None:
    assert not label_of(kind, 2, *_ANY).gates


def test_kinds_are_joined() -> None:
    cpu = Device("/job:localhost/replica:0/task:0/device:CPU:0", "logical-cpu", "/physical_device:CPU:0")
    gpu = Device("/job:localhost/replica:0/task:0/device:GPU:0", "gpu", "/physical_device:GPU:0")
    assert kind_of([gpu, cpu, gpu]) == "gpu+logical-cpu"
    assert kind_of([gpu]) == "gpu"


def test_a_quota_of_cpu_time_counts_as_fewer_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.speed.label.usable_cores", lambda: (0, 1))
    cores = [Device(f"/job:core/replica:0/task:{index}/device:CPU:0", "core", "") for index in range(2)]
    monkeypatch.setattr("harness.speed.label.allowed_cpu_time", lambda: None)
    assert speed_label(cores).gates
    monkeypatch.setattr("harness.speed.label.allowed_cpu_time", lambda: 1.5)
    assert not speed_label(cores).gates


@pytest.mark.devices(kind="logical-cpu")
def test_the_threads_and_cores_of_this_process_are_what_is_judged(devices: harness.Devices) -> None:
    """``cpu:N`` sets one thread in an op and N between them, so that the cores decide."""
    label = speed_label(devices)
    assert label.gates == (len(usable_cores()) >= len(devices))
    fewer = speed_label(devices[:1])
    assert fewer.gates == (len(devices) == 1), "N threads between ops are more than one device"
