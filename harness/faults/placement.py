"""Wrong device: absent devices (P05), devices that XLA ignores (P06), no devices at all (P16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import in_shards, on_each, sample, uneven
from harness.faults.slips import Towers, slip
from harness.judgement.runs import soft_placement
from harness.lazy import tf

#: The index of a device that no machine has.
_ABSENT = 90

Names = Callable[[Devices], Sequence[str | None]]


def _on(names: Names, *found: str, **options: Any) -> Callable[[Devices], Case]:
    """A model on the named devices; the twin is on all."""
    return _model(lambda t, x: in_shards(names(t.devices), t.model)(x), *found, **options)


def _model(faulty: Callable[[Towers, Any], Any], *found: str, **options: Any) -> Callable[[Devices], Case]:
    return slip(Towers.model, faulty, Towers.joined_model, *found, rows=uneven, **options)


def _last_absent(devices: Devices) -> Sequence[str]:
    return [*devices.names[:-1], f"/CPU:{_ABSENT}"]


def _no_such_gpus(devices: Devices) -> Sequence[str]:
    return [f"/GPU:{_ABSENT + index}" for index in range(len(devices))]


def _one_too_many(devices: Devices) -> Sequence[str]:
    """All devices are used, and the tower without a device runs on the host."""
    return [*devices.names, f"/GPU:{_ABSENT}"]


def _half(devices: Devices) -> Sequence[str]:
    """``devices[index // 2]``: every second device has nothing to do."""
    return [devices.names[index // 2] for index in range(len(devices))]


def _pure(x: Any) -> Any:
    """A program without variables: XLA refuses those of other devices."""
    return tf.nn.softmax(tf.tanh(x))


def _compiled(names: Names, *found: str, **options: Any) -> Callable[[Devices], Case]:
    def plant(devices: Devices) -> Case:
        parallel = tf.function(in_shards(names(devices), _pure), jit_compile=True)
        twin = in_shards(devices.names, tf.function(_pure, jit_compile=True))
        return Case(parallel, twin, _pure, {"x": sample(12, 5)}, kinds(*found), **options)

    return plant


def _last_of_another_task(devices: Devices) -> Sequence[str]:
    """XLA accepts names of absent devices, with and without soft placement. No scope names the last device."""
    return [*devices.names[:-1], f"/job:worker/task:7/device:GPU:{_ABSENT}"]


def _in_name_only(t: Towers, x: Any) -> Any:
    """One device computes everything; the scopes of the others hold no work."""
    on_each(t.names, lambda: tf.reshape(x, [-1]))
    return t.model(x)


def _each_all_rows(t: Towers, x: Any) -> Any:
    """Each device runs the model on all rows, and keeps its own."""
    ends = [index * x.shape[0] // t.count for index in range(t.count + 1)]
    whole = on_each(t.names, lambda: t.model(x))
    return tf.concat([y[a:b] for y, a, b in zip(whole, ends, ends[1:], strict=False)], 0)


def _mean_of_all(t: Towers, x: Any) -> Any:
    """Each device is given the whole batch, so that the mean of their results is right."""
    return tf.add_n(on_each(t.names, lambda: t.model(x))) / t.count


def _one_after_the_other(t: Towers, x: Any) -> Any:
    """Each tower waits for the result of the one before, which it does not read."""
    done: list[Any] = []
    for name, part in t.shards(x):
        with tf.device(name), tf.control_dependencies(done[-1:]):
            done.append(t.model(tf.identity(part)))
    return tf.concat(done, 0)


def _chained_by_nothing(t: Towers, x: Any) -> Any:
    """Each tower reads the result of the one before, times 0."""
    done: list[Any] = []
    for name, part in t.shards(x):
        with tf.device(name):
            done.append(t.model(part + 0.0 * done[-1][:1, :1] if done else part))
    return tf.concat(done, 0)


_ELSEWHERE = "not run on the device that its scope requests.*MatMul"
_COMPILED = "XLA compiled the function for one device.*Tanh"
_IDLE = "no op of the program ran on"

FAULTS = (
    Fault(
        "P05-last-absent",
        "soft placement hides an absent device",
        "tensorflow 29342",
        _on(_last_absent, "op-placement", "unused-device", surroundings=soft_placement),
        _ELSEWHERE,
    ),
    Fault(
        "P05-no-such-gpu",
        "soft placement hides that there is no GPU",
        "tensorflow 29342",
        _on(_no_such_gpus, "op-placement", "unused-device", surroundings=soft_placement),
        _ELSEWHERE,
    ),
    Fault(
        "P05-one-too-many",
        "one more tower than devices",
        "tensorflow 29342",
        _on(_one_too_many, "op-placement", surroundings=soft_placement),
        _ELSEWHERE,
    ),
    Fault(
        "P05-refused",
        "an absent device without soft placement",
        "tensorflow 29342",
        _on(_last_absent, "error"),
        r"Could not satisfy device specification .*slips\.py:",
    ),
    Fault(
        "P06-compiled-whole",
        "jit_compile=True ignores devices",
        "tensorflow 124880",
        _compiled(lambda devices: devices.names, "op-placement"),
        _COMPILED,
        needs_xla=True,
    ),
    Fault(
        "P06-compiled-absent",
        "jit_compile=True accepts the name of a missing device",
        "tensorflow 124880",
        _compiled(_last_of_another_task, "op-placement", "unused-device", modes=("eager",)),
        _COMPILED,
        needs_xla=True,
    ),
    Fault(
        "P16-no-scope",
        "no device scope at all",
        "public code",
        _on(lambda devices: [None] * len(devices), "unused-device"),
        _IDLE,
    ),
    Fault("P16-two-of-four", "half of the devices are not used", "public code", _on(_half, "unused-device"), _IDLE),
    Fault(
        "P16-in-name-only",
        "the device scopes contain no ops",
        "public code",
        _model(_in_name_only, "unused-device"),
        _IDLE,
    ),
    Fault(
        "P16-all-rows-on-each",
        "each device computes all rows and keeps a part",
        "public code",
        _model(_each_all_rows, "repeated-work", modes=("graph",)),
        "each device computes layers for all rows and keeps a part of them",
    ),
    Fault(
        "P16-batch-not-cut",
        "each device is given the whole batch",
        "public code",
        _model(_mean_of_all, "repeated-work", modes=("graph",)),
        "devices compute the same numbers for the same rows",
    ),
    Fault(
        "P17-one-after-the-other",
        "each tower waits for the one before by tf.control_dependencies",
        "public code",
        _model(_one_after_the_other, "serial-devices", modes=("graph",)),
        "the work of one shard or member waits for that of another one",
    ),
    Fault(
        "P17-chained-by-nothing",
        "each tower adds 0 times the result of the one before",
        "public code",
        _model(_chained_by_nothing, "serial-devices", modes=("graph",)),
        "which changes nothing in its results.*leave it out",
    ),
)
