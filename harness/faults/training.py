"""Wrong values in a training step: an optimizer applied per shard (S01), IndexedSlices (G03), metrics (V17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import integers, per_shard, sample, shares, uneven
from harness.lazy import tf

_FEATURES, _WORDS, _WIDTH = 3, 9, 4


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
        gradients = per_shard(devices, x, sizes, model.gradient)
        for gradient in gradients:
            model.apply(gradient)
        return tf.add_n(gradients)

    def twin(x: Any) -> Any:
        return model.apply(tf.add_n(per_shard(devices, x, sizes, model.gradient)))

    def reference(x: Any) -> Any:
        return model.apply(model.gradient(x))

    return Case(parallel, twin, reference, {"x": sample(rows, _FEATURES)}, kinds("value"), variables=model.state)


def _applied_to_what_nobody_named(devices: Devices) -> Case:
    """The same without ``variables``: the programs keep the weights and the counter between their calls."""
    return replace(_applied_per_shard(devices), variables=())


def _indexed_slices(devices: Devices) -> Case:
    """Each shard's gradient of an embedding has its own rows, but they are averaged as if they were the same."""
    count = len(devices)
    with tf.device(devices.host):
        table = tf.Variable(sample(_WORDS, _WIDTH), name="table")

    def slices(words: Any) -> Any:
        return 2.0 * tf.gather(tf.convert_to_tensor(table), words)

    def dense(values: Any, words: Any) -> Any:
        return tf.scatter_nd(words[:, tf.newaxis], values, [_WORDS, _WIDTH])

    def parallel(words: Any) -> Any:
        parts = per_shard(devices, words, [2] * count, slices)
        return dense(tf.add_n(parts) / count, tf.split(words, count)[0])

    def twin(words: Any) -> Any:
        parts = per_shard(devices, words, [2] * count, slices)
        return dense(tf.concat(parts, axis=0) / count, words)

    def reference(words: Any) -> Any:
        return dense(slices(words) / count, words)

    words = integers(_WORDS, 2 * count, seed=5)
    return Case(parallel, twin, reference, {"words": words}, kinds("value"))


def _root_mean_square(devices: Devices) -> Case:
    count = len(devices)

    def squares(x: Any) -> Any:
        return tf.reduce_mean(tf.square(x))

    def parallel(x: Any) -> Any:
        return tf.add_n(per_shard(devices, x, [2] * count, lambda part: tf.sqrt(squares(part)))) / count

    def twin(x: Any) -> Any:
        return tf.sqrt(tf.add_n(per_shard(devices, x, [2] * count, squares)) / count)

    return Case(parallel, twin, lambda x: tf.sqrt(squares(x)), {"x": sample(2 * count, 3)}, kinds("value"))


def _masked_mean(devices: Devices) -> Case:
    """Shards have the same number of rows, but different numbers of unmasked rows."""
    count = len(devices)

    def masked(x: Any) -> tuple[Any, Any]:
        counted = tf.cast(x > 0, x.dtype)
        return tf.reduce_sum(x * counted), tf.reduce_sum(counted)

    def parallel(x: Any) -> Any:
        means = per_shard(devices, x, [3] * count, lambda part: tf.math.divide(*masked(part)))
        return tf.add_n(means) / count

    def twin(x: Any) -> Any:
        parts = per_shard(devices, x, [3] * count, masked)
        return tf.add_n([total for total, _ in parts]) / tf.add_n([counted for _, counted in parts])

    x = abs(sample(3 * count))
    x[:2] *= -1
    return Case(parallel, twin, lambda x: tf.math.divide(*masked(x)), {"x": x}, kinds("value"))


FAULTS = (
    Fault(
        "S01-applied-per-shard",
        "the optimizer is applied once per shard",
        "tensorflow PR 21824",
        _applied_per_shard,
        "optimizer is applied <n> times, once for each shard",
    ),
    Fault(
        "S01-applied-to-what-nobody-named",
        "the optimizer is applied once per shard, to weights not passed as variables",
        "own attack",
        _applied_to_what_nobody_named,
        "optimizer is applied <n> times, once for each shard",
    ),
    Fault(
        "G03-indexed-slices-averaged-by-value",
        "the values of the shards' IndexedSlices are averaged, and their indices ignored",
        "tensorflow 5252, horovod PR 2279",
        _indexed_slices,
        "keep the indices of one shard",
    ),
    Fault(
        "V17-mean-of-root-mean-squares",
        "a metric that is not linear is averaged over shards",
        "transformers PR 6998",
        _root_mean_square,
        "averaged over shards, but it is not a mean over rows",
    ),
    Fault(
        "V17-mean-of-masked-means",
        "a masked mean is taken per shard",
        "transformers PR 6998",
        _masked_mean,
        "averaged over shards, but it is not a mean over rows",
    ),
)
