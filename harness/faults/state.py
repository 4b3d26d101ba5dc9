"""Wrong values: random numbers drawn per shard (R01), copies that drift (S02) or are stale (G04)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted
from harness.faults.samples import losses, on_each, sample, uneven
from harness.lazy import tf
from harness.parallel.data import make_parallel

FAULTS: list[Fault[Case]] = []


def _dropped(devices: Devices, noise: Callable[[Any], Any], draw: Callable[[Any], Any], *found: str) -> Case:
    """Dropout with ``noise`` for each shard; the twin calls ``draw`` once, for the whole batch."""
    count = len(devices)

    def reference(x: Any) -> Any:
        return x * draw(x)

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices.names, lambda part: part * noise(part), tf.split(x, count)), axis=0)

    def twin(x: Any) -> Any:
        parts = on_each(devices.names, tf.multiply, tf.split(x, count), tf.split(draw(x), count))
        return tf.concat(parts, axis=0)

    return Case(parallel, twin, reference, {"x": sample(2 * count, 5)}, kinds(*found))


def _stateless(x: Any) -> Any:
    return 2.0 * tf.cast(tf.random.stateless_uniform(tf.shape(x), seed=[1, 2]) < 0.5, x.dtype)


@planted(
    FAULTS, "R01-same-seed", "one seed for every shard", "tensorflow 33297", "every shard draws the same random numbers"
)
def _same_seed(devices: Devices) -> Case:
    return _dropped(devices, _stateless, _stateless, "value")


@planted(FAULTS, "R01-unseeded", "dropout without a seed", "tensorflow 33297", "drawn without a seed")
def _unseeded(devices: Devices) -> Case:
    return _dropped(devices, lambda part: tf.nn.dropout(tf.ones_like(part), 0.5), _stateless, "nondeterminism")


@planted(FAULTS, "R01-generator", "a generator called once per shard", "tensorflow 33297", "each shard draws its own")
def _generator(devices: Devices) -> Case:
    """A generator gives each shard its next numbers, not the part of those of the whole batch."""
    generator = tf.random.Generator.from_seed(3)

    def draw(x: Any) -> Any:
        return 2.0 * tf.cast(generator.uniform(tf.shape(x)) < 0.5, x.dtype)

    return _dropped(devices, draw, draw, "value")


@planted(
    FAULTS, "R01-keras-dropout", "a Keras Dropout called once per shard", "tensorflow 33297", "each shard draws its own"
)
def _keras_dropout(devices: Devices) -> Case:
    layer = tf.keras.layers.Dropout(0.5, seed=1)

    def draw(x: Any) -> Any:
        return layer(tf.ones_like(x), training=True)

    return _dropped(devices, draw, draw, "value")


@planted(
    FAULTS,
    "S02-drifting-copies",
    "copies updated with their own gradients",
    "public code",
    "each shard takes a training step of its own",
)
def _drifting_copies(devices: Devices) -> Case:
    """A training step on a copy of the variable per device: each copy uses its own shard's gradient."""
    count = len(devices)
    start = sample(3, 1, seed=4)
    whole = tf.Variable(start)
    copies = on_each(devices.names, lambda: tf.Variable(start))

    def loss(x: Any, y: Any, weights: Any) -> Any:
        return tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))

    def reference(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(x, y, whole)
        whole.assign_sub(0.1 * tape.gradient(value, whole))
        return tf.matmul(x, whole)

    def gradient(part: Any, target: Any, copy: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(part, target, copy)
        return tape.gradient(value, copy)

    def updated(part: Any, copy: Any, change: Any) -> Any:
        copy.assign_sub(0.1 * change)
        return tf.matmul(part, copy)

    def step(x: Any, y: Any, *, average: bool) -> Any:
        parts = tf.split(x, count)
        gradients = on_each(devices.names, gradient, parts, tf.split(y, count), copies)
        changes = [tf.add_n(gradients) / count] * count if average else gradients
        return tf.concat(on_each(devices.names, updated, parts, copies, changes), axis=0)

    def parallel(x: Any, y: Any) -> Any:
        return step(x, y, average=False)

    def twin(x: Any, y: Any) -> Any:
        return step(x, y, average=True)

    inputs = {"x": sample(3 * count, 3), "y": sample(3 * count, 1, seed=1)}
    return Case(parallel, twin, reference, inputs, kinds("value"))


@planted(
    FAULTS,
    "G04-stale-copy",
    "a copy made outside of the tape",
    "public code",
    "gets no gradient: the program never reads it",
)
def _stale_copy(devices: Devices) -> Case:
    """The copy was made outside the tape: the values are right, but the variable gets no gradient."""
    weights = tf.Variable(sample(3, 5))
    copy = tf.identity(weights)

    def model(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, weights))

    def stale(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, copy))

    return Case(
        make_parallel(stale, devices),
        make_parallel(model, devices),
        model,
        {"x": sample(uneven(len(devices)), 3)},
        kinds("missing-gradient"),
        variables=[weights],
        gradients=True,
    )


@planted(
    FAULTS, "G04-stale-step", "one device's part has no gradient", "public code", r"part of shard \d .* is missing"
)
def _stale_copy_in_a_step(devices: Devices) -> Case:
    """The same in a training step: the last device reads before its tape starts, so its part is missing."""
    per_row, variables = losses()
    count = len(devices)

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(per_row(x))
        return value, tape.gradient(value, variables[0])

    def step(x: Any, early: Any) -> Any:
        values, gradients = [], []
        for device, part in zip(devices, tf.split(x, count), strict=True):
            with tf.device(device.name):
                before = tf.reduce_sum(per_row(part))
                with tf.GradientTape() as tape:
                    value = tf.reduce_sum(per_row(part))
                target = before if device.name == early else value
                gradients.append(tape.gradient(target, variables[0], unconnected_gradients="zero"))
                values.append(value)
        return tf.add_n(values), tf.add_n(gradients)

    return Case(
        lambda x: step(x, devices[-1].name),
        lambda x: step(x, None),
        reference,
        {"x": sample(2 * count, 3)},
        kinds("value"),
    )
