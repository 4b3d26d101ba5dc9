"""Wrong device: absent devices (P05), devices that XLA ignores (P06), no devices at all (P16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted, soft_placement
from harness.faults.samples import in_shards, on_each, sample, uneven
from harness.faults.slips import Towers
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []

#: The index of a device that no machine has.
_ABSENT = 90


def _case(devices: Devices, names: Sequence[str | None], *found: str) -> Case:
    """A dense model on the named devices; the twin is on ``devices``."""
    model = Towers(devices).model
    inputs = {"x": sample(uneven(len(devices)), 3)}
    return Case(in_shards(names, model), in_shards(devices.names, model), model, inputs, kinds(*found))


def _softly(case: Case) -> Case:
    return replace(case, surroundings=soft_placement)


@planted(
    FAULTS,
    "P05-last-absent",
    "soft placement hides an absent device",
    "tensorflow 29342",
    "not run on the device that its scope requests.*MatMul",
)
def _last_is_absent(devices: Devices) -> Case:
    return _softly(_case(devices, [*devices.names[:-1], f"/CPU:{_ABSENT}"], "op-placement", "unused-device"))


@planted(
    FAULTS,
    "P05-no-such-gpu",
    "soft placement hides that there is no GPU",
    "tensorflow 29342",
    "not run on the device that its scope requests.*MatMul",
)
def _no_such_gpu(devices: Devices) -> Case:
    names = [f"/GPU:{_ABSENT + index}" for index in range(len(devices))]
    return _softly(_case(devices, names, "op-placement", "unused-device"))


@planted(
    FAULTS,
    "P05-one-too-many",
    "one more tower than devices",
    "tensorflow 29342",
    "not run on the device that its scope requests.*MatMul",
)
def _one_device_too_many(devices: Devices) -> Case:
    """All devices are used, and the tower without a device runs on the host."""
    return _softly(_case(devices, [*devices.names, f"/GPU:{_ABSENT}"], "op-placement"))


@planted(
    FAULTS,
    "P05-refused",
    "an absent device without soft placement",
    "tensorflow 29342",
    r"Could not satisfy device specification .*slips\.py:",
)
def _refused(devices: Devices) -> Case:
    """Without soft placement the absent device is an error."""
    return _case(devices, [*devices.names[:-1], f"/CPU:{_ABSENT}"], "error")


def _pure(x: Any) -> Any:
    """A program without variables: XLA refuses those of other devices."""
    return tf.nn.softmax(tf.tanh(x))


def _compiled(devices: Devices, names: Sequence[str]) -> Case:
    parallel = tf.function(in_shards(names, _pure), jit_compile=True)
    twin = in_shards(devices.names, tf.function(_pure, jit_compile=True))
    return Case(parallel, twin, _pure, {"x": sample(12, 5)}, kinds("op-placement"))


@planted(
    FAULTS,
    "P06-compiled-whole",
    "jit_compile=True ignores devices",
    "tensorflow 124880",
    "XLA compiled the function for one device.*Tanh",
    needs_xla=True,
)
def _compiled_whole(devices: Devices) -> Case:
    return _compiled(devices, devices.names)


@planted(
    FAULTS,
    "P06-compiled-absent",
    "jit_compile=True accepts the name of a missing device",
    "tensorflow 124880",
    "XLA compiled the function for one device.*Tanh",
    needs_xla=True,
)
def _compiled_for_absent(devices: Devices) -> Case:
    """XLA accepts names of absent devices, with and without soft placement. No scope names the last device."""
    case = _compiled(devices, [*devices.names[:-1], f"/job:worker/task:7/device:GPU:{_ABSENT}"])
    return replace(case, kinds=kinds("op-placement", "unused-device"), modes=("eager",))


@planted(FAULTS, "P16-no-scope", "no device scope at all", "public code", "no op of the program ran on")
def _no_scope(devices: Devices) -> Case:
    return _case(devices, [None] * len(devices), "unused-device")


@planted(FAULTS, "P16-two-of-four", "half of the devices are not used", "public code", "no op of the program ran on")
def _two_of_four(devices: Devices) -> Case:
    """``devices[index // 2]``: every second device has nothing to do."""
    return _case(devices, [devices.names[index // 2] for index in range(len(devices))], "unused-device")


@planted(FAULTS, "P16-in-name-only", "the device scopes contain no ops", "public code", "no op of the program ran on")
def _busy_with_nothing(devices: Devices) -> Case:
    """One device computes everything; the scopes of the others hold no work."""
    case = _case(devices, devices.names, "unused-device")

    def parallel(x: Any) -> Any:
        on_each(devices.names, lambda: tf.reshape(x, [-1]))
        return case.reference(x)

    return replace(case, parallel=parallel)
