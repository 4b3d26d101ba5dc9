from __future__ import annotations

import pytest

from harness.devices.address import Address
from harness.devices.hosts import Host
from harness.devices.inventory import Inventory, PhysicalGpu
from harness.devices.kinds.auto import AUTO_MEMORY_MIB, AutoSpec
from harness.devices.kinds.cores import CoresSpec
from harness.devices.kinds.cpu import CpuSpec
from harness.devices.kinds.gpu import GpuSpec
from harness.devices.kinds.kind import Request
from harness.devices.name import DeviceName
from harness.devices.plan import Options, Plan
from harness.devices.request import resolve
from harness.devices.settings import GpuSettings, RuntimeSettings
from harness.errors import DevicesUnavailable, HostUnreachable


def _machine(gpus: int, free_mib: int | None = 80_000, hosts: tuple[Host, ...] = ()) -> Inventory:
    return Inventory(
        tuple(
            PhysicalGpu(
                f"/physical_device:GPU:{index}", "Fake Card", None, "9.0", 81_000 if free_mib else None, free_mib
            )
            for index in range(gpus)
        ),
        hosts=hosts,
    )


def _plan(spec: str, gpus: int, free_mib: int | None = 80_000) -> Plan:
    return resolve(spec).plan(_machine(gpus, free_mib))


def _names(plan: Plan) -> list[str]:
    return [device.parsed.short for device in plan.devices]


@pytest.mark.parametrize("gpus", [0, 1, 2, 8])
def test_logical_cpus_need_no_gpu_and_hide_those_that_are_there(gpus: int) -> None:
    plan = _plan("cpu:3", gpus)
    assert _names(plan) == ["CPU:0", "CPU:1", "CPU:2"]
    assert {(device.kind, device.physical) for device in plan.devices} == {("logical-cpu", "/physical_device:CPU:0")}
    assert plan.runtime == RuntimeSettings(logical_cpus=3, gpus=(), intra_op_threads=1, inter_op_threads=3)
    assert not plan.options.soft_placement
    assert ("hidden" in plan.reason) == (gpus > 0)


@pytest.mark.parametrize("gpus", [2, 8])
def test_auto_takes_all_real_gpus_where_there_are_two_or_more(gpus: int) -> None:
    plan = _plan("auto", gpus)
    assert _names(plan) == [f"GPU:{index}" for index in range(gpus)]
    assert {device.kind for device in plan.devices} == {"gpu"}
    assert [device.physical for device in plan.devices] == [f"/physical_device:GPU:{index}" for index in range(gpus)]
    assert plan.runtime == RuntimeSettings(1, tuple(GpuSettings(f"/physical_device:GPU:{i}") for i in range(gpus)))
    assert plan.reason.startswith(f"auto selected gpu: found {gpus} real GPUs: GPU:0 (Fake Card")


def test_auto_cuts_the_one_card_in_two_and_states_the_memory() -> None:
    plan = _plan("auto", 1)
    assert _names(plan) == ["GPU:0", "GPU:1"]
    assert {(device.kind, device.physical) for device in plan.devices} == {("logical-gpu", "/physical_device:GPU:0")}
    assert plan.runtime.gpus == (GpuSettings("/physical_device:GPU:0", (32_000, 32_000)),)
    assert "auto selected gpu:2x32000: found one GPU" in plan.reason
    assert "each logical GPU gets 32,000 MiB (40% of the free 80,000 MiB)" in plan.reason


def test_auto_uses_a_stated_default_where_the_driver_does_not_say_what_is_free() -> None:
    plan = _plan("auto", 1, free_mib=None)
    assert plan.runtime.gpus[0].limits_mib == (AUTO_MEMORY_MIB, AUTO_MEMORY_MIB)
    assert f"each logical GPU gets {AUTO_MEMORY_MIB:,} MiB (free memory unknown)" in plan.reason


