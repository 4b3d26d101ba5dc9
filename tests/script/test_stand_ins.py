"""How other devices stand in for those that a script names."""

from __future__ import annotations

import pytest
import tensorflow as tf

from harness import Devices
from harness.script.check import measuring_spec
from harness.script.stand_ins import listed, missing_kind, standing_in

pytestmark = [pytest.mark.usefixtures("devices"), pytest.mark.devices(min=2, kind="logical-cpu")]


def test_a_script_for_gpus_runs_on_what_stands_in_for_them(devices: Devices) -> None:
    devices = devices[:2]
    with standing_in(devices, "GPU"):
        with tf.device("/GPU:1"):
            made = tf.add(1.0, 2.0)
            variable = tf.Variable(1.0)
        with listed(devices, "GPU"):
            gpus = tf.config.list_logical_devices("GPU")
            with tf.device(gpus[1].name):
                named = tf.add(1.0, 2.0)
            (first, *_) = tf.config.list_physical_devices("GPU")
            tf.config.experimental.set_memory_growth(first, True)
        with tf.device(tf.DeviceSpec(device_type="GPU", device_index=0)), tf.device("/CPU:0"):
            host = tf.add(1.0, 2.0)

        @tf.function  # type: ignore[untyped-decorator]
        def graph(x: tf.Tensor) -> tf.Tensor:
            with tf.device(f"/device:GPU:{1}"):
                return x + 1.0

        graph(tf.constant(1.0))
        asked = {node.device for node in graph.get_concrete_function(tf.constant(1.0)).graph.get_operations()}
    second = devices[1].name
    assert [tensor.device for tensor in (made, named)] == [second, second]
    assert (variable.device, host.device) == (second, devices[0].name)
    assert second in asked
    assert not tf.config.list_logical_devices("GPU")
    # Beyond the stand-ins, a name stays as it is.
    with standing_in(devices[:1], "GPU"), pytest.raises(tf.errors.InvalidArgumentError), tf.device("/GPU:1"):
        tf.add(1.0, 2.0)


def test_stand_ins_are_needed_where_the_devices_are_others(devices: Devices) -> None:
    assert missing_kind({"GPU": 2, "CPU": 1}, devices) == "GPU"
    assert missing_kind({"CPU": 2}, devices) is None
    assert missing_kind({}, devices) is None
    assert measuring_spec('tf.device("/GPU:1")', "cores:2") == "cores:2"
    assert measuring_spec('tf.device("/GPU:1")', "cpu:2") is None
    assert measuring_spec("for device in DEVICES: pass", "cores:2") is None
    assert measuring_spec('harness.configure("cores:2"); tf.device("/CPU:0")', "cores:2") is None
