"""``configure`` on the real TensorFlow: each function below is a process of its own, and says much in it."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from harness.errors import DevicesAlreadyConfigured, DevicesUnavailable

FreshProcess = Callable[..., CompletedProcess[str]]


def four_cpus() -> None:
    import tensorflow as tf

    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure, current

    assert current() is None
    devices = configure("cpu:4")
    assert devices.names == tuple(f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(4))
    assert {(device.kind, device.physical) for device in devices} == {("logical-cpu", "/physical_device:CPU:0")}
    assert configure("cpu:4") is configure("@cpu-4") is current() is devices
    assert len(devices[1:]) == 3

    for device in devices:
        with tf.device(device.name):
            assert tf.linalg.matmul(tf.ones([3, 2]), tf.ones([2, 5])).backing_device == device.name
    with pytest.raises(tf.errors.InvalidArgumentError, match="CPU:4"), tf.device("/CPU:4"):
        tf.linalg.matmul(tf.ones([3, 2]), tf.ones([2, 5]))

    for other in ("cpu:2", "cpu:5"):
        with pytest.raises(DevicesAlreadyConfigured, match="fresh process"):
            configure(other)
    with pytest.raises(DevicesUnavailable):
        configure("gpu:64")
    assert len(tf.config.list_logical_devices("CPU")) == 4
    assert tf.config.list_logical_devices("GPU") == []

    tf.config.set_soft_device_placement(True)
    configure("cpu:4")
    print_ = fingerprint()
    assert print_ == fingerprint(devices)
    assert (print_.spec, print_.devices) == ("cpu:4", devices.names)
    assert (print_.intra_op_threads, print_.inter_op_threads) == (1, 4)
    assert (print_.soft_placement, print_.deterministic_ops, print_.onednn) == (False, False, True)
    assert (print_.tensorflow, print_.keras) == (tf.__version__, tf.keras.__version__)
    assert print_.cores_logical
    assert print_.memory_mib


def started_by_the_user() -> None:
    import tensorflow as tf

    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure, current

    cpu = tf.config.list_physical_devices("CPU")[0]
    before = fingerprint()
    assert (before.devices, before.spec, before.deterministic_ops) == ((), None, None)
    with pytest.raises(DevicesUnavailable, match="available: CPU:0"):
        configure("gpu:64")
    assert tf.config.get_logical_device_configuration(cpu) is None, "nothing is half set"
    # The setters below raise if the fingerprint or the refused spec had started the runtime.
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.constant(1.0)
    assert fingerprint().deterministic_ops is None

    with pytest.raises(DevicesAlreadyConfigured, match=r"CPU devices: 4;.*intra-op threads: 2") as caught:
        configure("cpu:4")
    assert "intra-op threads: 1; inter-op threads: 4" in caught.value.asked
    assert current() is None
    assert tf.config.threading.get_intra_op_parallelism_threads() == 2
    assert tf.config.get_soft_device_placement(), "a refused spec changes nothing"


def started_by_the_user_in_the_same_way() -> None:
    import tensorflow as tf

    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure, current

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.set_visible_devices([], "GPU")
    tf.constant(1.0)
    devices = configure("cpu:2")
    assert len(devices) == 2
    assert current() is devices
    assert not tf.config.get_soft_device_placement()
    tf.config.experimental.enable_op_determinism()
    assert fingerprint().deterministic_ops is True


def own_profile() -> None:
    import tempfile
    from pathlib import Path

    import tensorflow as tf

    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.toml"
        path.write_text(
            'schema_version = 1\nspec = "cpu:2"\ndeterminism = true\ntf32 = false\nsoft_placement = true\n'
            "[threads]\nintra_op = 2\ninter_op = 3\n",
            encoding="utf-8",
        )
        devices = configure(path)
        assert configure(str(path)) is devices
    with pytest.raises(DevicesAlreadyConfigured, match="op determinism: on; soft placement: on"):
        configure("cpu:2")
    print_ = fingerprint()
    assert (print_.intra_op_threads, print_.inter_op_threads) == (2, 3)
    assert (print_.tf32, print_.deterministic_ops, print_.soft_placement) == (False, True, True)
    with tf.device("/CPU:9"):
        assert tf.ones([2]).backing_device.endswith("CPU:0"), "soft placement is on"
    with pytest.raises(RuntimeError, match="seed"):
        tf.random.normal([2])


def test_four_logical_cpus_are_there_and_nothing_else_is_accepted_after_them(fresh_process: FreshProcess) -> None:
    # tests/devices/test_fingerprint.py compares what the fingerprint says of oneDNN with what TensorFlow says.
    fresh_process(four_cpus, TF_ENABLE_ONEDNN_OPTS="1")


def test_a_runtime_started_by_the_user_is_refused_and_left_alone(fresh_process: FreshProcess) -> None:
    fresh_process(started_by_the_user)


def test_a_runtime_started_by_the_user_in_the_same_way_is_accepted(fresh_process: FreshProcess) -> None:
    fresh_process(started_by_the_user_in_the_same_way)


def test_a_profile_of_ones_own_sets_threads_and_switches(fresh_process: FreshProcess) -> None:
    fresh_process(own_profile)