def test_auto_takes_four_cpus_where_there_is_no_gpu_or_a_full_one_and_says_why() -> None:
    plan = _plan("auto", 0)
    assert _names(plan) == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    assert plan.reason == "auto selected cpu:4: no GPU found"
    full = _plan("auto", 1, free_mib=500)
    assert _names(full) == _names(plan)
    assert "the only GPU is full: GPU:0 (Fake Card, 500 of 81,000 MiB free)" in full.reason
    unusable = resolve("auto").plan(Inventory(unusable=("Fake Card",)))
    assert "TensorFlow cannot use Fake Card" in unusable.reason


@pytest.mark.parametrize(("spec", "gpus", "taken"), [("gpu", 1, 1), ("gpu", 8, 8), ("gpu:1", 2, 1), ("gpu:2", 8, 2)])
def test_real_gpus_are_the_first_ones(spec: str, gpus: int, taken: int) -> None:
    plan = _plan(spec, gpus)
    assert _names(plan) == [f"GPU:{index}" for index in range(taken)]
    assert {device.kind for device in plan.devices} == {"gpu"}
    assert [gpu.physical for gpu in plan.runtime.gpus] == [f"/physical_device:GPU:{index}" for index in range(taken)]
    assert (plan.runtime.intra_op_threads, plan.runtime.inter_op_threads) == (None, None)


def test_logical_gpus_are_all_on_the_first_card() -> None:
    plan = _plan("gpu:4x1000", 2)
    assert _names(plan) == ["GPU:0", "GPU:1", "GPU:2", "GPU:3"]
    assert {(device.kind, device.physical) for device in plan.devices} == {("logical-gpu", "/physical_device:GPU:0")}
    assert plan.runtime.gpus == (GpuSettings("/physical_device:GPU:0", (1000,) * 4),)


@pytest.mark.parametrize(
    ("spec", "gpus", "needed"),
    [
        ("gpu", 0, "1 real GPU"),
        ("gpu:1", 0, "1 real GPU"),
        ("gpu:3", 2, "3 real GPUs"),
        ("gpu:9", 8, "9 real GPUs"),
        ("gpu:2x1000", 0, "a GPU with 2,000 MiB free"),
        ("gpu:2x40001", 1, "a GPU with 80,002 MiB free"),
    ],
)
def test_fewer_devices_than_asked_for_are_refused_with_what_is_there(spec: str, gpus: int, needed: str) -> None:
    with pytest.raises(DevicesUnavailable) as caught:
        _plan(spec, gpus)
    error = caught.value
    assert error.asked == spec
    assert needed in error.needed
    assert len(error.available) == 1 + gpus
    assert error.available[0] == "CPU:0"
    assert all(there in str(error) for there in error.available)
    assert "\n" not in str(error)


def test_a_card_that_only_the_driver_sees_is_named_where_gpus_are_missing() -> None:
    with pytest.raises(DevicesUnavailable, match=r"CPU:0, Fake Card \(seen by the driver, but not by TensorFlow\)"):
        resolve("gpu").plan(Inventory(unusable=("Fake Card",)))


def test_logical_gpus_fit_where_the_driver_does_not_say_what_is_free() -> None:
    assert len(_plan("gpu:2x40001", 1, free_mib=None).devices) == 2


def test_the_options_of_a_profile_reach_the_plan() -> None:
    options = Options(None, 4096, 2, 0, True, False, True)
    plan = Request(GpuSpec(), options).plan(_machine(2))
    assert plan.runtime == RuntimeSettings(
        1, tuple(GpuSettings(f"/physical_device:GPU:{i}", (4096,), None) for i in range(2)), 2, 0
    )
    assert {device.kind for device in plan.devices} == {"gpu"}
    assert plan.options == options
    growing = Request(GpuSpec(), Options(memory_growth=True)).plan(_machine(1))
    assert growing.runtime.gpus == (GpuSettings("/physical_device:GPU:0", (), True),)
    threads = Request(CpuSpec(4), Options(intra_op_threads=0, inter_op_threads=2)).plan(_machine(0))
    assert (threads.runtime.intra_op_threads, threads.runtime.inter_op_threads) == (0, 2)


