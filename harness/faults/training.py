"""Wrong values in a training step: an optimizer applied per shard (S01), and metrics (V17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import on_each, sample, shares, uneven
from harness.faults.slips import slip
from harness.lazy import tf

_FEATURES = 3


class _Model:
    """Weights and an optimizer on the host, and a shard's part of the gradient of the mean loss over ``rows``."""

    def __init__(self, devices: Devices, rows: int) -> None:
        self.rows = rows
        with tf.device(devices.host):
            self.weights = tf.Variable(sample(_FEATURES, 1, seed=3), name="weights")
            self.optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
            self.optimizer.build([self.weights])

    @property
    def state(self) -> list[Any]:
        return [self.weights, self.optimizer.iterations.value]

    def gradient(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.matmul(x, self.weights))) / self.rows
        return tape.gradient(loss, self.weights)

    def apply(self, gradient: Any) -> Any:
        self.optimizer.apply_gradients([(gradient, self.weights)])
        return gradient


def _applied_per_shard(devices: Devices) -> Case:
    rows = uneven(len(devices))
    sizes = shares(rows, len(devices))
    model = _Model(devices, rows)

    def parallel(x: Any) -> Any:
        gradients = on_each(devices.names, model.gradient, tf.split(x, sizes))
        for gradient in gradients:
            model.apply(gradient)
        return tf.add_n(gradients)

    def twin(x: Any) -> Any:
        return model.apply(tf.add_n(on_each(devices.names, model.gradient, tf.split(x, sizes))))

    def reference(x: Any) -> Any:
        return model.apply(model.gradient(x))

    return Case(parallel, twin, reference, {"x": sample(rows, _FEATURES)}, kinds("value"), variables=model.state)


def _applied_to_what_nobody_named(devices: Devices) -> Case:
    """The same without ``variables``: the programs keep the weights and the counter between their calls."""
    return replace(_applied_per_shard(devices), variables=())


def _mean_square(x: Any) -> Any:
    return tf.reduce_mean(tf.square(x))


def _masked(x: Any) -> tuple[Any, Any]:
    counted = tf.cast(x > 0, x.dtype)
    return tf.reduce_sum(x * counted), tf.reduce_sum(counted)


def _masked_mean(x: Any) -> Any:
    return tf.math.divide(*_masked(x))


def _half_masked(count: int) -> dict[str, Any]:
    """Shards with the same number of rows, but different numbers of unmasked rows."""
    x = abs(sample(3 * count))
    x[:2] *= -1
    return {"x": x}


FAULTS = (
    Fault(
        "S01-applied-per-shard",
        "the optimizer is applied once per shard",
        "tensorflow PR 21824",
        _applied_per_shard,
        "optimizer is applied <n> times, once for each shard",
        rule="C203",
    ),
    Fault(
        "S01-applied-to-what-nobody-named",
        "the optimizer is applied once per shard, to weights that are not passed in `variables`",
        "made up for this list",
        _applied_to_what_nobody_named,
        "optimizer is applied <n> times, once for each shard",
        rule="C203",
    ),
    Fault(
        "V17-mean-of-root-mean-squares",
        "a metric that is not linear is averaged over shards",
        "transformers PR 6998",
        slip(
            lambda _, x: tf.sqrt(_mean_square(x)),
            lambda t, x: t.mean(lambda part: tf.sqrt(_mean_square(part)), x),
            lambda t, x: tf.sqrt(t.mean(_mean_square, x)),
        ),
        "averaged over shards, but in the reference it is not a mean over rows",
        rule="C110",
    ),
    Fault(
        "V17-mean-of-masked-means",
        "a masked mean is taken per shard",
        "transformers PR 6998",
        slip(
            lambda _, x: _masked_mean(x),
            lambda t, x: t.mean(_masked_mean, x),
            lambda t, x: tf.math.divide(*t.sum(_masked, x)),
            inputs=_half_masked,
        ),
        "averaged over shards, but in the reference it is not a mean over rows",
        rule="C110",
    ),
)
