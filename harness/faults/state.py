"""Wrong values: copies that drift (S02), or are stale, so that a gradient is missing (G04)."""

from __future__ import annotations

from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import on_each, sample, uneven
from harness.faults.slips import Towers, slip
from harness.lazy import tf
from harness.parallel.data import make_parallel


def _drifting_copies(devices: Devices) -> Case:
    """A training step on a copy of the variable per device: each copy uses its own shard's gradient."""
    count = len(devices)
    start = sample(3, 1, seed=4)
    whole = tf.Variable(start)
    copies = on_each(devices.names, lambda: tf.Variable(start))

    def gradient(x: Any, y: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        return tape.gradient(value, weights)

    def updated(x: Any, weights: Any, change: Any) -> Any:
        weights.assign_sub(0.1 * change)
        return tf.matmul(x, weights)

    def step(x: Any, y: Any, *, average: bool) -> Any:
        parts = tf.split(x, count)
        gradients = on_each(devices.names, gradient, parts, tf.split(y, count), copies)
        changes = [tf.add_n(gradients) / count] * count if average else gradients
        return tf.concat(on_each(devices.names, updated, parts, copies, changes), axis=0)

    return Case(
        lambda x, y: step(x, y, average=False),
        lambda x, y: step(x, y, average=True),
        lambda x, y: updated(x, whole, gradient(x, y, whole)),
        {"x": sample(3 * count, 3), "y": sample(3 * count, 1, seed=1)},
        kinds("value"),
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


def _step(t: Towers, x: Any, *, early: bool = False) -> Any:
    """The loss and its gradient; one that is read ``early``, before the tape starts, has none."""
    before = tf.reduce_sum(t.losses(x))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(t.losses(x))
    return value, tape.gradient(before if early else value, t.w, unconnected_gradients="zero")


def _early_in_the_last(t: Towers, x: Any) -> Any:
    """The last device reads before its tape starts, so its part is missing."""
    steps = on_each(t.names, lambda part, name: _step(t, part, early=name == t.names[-1]), t.split(x), t.names)
    return tuple(map(tf.add_n, zip(*steps, strict=True)))


FAULTS = (
    Fault(
        "S02-drifting-copies",
        "each copy of the weights updated with its own gradients alone",
        "public code",
        _drifting_copies,
        "each shard takes a training step of its own",
        rule="C110",
    ),
    Fault(
        "G04-stale-copy",
        "a copy of the weights made outside of the tape",
        "public code",
        _stale_copy,
        "gets no gradient: the program never reads it",
        rule="C301",
    ),
    Fault(
        "G04-stale-step",
        "one device's part has no gradient",
        "public code",
        slip(_step, _early_in_the_last, lambda t, x: t.sum(lambda part: _step(t, part), x)),
        r"part of shard \d .* is missing",
        rule="C110",
    ),
)
