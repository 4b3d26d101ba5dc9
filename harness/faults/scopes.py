"""Wrong device: a scope that ends too late (P12: split or concat on a tower) or too early (P14: work on the host)."""

from __future__ import annotations

from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted
from harness.faults.samples import add_up, dense, in_shards, losses, on_each, per_shard, sample, shares, uneven
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


@planted(
    FAULTS,
    "P12-concat-in-the-loop",
    "concat in the last tower's scope",
    "public code",
    "joined inside the scope of one.*Concat",
)
def _concat_in_the_loop(devices: Devices) -> Case:
    rows = uneven(len(devices))
    model, _ = dense()

    def parallel(x: Any) -> Any:
        outputs: list[Any] = []
        result = None
        for device, part in zip(devices, tf.split(x, shares(rows, len(devices))), strict=True):
            with tf.device(device.name):
                outputs.append(model(part))
                result = tf.concat(outputs, axis=0)
        return result

    return Case(parallel, in_shards(devices.names, model), model, {"x": sample(rows, 3)}, kinds("op-placement"))


@planted(
    FAULTS,
    "P12-split-in-a-scope",
    "split in the last tower's scope",
    "public code",
    "is split inside the scope of one.*Split",
)
def _split_in_the_last_scope(devices: Devices) -> Case:
    """The second input is split in a scope that was meant for something else."""
    rows = uneven(len(devices))
    model, _ = dense()
    sizes = shares(rows, len(devices))

    def reference(x: Any, scale: Any) -> Any:
        return model(x) * scale

    def on_all(parts: list[Any], scales: list[Any]) -> Any:
        return tf.concat(on_each(devices.names, reference, parts, scales), axis=0)

    def parallel(x: Any, scale: Any) -> Any:
        parts = tf.split(x, sizes)
        with tf.device(devices[-1].name):
            scales = tf.split(scale, sizes)
        return on_all(parts, scales)

    def twin(x: Any, scale: Any) -> Any:
        return on_all(tf.split(x, sizes), tf.split(scale, sizes))

    inputs = {"x": sample(rows, 3), "scale": sample(rows, 1, seed=9)}
    return Case(parallel, twin, reference, inputs, kinds("op-placement"))


@planted(
    FAULTS,
    "P12-losses-in-the-loop",
    "sums in the last tower's scope",
    "public code",
    "joined inside the scope of one.*AddN",
)
def _losses_added_in_the_loop(devices: Devices) -> Case:
    """A training step: losses and gradients of all towers are added up in the scope of the last."""
    rows = uneven(len(devices))
    per_row, variables = losses()
    sizes = shares(rows, len(devices))

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(per_row(x))
        return [value, *tape.gradient(value, variables)]

    def parallel(x: Any) -> Any:
        towers: list[Any] = []
        total = None
        for device, part in zip(devices, tf.split(x, sizes), strict=True):
            with tf.device(device.name):
                towers.append(reference(part))
                total = add_up(towers)
        return total

    def twin(x: Any) -> Any:
        return add_up(per_shard(devices, x, sizes, reference))

    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("op-placement"))


@planted(
    FAULTS,
    "P12-one-of-two-outputs",
    "one output joined in the scope",
    "public code",
    "joined inside the scope of one.*Concat",
)
def _stack_of_two_outputs(devices: Devices) -> Case:
    """A dict of outputs, one of which is concatenated inside the scopes."""
    rows = uneven(len(devices))
    model, _ = dense()
    sizes = shares(rows, len(devices))

    def reference(x: Any) -> Any:
        hidden = model(x)
        return {"rows": hidden, "best": tf.argmax(hidden, axis=1)}

    def joined(towers: list[Any], key: str) -> Any:
        return tf.concat([tower[key] for tower in towers], axis=0)

    def parallel(x: Any) -> Any:
        towers, rows_so_far = [], None
        for device, part in zip(devices, tf.split(x, sizes), strict=True):
            with tf.device(device.name):
                towers.append(reference(part))
                rows_so_far = joined(towers, "rows")
        return {"rows": rows_so_far, "best": joined(towers, "best")}

    def twin(x: Any) -> Any:
        towers = per_shard(devices, x, sizes, reference)
        return {"rows": joined(towers, "rows"), "best": joined(towers, "best")}

    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("op-placement"))


@planted(
    FAULTS,
    "P14-activation",
    "an activation outside of the scope",
    "public code",
    "outside of its device scope.*Softplus",
)
def _activation_outside(devices: Devices) -> Case:
    rows = uneven(len(devices))
    weights = tf.Variable(sample(3, 5))
    bias = tf.Variable(sample(5, seed=1))
    sizes = shares(rows, len(devices))

    def reference(x: Any) -> Any:
        return tf.nn.softplus(tf.matmul(x, weights) + bias)

    def parallel(x: Any) -> Any:
        outputs = []
        for device, part in zip(devices, tf.split(x, sizes), strict=True):
            with tf.device(device.name):
                hidden = tf.matmul(part, weights)
            outputs.append(tf.nn.softplus(hidden + bias))
        return tf.concat(outputs, axis=0)

    twin = in_shards(devices.names, reference)
    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("op-placement"))


@planted(
    FAULTS,
    "P14-after-a-function",
    "an op after a nested function",
    "public code",
    "outside of its device scope.*Softmax",
)
def _after_a_function(devices: Devices) -> Case:
    """The model is a ``tf.function``; the op after it stands outside the scope."""
    rows = uneven(len(devices))
    model, _ = dense()
    compiled = tf.function(model)
    sizes = shares(rows, len(devices))

    def reference(x: Any) -> Any:
        return tf.nn.softmax(model(x))

    def parallel(x: Any) -> Any:
        outputs = []
        for device, part in zip(devices, tf.split(x, sizes), strict=True):
            with tf.device(device.name):
                hidden = compiled(part)
            outputs.append(tf.nn.softmax(hidden))
        return tf.concat(outputs, axis=0)

    twin = in_shards(devices.names, lambda part: tf.nn.softmax(compiled(part)))
    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("op-placement"))


@planted(FAULTS, "P14-loss", "the loss outside of the scope", "public code", "outside of its device scope.*Square")
def _loss_outside(devices: Devices) -> Case:
    """The towers end before their loss. The host may compute the weighted sum of the losses, not the losses."""
    rows = uneven(len(devices))
    model, _ = dense()
    sizes = shares(rows, len(devices))

    def loss(hidden: Any) -> Any:
        return tf.reduce_mean(tf.square(hidden))

    def reference(x: Any) -> Any:
        return loss(model(x))

    def parallel(x: Any) -> Any:
        total = 0.0
        for device, part, size in zip(devices, tf.split(x, sizes), sizes, strict=True):
            with tf.device(device.name):
                hidden = model(part)
            total += loss(hidden) * size
        return total / rows

    def twin(x: Any) -> Any:
        means = per_shard(devices, x, sizes, reference)
        return sum(mean * size for mean, size in zip(means, sizes, strict=True)) / rows

    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("op-placement"))
