from __future__ import annotations

import pytest

from harness.devices.inventory import Inventory, PhysicalGpu
from harness.devices.measuring import measuring_spec
from harness.devices.spec import parse_spec


def _machine(gpus: int, cores: int) -> Inventory:
    cards = tuple(PhysicalGpu(f"/physical_device:GPU:{index}") for index in range(gpus))
    return Inventory(cards, cores=tuple(range(cores)), cpus_allowed=cores)


@pytest.mark.parametrize(
    ("gpus", "cores", "cpu_time", "spec", "because"),
    [
        (2, 4, None, "gpu", "found 2 real GPUs"),
        (8, 1, 0.5, "gpu", "found 8 real GPUs"),
        (1, 4, None, "cores:4", "share the only GPU show no speedup, and this process may use 4 physical"),
        (0, 2, None, "cores:2", "no GPU found, and this process may use 2 physical cores"),
        (0, 1, None, "cores:1", "this process may use 1 physical core"),
        (0, 8, 2.5, "cores:2", "the CPU quota of this process is 2.5"),
        (0, 8, 0.5, "cores:1", "the CPU quota of this process is 0.5"),
        (0, 2, 16.0, "cores:2", "2 physical cores"),
    ],
)
def test_a_measurement_takes_real_gpus_or_cores_and_says_why(
    gpus: int, cores: int, cpu_time: float | None, spec: str, because: str
) -> None:
    taken = measuring_spec(_machine(gpus, cores), cpu_time)
    assert taken.spec == spec == str(parse_spec(spec))
    assert because in taken.reason
    assert taken.reason.startswith(f"measurements use {spec}: ")
