"""The rules of ``configure`` on machines with any number of GPUs, by a TensorFlow that has devices and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_tensorflow import FakeTensorFlow, LogicalDeviceConfiguration, OpError

from harness.devices import inventory, runtime
from harness.devices.runtime import configure, current
from harness.devices.settings import runtime_started
from harness.errors import DevicesAlreadyConfigured, DevicesUnavailable, InvalidSpec

Machine = Callable[[int], FakeTensorFlow]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes this process one in which nothing is configured, with so many GPUs."""

    def make(gpus: int) -> FakeTensorFlow:
        tensorflow = FakeTensorFlow(gpus)
        monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
        monkeypatch.setattr(runtime, "_configured", None)
        monkeypatch.setattr(inventory, "read_cards", lambda: ())
        monkeypatch.setattr(inventory, "cuda_uuids", lambda: ())
        return tensorflow

    return make


def _profile(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(f"schema_version = 1\n{text}", encoding="utf-8")
    return path


def test_looking_whether_the_runtime_has_started_changes_nothing(machine: Machine) -> None:
    tensorflow = machine(1)
    tensorflow.inter = 3
    before = tensorflow.state()
    assert not runtime_started(tensorflow)
    assert tensorflow.state() == before
    tensorflow.config.list_logical_devices()
    before = tensorflow.state()
    assert runtime_started(tensorflow)
    assert tensorflow.state() == before


@pytest.mark.parametrize("gpus", [0, 1, 2, 8])
def test_logical_cpus_hide_the_gpus(machine: Machine, gpus: int) -> None:
    tensorflow = machine(gpus)
    devices = configure("cpu:3")
    assert [device.parsed.short for device in devices] == ["CPU:0", "CPU:1", "CPU:2"]
    assert tensorflow.visible == [tensorflow.cpu]
    assert (tensorflow.intra, tensorflow.inter, tensorflow.soft) == (1, 3, False)
    assert current() is devices


def test_the_first_gpus_are_visible_and_the_others_are_not(machine: Machine) -> None:
    tensorflow = machine(8)
    devices = configure("gpu:2")
    assert [device.parsed.short for device in devices] == ["GPU:0", "GPU:1"]
    assert tensorflow.visible == [tensorflow.cpu, *tensorflow.gpus[:2]]
    assert tensorflow.logical == {}


def test_one_card_is_cut_into_logical_gpus(machine: Machine) -> None:
    tensorflow = machine(2)
    devices = configure("gpu:3x100")
    assert [(device.parsed.short, device.kind) for device in devices] == [(f"GPU:{i}", "logical-gpu") for i in range(3)]
    assert tensorflow.logical == {tensorflow.gpus[0]: [LogicalDeviceConfiguration(100)] * 3}
    assert tensorflow.visible == [tensorflow.cpu, tensorflow.gpus[0]]


@pytest.mark.parametrize(("gpus", "names"), [(0, "CPU:3"), (1, "GPU:1"), (2, "GPU:1"), (8, "GPU:7")])
def test_auto_takes_the_best_that_is_there(machine: Machine, gpus: int, names: str) -> None:
    machine(gpus)
    devices = configure("auto")
    assert devices[-1].parsed.short == names
    assert devices.spec == "auto"
    assert devices.reason.startswith("auto selected ")
    assert configure("auto") is devices


def test_a_profile_sets_memory_growth_on_every_gpu_and_the_switches(machine: Machine, tmp_path: Path) -> None:
    tensorflow = machine(2)
    path = _profile(
        tmp_path, 'spec = "gpu"\ndeterminism = true\ntf32 = false\nsoft_placement = true\n[memory]\ngrowth = true'
    )
    devices = configure(path)
    assert len(devices) == 2
    assert tensorflow.growth == dict.fromkeys(tensorflow.gpus, True)
    assert (tensorflow.determinism, tensorflow.tf32, tensorflow.soft) == (True, False, True)
    assert configure(str(path)) is devices


def test_a_profile_limits_the_memory_of_a_real_gpu(machine: Machine, tmp_path: Path) -> None:
    tensorflow = machine(1)
    devices = configure(_profile(tmp_path, 'spec = "gpu:1"\n[memory]\nlimit_mib = 100'))
    assert [device.kind for device in devices] == ["gpu"]
    assert tensorflow.logical == {tensorflow.gpus[0]: [LogicalDeviceConfiguration(100)]}


def test_the_same_devices_come_back_for_the_same_spec_and_for_another_way_to_write_it(machine: Machine) -> None:
    tensorflow = machine(0)
    devices = configure("cpu:4")
    assert configure("cpu:4") is devices
    assert configure("@cpu-4") is devices
    assert configure("auto") is devices
    tensorflow.soft = True
    configure("cpu:4")
    assert not tensorflow.soft, "asking again makes what was asked for true again"


def test_anything_else_after_that_is_refused_and_changes_nothing(machine: Machine, tmp_path: Path) -> None:
    tensorflow = machine(2)
    devices = configure("cpu:4")
    before = tensorflow.state()
    soft = _profile(tmp_path, 'spec = "cpu:4"\nsoft_placement = true')
    for other in ("cpu:2", "gpu", "gpu:1", "auto", soft):
        with pytest.raises(DevicesAlreadyConfigured) as caught:
            configure(other)
        assert caught.value.current.startswith("cpu:4 [4 logical-cpu devices")
        assert str(other) in caught.value.asked
        assert "fresh process" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert tensorflow.state() == before
    assert configure("cpu:4") is devices


@pytest.mark.parametrize(("spec", "gpus"), [("gpu", 0), ("gpu:3", 2), ("gpu:2x100", 0), ("cpu:0", 0), ("@none", 0)])
def test_what_cannot_be_had_is_refused_before_anything_is_set(machine: Machine, spec: str, gpus: int) -> None:
    tensorflow = machine(gpus)
    before = tensorflow.state()
    with pytest.raises((DevicesUnavailable, InvalidSpec)):
        configure(spec)
    assert tensorflow.state() == before
    assert current() is None
    assert len(configure("cpu:2")) == 2, "and the process can still be configured"


def test_a_runtime_that_the_user_started_is_refused_with_what_is_set_and_left_alone(machine: Machine) -> None:
    tensorflow = machine(2)
    tensorflow.config.list_logical_devices()
    before = tensorflow.state()
    with pytest.raises(DevicesAlreadyConfigured) as caught:
        configure("cpu:4")
    assert caught.value.current == (
        "[CPU devices: 1; visible GPUs: GPU:0, GPU:1; intra-op threads: TensorFlow's choice; "
        "inter-op threads: TensorFlow's choice] (not by the harness)"
    )
    assert tensorflow.state() == before
    assert current() is None
    assert len(configure("gpu")) == 2, "what it was started with is accepted"


@pytest.mark.parametrize("difference", ["inter", "intra", "cpus", "visible"])
def test_a_runtime_that_differs_in_one_thing_is_refused(machine: Machine, difference: str) -> None:
    tensorflow = machine(1)
    config = tensorflow.config
    config.set_logical_device_configuration(
        tensorflow.cpu, [LogicalDeviceConfiguration()] * (3 if difference == "cpus" else 4)
    )
    config.threading.set_intra_op_parallelism_threads(2 if difference == "intra" else 1)
    config.threading.set_inter_op_parallelism_threads(2 if difference == "inter" else 4)
    config.set_visible_devices(tensorflow.gpus if difference == "visible" else [], "GPU")
    config.list_logical_devices()
    with pytest.raises(DevicesAlreadyConfigured):
        configure("cpu:4")


def test_a_runtime_that_the_user_started_the_same_way_is_accepted(machine: Machine) -> None:
    tensorflow = machine(1)
    config = tensorflow.config
    config.set_logical_device_configuration(tensorflow.cpu, [LogicalDeviceConfiguration()] * 4)
    config.threading.set_intra_op_parallelism_threads(1)
    config.threading.set_inter_op_parallelism_threads(4)
    config.set_visible_devices([], "GPU")
    config.list_logical_devices()
    assert len(configure("cpu:4")) == 4
    assert not tensorflow.soft


def test_logical_gpus_that_differ_are_refused_after_the_start(machine: Machine) -> None:
    tensorflow = machine(1)
    tensorflow.config.set_logical_device_configuration(tensorflow.gpus[0], [LogicalDeviceConfiguration(100)] * 2)
    tensorflow.config.list_logical_devices()
    for other in ("gpu:2x99", "gpu:3x100", "gpu"):
        with pytest.raises(DevicesAlreadyConfigured, match=r"GPU:0 split into 100 \+ 100 MiB"):
            configure(other)
    assert len(configure("gpu:2x100")) == 2


def test_memory_growth_that_differs_is_refused_after_the_start(machine: Machine, tmp_path: Path) -> None:
    path = _profile(tmp_path, 'spec = "gpu"\n[memory]\ngrowth = true')
    machine(1).config.list_logical_devices()
    with pytest.raises(DevicesAlreadyConfigured):
        configure(path)
    tensorflow = machine(1)
    tensorflow.config.experimental.set_memory_growth(tensorflow.gpus[0], True)
    tensorflow.config.list_logical_devices()
    assert len(configure(path)) == 1


def test_what_was_set_before_the_start_is_replaced(machine: Machine) -> None:
    tensorflow = machine(2)
    tensorflow.config.set_logical_device_configuration(tensorflow.cpu, [LogicalDeviceConfiguration()] * 2)
    tensorflow.config.threading.set_intra_op_parallelism_threads(7)
    assert len(configure("cpu:4")) == 4
    assert tensorflow.intra == 1
    tensorflow = machine(2)
    tensorflow.config.set_logical_device_configuration(tensorflow.cpu, [LogicalDeviceConfiguration()] * 2)
    assert len(configure("gpu")) == 2
    assert len(tensorflow.config.list_logical_devices("CPU")) == 1


def test_what_was_set_before_the_start_and_cannot_be_taken_back_is_named(machine: Machine, tmp_path: Path) -> None:
    tensorflow = machine(1)
    tensorflow.config.set_logical_device_configuration(tensorflow.gpus[0], [LogicalDeviceConfiguration(9)] * 2)
    before = tensorflow.state()
    with pytest.raises(DevicesAlreadyConfigured, match="logical GPUs on /physical_device:GPU:0"):
        configure("gpu")
    assert tensorflow.state() == before
    tensorflow = machine(1)
    tensorflow.config.set_logical_device_configuration(tensorflow.cpu, [LogicalDeviceConfiguration()] * 2)
    with pytest.raises(DevicesAlreadyConfigured, match="TensorFlow ignore memory growth"):
        configure(_profile(tmp_path, 'spec = "gpu"\n[memory]\ngrowth = true'))


def test_a_setter_that_refuses_leaves_nothing_half_set(machine: Machine) -> None:
    tensorflow = machine(2)
    tensorflow.config.set_logical_device_configuration(tensorflow.cpu, [LogicalDeviceConfiguration()] * 2)
    tensorflow.refuse_threads = True
    before = tensorflow.state()
    with pytest.raises(DevicesAlreadyConfigured, match="refused"):
        configure("cpu:4")
    assert tensorflow.state() == before


@pytest.mark.parametrize("error", [RuntimeError("no kernel image"), OpError("out of memory")])
def test_a_runtime_that_does_not_start_is_told_in_one_line(machine: Machine, error: Exception) -> None:
    tensorflow = machine(1)
    tensorflow.fail_to_start = error
    with pytest.raises(DevicesUnavailable, match=str(error)) as caught:
        configure("gpu")
    assert caught.value.available == ("CPU:0", "GPU:0 (Fake Card)")
    assert current() is None


def test_a_smaller_set_than_configured_is_never_accepted(machine: Machine) -> None:
    tensorflow = machine(0)
    tensorflow.lose_devices = 1
    with pytest.raises(DevicesUnavailable) as caught:
        configure("cpu:4")
    assert caught.value.needed == "CPU:0, CPU:1, CPU:2, CPU:3"
    assert caught.value.available == ("CPU:0", "CPU:1", "CPU:2")
    assert current() is None
