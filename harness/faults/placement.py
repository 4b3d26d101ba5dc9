"""Wrong place: absent devices (P05), devices that XLA ignores (P06), no devices at all (P16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program, kinds
from harness.faults.samples import dense, sample, shares, uneven

#: An index that no device of a machine has.
_ABSENT = 90


@contextmanager
def soft_placement() -> Iterator[None]:
    """TensorFlow's default: an op whose device is not there goes elsewhere. Put back as it was."""
    import tensorflow as tf

    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    try:
        yield
    finally:
        tf.config.set_soft_device_placement(before)


def _on(names: Sequence[str | None], fn: Callable[[Any], Any]) -> Program:
    """``fn`` of a shard of ``x`` on each named device, joined."""
    import tensorflow as tf

    def program(x: Any) -> Any:
        outputs = []
        for name, part in zip(names, tf.split(x, shares(x.shape[0], len(names))), strict=True):
            with tf.device(name):
                outputs.append(fn(part))
        return tf.concat(outputs, axis=0)

    return program


def _elsewhere(devices: Devices, names: Sequence[str]) -> Case:
    model, _ = dense()
    return Case(
        _on(names, model),
        _on(devices.names, model),
        model,
        {"x": sample(uneven(len(devices)), 3)},
        kinds("op-placement", "unused-device"),
        surroundings=soft_placement,
    )


def _last_is_absent(devices: Devices) -> Case:
    return _elsewhere(devices, [*devices.names[:-1], f"/CPU:{_ABSENT}"])


def _no_such_gpu(devices: Devices) -> Case:
    return _elsewhere(devices, [f"/GPU:{_ABSENT + index}" for index in range(len(devices))])


def _one_device_too_many(devices: Devices) -> Case:
    """All devices are used: the tower that has no device does its work on the host besides."""
    model, _ = dense()
    return Case(
        _on([*devices.names, f"/GPU:{_ABSENT}"], model),
        _on(devices.names, model),
        model,
        {"x": sample(uneven(len(devices)), 3)},
        kinds("op-placement"),
        surroundings=soft_placement,
    )


def _refused(devices: Devices) -> Case:
    """Without soft placement the absent device is an error."""
    model, _ = dense()
    names = [*devices.names[:-1], f"/CPU:{_ABSENT}"]
    return Case(
        _on(names, model), _on(devices.names, model), model, {"x": sample(uneven(len(devices)), 3)}, kinds("error")
    )


def _pure(x: Any) -> Any:
    """XLA refuses a variable on another device, so the compiled programs have none."""
    import tensorflow as tf

    return tf.nn.softmax(tf.tanh(x))


def _compiled(devices: Devices, names: Sequence[str]) -> Case:
    import tensorflow as tf

    parallel = tf.function(_on(names, _pure), jit_compile=True)
    twin = _on(devices.names, tf.function(_pure, jit_compile=True))
    return Case(parallel, twin, _pure, {"x": sample(12, 5)}, kinds("op-placement", "unused-device"))


def _compiled_whole(devices: Devices) -> Case:
    return _compiled(devices, devices.names)


def _compiled_for_absent(devices: Devices) -> Case:
    """XLA takes names of devices that are not there, soft placement or not."""
    case = _compiled(devices, [*devices.names[:-1], f"/job:worker/task:7/device:GPU:{_ABSENT}"])
    return replace(case, modes=("eager",))


def _no_scope(devices: Devices) -> Case:
    model, _ = dense()
    names = [None] * len(devices)
    return Case(
        _on(names, model),
        _on(devices.names, model),
        model,
        {"x": sample(uneven(len(devices)), 3)},
        kinds("unused-device"),
    )


def _two_of_four(devices: Devices) -> Case:
    """``devices[index // 2]``, so that each second device has nothing to do."""
    model, _ = dense()
    names = [devices.names[index // 2] for index in range(len(devices))]
    return Case(
        _on(names, model),
        _on(devices.names, model),
        model,
        {"x": sample(uneven(len(devices)), 3)},
        kinds("unused-device"),
    )


def _busy_with_nothing(devices: Devices) -> Case:
    """One device computes everything; the others compute the same in vain."""
    import tensorflow as tf

    model, _ = dense()

    def parallel(x: Any) -> Any:
        result = model(x)
        for device in devices:
            with tf.device(device.name):
                tf.reshape(x, [-1])
        return result

    return Case(
        parallel, _on(devices.names, model), model, {"x": sample(uneven(len(devices)), 3)}, kinds("unused-device")
    )


FAULTS = (
    Fault("P05-last-absent", "P05", "soft placement hides an absent device", "tensorflow 29342", _last_is_absent),
    Fault("P05-no-such-gpu", "P05", "soft placement hides that there is no GPU", "tensorflow 29342", _no_such_gpu),
    Fault("P05-one-too-many", "P05", "a tower more than devices", "tensorflow 29342", _one_device_too_many),
    Fault("P05-refused", "P05", "an absent device without soft placement", "tensorflow 29342", _refused),
    Fault("P06-compiled-whole", "P06", "jit_compile=True ignores devices", "tensorflow 124880", _compiled_whole),
    Fault("P06-compiled-absent", "P06", "jit_compile=True takes any name", "tensorflow 124880", _compiled_for_absent),
    Fault("P16-no-scope", "P16", "no device scope at all", "public code", _no_scope),
    Fault("P16-two-of-four", "P16", "half of the devices", "public code", _two_of_four),
    Fault("P16-in-name-only", "P16", "the scopes hold no work", "public code", _busy_with_nothing),
)