def test_plans_have_the_same_effect_however_they_were_asked_for() -> None:
    assert _plan("auto", 0).same_effect(_plan("cpu:4", 0))
    assert _plan("@cpu-4", 0).same_effect(_plan("cpu:4", 0))
    assert not _plan("cpu:2", 0).same_effect(_plan("cpu:4", 0))
    soft = Request(AutoSpec(), Options(soft_placement=True)).plan(_machine(0))
    assert not soft.same_effect(_plan("cpu:4", 0))


def test_a_plan_is_described_in_one_line() -> None:
    options = Options(determinism=True, tf32=False, soft_placement=True)
    text = Request(AutoSpec(), options).plan(_machine(1)).describe()
    assert text == (
        "2 logical-gpu devices; CPU devices: 1; visible GPUs: GPU:0 split into 32000 + 32000 MiB; "
        "intra-op threads: any; inter-op threads: any; TF32: off; op determinism: on; soft placement: on"
    )


def _with_cores(*cpus: int, allowed: int = 0) -> Inventory:
    return Inventory(cores=cpus, cpus_allowed=allowed or len(cpus))


def test_cores_are_the_first_physical_ones_each_for_one_device() -> None:
    plan = resolve("cores:2").plan(_with_cores(0, 3, 5, allowed=6))
    assert [device.name for device in plan.devices] == [
        f"/job:core/replica:0/task:{task}/device:CPU:0" for task in range(2)
    ]
    assert [device.physical for device in plan.devices] == [f"/physical_device:CPU:core={cpu}" for cpu in (0, 3)]
    assert {device.kind for device in plan.devices} == {"core"}
    assert plan.server_cpus == (0, 3)
    assert plan.runtime == RuntimeSettings(1, (), 1, 1)
    assert "on CPU 0, 3 (3 physical cores available)" in plan.reason
    assert _plan("cpu:2", 0).server_cpus == ()


def test_more_cores_than_there_are_physical_ones_are_refused_though_there_are_as_many_cpus() -> None:
    with pytest.raises(DevicesUnavailable) as caught:
        resolve("cores:3").plan(_with_cores(0, 2, allowed=4))
    assert caught.value.available == ("core of CPU 0", "core of CPU 2", "4 CPUs in all")
    assert "needs 3 CPU cores, one per device" in str(caught.value)
    assert len(resolve("cores:2").plan(_with_cores(0, 2, allowed=4)).devices) == 2


def test_the_threads_that_a_profile_gives_with_cores_are_those_of_the_client() -> None:
    plan = Request(CoresSpec(2), Options(intra_op_threads=2, inter_op_threads=0)).plan(_with_cores(0, 1))
    assert (plan.runtime.intra_op_threads, plan.runtime.inter_op_threads) == (2, 0)


_HOSTS = (Host("worker", 0, Address("a", 1)), Host("worker", 2, Address("b", 2)))


def test_a_cluster_has_the_devices_that_its_hosts_turn_out_to_have() -> None:
    plan = resolve("cluster:a:1,b:2").plan(_machine(2, hosts=_HOSTS))
    assert (plan.devices, plan.hosts) == ((), _HOSTS)
    assert plan.runtime == RuntimeSettings(1, (), None, None), "this process splits and joins, without a GPU"
    assert "remote devices of a:1 (/job:worker/task:0), b:2 (/job:worker/task:2)" in plan.describe()
    names = [DeviceName("worker", 0, task, kind, 0) for task in (0, 2) for kind in ("CPU", "GPU")]
    known = plan.with_devices(names)
    assert _names(known) == ["worker/0/CPU:0", "worker/0/GPU:0", "worker/2/CPU:0", "worker/2/GPU:0"]
    assert [device.physical for device in known.devices] == ["a:1/CPU:0", "a:1/GPU:0", "b:2/CPU:0", "b:2/GPU:0"]
    assert {device.kind for device in known.devices} == {"remote"}
    assert known.reason.startswith("4 devices of 2 hosts, as requested: a:1 (/job:worker/task:0), ")
    assert plan.same_effect(known)
    assert known.same_effect(plan)
    assert not known.same_effect(resolve("cluster:a:1").plan(_machine(2, hosts=_HOSTS[:1])))
    with pytest.raises(HostUnreachable, match=r"b:2 \(/job:worker/task:2\) has no devices"):
        plan.with_devices(names[:2])
