"""The fingerprint on machines with and without GPUs, by the fake TensorFlow; ``test_configure.py`` has the real one."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
from fake_tensorflow import FakeTensorFlow

from harness.devices import fingerprint as fingerprint_module, inventory, runtime
from harness.devices.cpu import onednn_enabled, read_cpuinfo
from harness.devices.fingerprint import fingerprint
from harness.devices.nvidia import Card
from harness.devices.runtime import configure
from harness.records import GpuFacts

FreshProcess = Callable[..., CompletedProcess[str]]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> FakeTensorFlow:
    tensorflow = FakeTensorFlow(2)
    cards = tuple(Card(f"Card {index}", f"GPU-{index}", 81_000, 80_000) for index in range(2))
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    monkeypatch.setattr(runtime, "_configured", None)
    monkeypatch.setattr(inventory, "read_cards", lambda: cards)
    monkeypatch.setattr(inventory, "cuda_uuids", lambda: ("GPU-1", "GPU-0"))
    monkeypatch.setattr(fingerprint_module, "driver_version", lambda: "550.54.15")
    return tensorflow


def test_gpus_are_named_as_tensorflow_numbers_them_with_driver_and_cuda(two_gpus: FakeTensorFlow) -> None:
    found = fingerprint()
    assert found.gpus == (GpuFacts("Card 1", "GPU-1", "9.0", 81_000), GpuFacts("Card 0", "GPU-0", "9.0", 81_000))
    assert (found.driver, found.cuda, found.cudnn) == ("550.54.15", "12.5.1", "9")
    assert not two_gpus.started, "describing the machine starts nothing"
    assert (found.devices, found.deterministic_ops) == ((), None)


def test_driver_and_cuda_are_left_out_where_there_is_no_gpu(
    two_gpus: FakeTensorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", FakeTensorFlow(0))
    found = fingerprint()
    assert (found.gpus, found.driver, found.cuda, found.cudnn) == ((), None, None, None)
    assert (found.python, found.operating_system) == (platform.python_version(), platform.platform())


def test_the_configured_devices_are_in_it(two_gpus: FakeTensorFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = configure("gpu:1")
    assert fingerprint() == fingerprint(devices)
    assert fingerprint().devices == ("/job:localhost/replica:0/task:0/device:GPU:0",)
    assert fingerprint(devices[:0]).devices == ()
    assert fingerprint().deterministic_ops is False
    two_gpus.determinism = True
    assert fingerprint().deterministic_ops is True
    two_gpus.determinism = False
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    assert fingerprint().deterministic_ops is True


def import_tensorflow() -> None:
    import tensorflow as tf

    assert tf.__version__


def test_what_is_said_of_onednn_by_default_is_what_tensorflow_says(
    fresh_process: FreshProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    log = fresh_process(import_tensorflow, new_python=True).stderr
    assert ("oneDNN custom operations are on" in log) is onednn_enabled(read_cpuinfo(), {})
