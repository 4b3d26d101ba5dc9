"""Strategies of several processes on loopback against one process: a core for each worker, and one for the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from dense_processes import LAYERS, UNITS, flops
from process_group import Group, Member, running
from programs import SEVERAL

import harness
from harness.devices.cores import usable_cores

#: Rows of the batch a worker: so many, and so few weights, that the work of a step is more than what is sent for it.
_ROWS = 2048

Measured = Callable[..., harness.SpeedupRecord]


@pytest.mark.devices(min=SEVERAL, kind="logical-cpu")
def test_gradients_under_multi_worker_mirrored(speedup: Measured, devices: harness.Devices, tmp_path: Path) -> None:
    """Each worker takes its rows; an all-reduce gives each of them the gradients of the whole batch."""
    workers, cpus = len(devices), _cpus(len(devices))

    def members(addresses: Sequence[str]) -> list[Member]:
        told = {"rows": workers * _ROWS, "cluster": {"worker": list(addresses)}}
        return [
            Member(
                f"worker-{index}",
                "work",
                # Each hands over its share, as many bytes in all as the one process does.
                {**told, "cpu": cpus[index], "index": index, "own": list(range(index, 1 + LAYERS, workers))},
            )
            for index in range(workers)
        ]

    with _alone(workers, cpus[0], tmp_path) as alone, running(members, workers, tmp_path / "workers") as together:
        for index, said in enumerate(together.told.values()):
            assert said["cpus"] == [cpus[index]]
            assert said["devices"] == [_worker(index)]
            assert said["all_reduced_bytes"] == 4 * (1 + LAYERS * UNITS**2)
        _measure(speedup, alone, together, workers)


@pytest.mark.devices(min=SEVERAL, kind="logical-cpu")
def test_gradients_under_parameter_server(speedup: Measured, devices: harness.Devices, tmp_path: Path) -> None:
    """Each worker reads the weights from the server, takes its rows, and adds its gradients up there.

    The coordinator and the server have no core of their own: what they take is part of what the strategy costs.
    """
    workers, cpus = len(devices), _cpus(len(devices))

    def members(addresses: Sequence[str]) -> list[Member]:
        told: dict[str, object] = {
            "rows": workers * _ROWS,
            "cluster": {"worker": list(addresses[:workers]), "ps": list(addresses[workers:])},
            "own": list(range(1 + LAYERS)),
            "cpu": None,
        }
        servers = [
            Member(f"worker-{index}", "serve", {**told, "cpu": cpus[index], "index": index}, steps=False)
            for index in range(workers)
        ]
        server = Member("server", "serve", {**told, "job": "ps"}, steps=False)
        return [*servers, server, Member("coordinator", "coordinate", told)]

    with _alone(workers, cpus[0], tmp_path) as alone, running(members, workers + 1, tmp_path / "servers") as together:
        before = together.busy_s()
        _measure(speedup, alone, together, workers)
        busy_s = {name: together.busy_s()[name] - before[name] for name in before if name.startswith("worker")}
    # Which worker takes a part is for the coordinator to say, and it does not tell. Each has done much of the work.
    assert len(busy_s) == workers
    assert min(busy_s.values()) > sum(busy_s.values()) / (2 * workers), busy_s


def _measure(speedup: Measured, alone: Group, together: Group, count: int) -> None:
    """The devices of the record are those of the workers: nothing runs on the devices of the session.

    They are like those: a CPU each with one thread in an op, and a core each.
    """
    workers = [harness.Device(_worker(index), "logical-cpu", "/physical_device:CPU:0") for index in range(count)]
    record = speedup(alone.step, together.step, devices=workers, work=harness.Work(flops=flops(count * _ROWS)))
    # All of it ran in other processes, which this one cannot trace.
    assert record.transfers is None


def _alone(workers: int, cpu: int, folder: Path) -> AbstractContextManager[Group]:
    told = {"cpu": cpu, "rows": workers * _ROWS, "own": list(range(1 + LAYERS))}
    return running(lambda _: [Member("alone", "alone", told)], 0, folder / "alone")


def _cpus(workers: int) -> list[int]:
    """A CPU for each worker; where there are fewer cores than workers, the label of the record says so."""
    cores = usable_cores()
    return [cores[index % len(cores)] for index in range(workers)]


def _worker(index: int) -> str:
    return f"/job:worker/replica:0/task:{index}/device:CPU:0"
