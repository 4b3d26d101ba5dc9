"""Not a fault, although a simple rule would say so (P03, P04); planted beside each is a fault that the rule misses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import dense, sample


def _device_of_a_result(devices: Devices) -> Case:
    """``.device`` of what a ``tf.function`` returns says CPU:0 wherever it ran (the twin).

    The fault turns it round: the work is done outside of the scopes, and the result handed through them, so that
    ``.device`` names each device in turn.
    """
    import tensorflow as tf

    model, _ = dense()
    count = len(devices)

    def shards(x: Any, fn: Callable[[Any, str], Any]) -> list[Any]:
        return [fn(part, device.name) for device, part in zip(devices, tf.split(x, count), strict=True)]

    def there(part: Any, name: str) -> Any:
        with tf.device(name):
            return model(part)

    def shown_there(part: Any, name: str) -> Any:
        result = model(part)
        with tf.device(name):
            return tf.identity(result)

    @tf.function  # type: ignore[untyped-decorator]
    def twin(x: Any) -> Any:
        return shards(x, there)

    def parallel(x: Any) -> Any:
        return shards(x, shown_there)

    def reference(x: Any) -> Any:
        return [model(part) for part in tf.split(x, count)]

    return Case(parallel, twin, reference, {"x": sample(2 * count, 3)}, kinds("unused-device"))


def _host_tensors(devices: Devices) -> Case:
    """Integers, texts and shapes live on the host whatever their scope (the twin): no fault.

    The fault is a float op among them that stands outside of its scope, so really runs there.
    """
    import tensorflow as tf

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
        results = []
        for device, part, own in zip(devices, tf.split(x, count), tf.split(label, count), strict=True):
            with tf.device(device.name):
                hidden = model(part)
                results.append(described(hidden, own, tf.nn.softmax(hidden)))
        return joined(results)

    def reference(x: Any, label: Any) -> Any:
        hidden = model(x)
        return described(hidden, label, tf.nn.softmax(hidden))

    inputs = {"x": sample(2 * count, 3), "label": tf.range(2 * count)}
    return Case(parallel, twin, reference, inputs, kinds("op-placement"))


FAULTS = (
    Fault(
        "P03-device-of-a-result", "P03", ".device names a device, not the one", "tensorflow 41307", _device_of_a_result
    ),
    Fault("P04-host-tensors", "P04", "integers and texts live on the host", "tensorflow 34071", _host_tensors),
)
