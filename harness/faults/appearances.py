"""Correct programs that a simple rule would call faulty (P03, P04), each beside a fault that the rule misses."""

from __future__ import annotations

from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted, soft_placement
from harness.faults.samples import dense, on_each, sample
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


@planted(
    FAULTS,
    "P03-device-of-a-result",
    ".device names a device that computed nothing",
    "tensorflow 41307",
    "no op of the program ran on",
)
def _device_of_a_result(devices: Devices) -> Case:
    """In the twin, ``.device`` of the results of a ``tf.function`` is CPU:0 wherever they were computed.

    The fault is the reverse: the work is done outside the scopes, and the results pass through them, so that
    ``.device`` names each device in turn.
    """
    model, _ = dense()
    count = len(devices)

    def shown_there(name: str, result: Any) -> Any:
        with tf.device(name):
            return tf.identity(result)

    @tf.function  # type: ignore[untyped-decorator]
    def twin(x: Any) -> Any:
        return on_each(devices.names, model, tf.split(x, count))

    def parallel(x: Any) -> Any:
        return [shown_there(name, model(part)) for name, part in zip(devices.names, tf.split(x, count), strict=True)]

    def reference(x: Any) -> Any:
        return [model(part) for part in tf.split(x, count)]

    return Case(parallel, twin, reference, {"x": sample(2 * count, 3)}, kinds("unused-device"))


@planted(
    FAULTS,
    "P04-host-tensors",
    "a float op outside of its scope, among ops that belong on the host",
    "tensorflow 34071",
    "outside of its device scope.*Softmax",
)
def _host_tensors(devices: Devices) -> Case:
    """In the twin, integers, strings and shapes are on the host whatever their scope, which is no fault.

    The fault is a float op among them that stands outside its scope, and so runs on the host.
    """
    model, _ = dense()
    count = len(devices)

    def described(hidden: Any, label: Any, result: Any) -> Any:
        counted = tf.cast(label, tf.int32) * 2 + tf.shape(hidden)[1]
        return {"result": result, "count": counted, "text": tf.strings.as_string(counted)}

    def joined(results: list[Any]) -> Any:
        return {key: tf.concat([result[key] for result in results], axis=0) for key in ("result", "count", "text")}

    def parallel(x: Any, label: Any) -> Any:
        results = []
        for device, part, own in zip(devices, tf.split(x, count), tf.split(label, count), strict=True):
            with tf.device(device.name):
                hidden = model(part)
            results.append(described(hidden, own, tf.nn.softmax(hidden)))
        return joined(results)

    def twin(x: Any, label: Any) -> Any:
        return joined(on_each(devices.names, reference, tf.split(x, count), tf.split(label, count)))

    def reference(x: Any, label: Any) -> Any:
        hidden = model(x)
        return described(hidden, label, tf.nn.softmax(hidden))

    inputs = {"x": sample(2 * count, 3), "label": tf.range(2 * count)}
    return Case(parallel, twin, reference, inputs, kinds("op-placement"), surroundings=soft_placement)
