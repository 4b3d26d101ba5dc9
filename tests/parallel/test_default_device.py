"""Which device eager ops run on outside of any scope: as the list of devices says, and as TensorFlow does it."""

from __future__ import annotations

import pytest

import harness
from harness._tensorflow import interface
from harness.parallel.places import default_device

_HOST = "/job:localhost/replica:0/task:0/device:"
_OTHER = "/job:worker/replica:0/task:1/device:"


class _Context:
    def __init__(self, *devices: str, soft: bool | None = None) -> None:
        self._devices = list(devices)
        self._soft_device_placement = soft

    def devices(self) -> list[str]:
        return self._devices


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([f"{_HOST}CPU:0"], f"{_HOST}CPU:0"),
        ([f"{_HOST}CPU:0", f"{_HOST}CPU:1"], f"{_HOST}CPU:0"),
        ([f"{_HOST}CPU:0", f"{_HOST}GPU:1", f"{_HOST}GPU:0"], f"{_HOST}GPU:0"),
        ([f"{_HOST}CPU:0", f"{_OTHER}CPU:0", f"{_OTHER}GPU:0"], f"{_HOST}CPU:0"),
        ([f"{_HOST}CPU:0", f"{_HOST}TPU:0"], None),
    ],
)
def test_it_is_the_first_gpu_of_this_host_or_its_first_cpu(devices: list[str], expected: str | None) -> None:
    assert default_device(_Context(*devices)) == expected


def test_without_soft_placement_an_op_on_a_gpu_has_a_device_of_its_own() -> None:
    on_gpu = _Context(f"{_HOST}CPU:0", f"{_HOST}GPU:0", soft=False)
    assert default_device(on_gpu) is None
    on_gpu._soft_device_placement = True
    assert default_device(on_gpu) == f"{_HOST}GPU:0"
    assert default_device(_Context(f"{_HOST}CPU:0", soft=False)) == f"{_HOST}CPU:0"


def test_tensorflow_runs_an_op_there(devices: harness.Devices) -> None:
    import tensorflow as tf

    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    try:
        with tf.device(None):
            there = (tf.zeros([2]) + 1.0).backing_device
        assert default_device(interface().context.context()) == there
    finally:
        tf.config.set_soft_device_placement(soft)
