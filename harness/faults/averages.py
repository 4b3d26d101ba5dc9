"""Wrong values: averages of averages, and losses that count something once per device (V02, V06, V07, G01, G02)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted, soft_placement
from harness.faults.samples import add_up, losses, per_shard, sample, shares, uneven
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


@planted(
    FAULTS,
    "V02-rest-to-the-last",
    "mean of means, the last shard longer",
    "public code",
    "mean of means of uneven shards",
)
def _last_gets_the_rest(devices: Devices) -> Case:
    rows = uneven(len(devices))
    count = len(devices)
    sizes = [rows // count] * (count - 1) + [rows // count + rows % count]

    def parallel(x: Any) -> Any:
        return tf.add_n(per_shard(devices, x, sizes, tf.reduce_mean)) / count

    def twin(x: Any) -> Any:
        return tf.add_n(per_shard(devices, x, sizes, tf.reduce_sum)) / rows

    def reference(x: Any) -> Any:
        return tf.reduce_mean(x)

    return Case(parallel, twin, reference, {"x": sample(rows)}, kinds("value"))


@planted(
    FAULTS,
    "V06-mean-of-means",
    "mean of means of uneven shards",
    "transformers issue 6969",
    "mean of means of uneven shards",
)
def _mean_of_means(devices: Devices) -> Case:
    rows = uneven(len(devices))
    per_row, _ = losses()
    sizes = shares(rows, len(devices))

    def reference(x: Any) -> Any:
        return tf.reduce_mean(per_row(x))

    def parallel(x: Any) -> Any:
        return tf.reduce_mean(tf.stack(per_shard(devices, x, sizes, reference)))

    def twin(x: Any) -> Any:
        means = per_shard(devices, x, sizes, reference)
        return tf.add_n([mean * (size / rows) for mean, size in zip(means, sizes, strict=True)])

    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("value"))


@planted(
    FAULTS,
    "V06-dict-of-metrics",
    "mean of means in one of two metrics",
    "tensorflow 48875",
    "mean of means of uneven shards",
)
def _dict_of_metrics(devices: Devices) -> Case:
    """The sum is added up in Python, and the metrics are a dict, of which only one entry is wrong."""
    rows = uneven(len(devices))
    per_row, _ = losses()
    sizes = shares(rows, len(devices))

    def reference(x: Any) -> Any:
        return {"mean": tf.reduce_mean(per_row(x)), "worst": tf.reduce_max(per_row(x))}

    def combine(results: list[Any], total: Any) -> Any:
        worst = tf.reduce_max(tf.stack([result["worst"] for result in results]))
        return {"mean": total, "worst": worst}

    def parallel(x: Any) -> Any:
        results = per_shard(devices, x, sizes, reference)
        total = tf.constant(0.0)
        for result in results:
            total += result["mean"] / len(devices)
        return combine(results, total)

    def twin(x: Any) -> Any:
        results = per_shard(devices, x, sizes, reference)
        total = tf.constant(0.0)
        for result, size in zip(results, sizes, strict=True):
            total += result["mean"] * size / rows
        return combine(results, total)

    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("value"))


def _average_loss(devices: Devices, faulty_size: int | None) -> Case:
    """``compute_average_loss`` outside a strategy: without the size it divides by the shard's own.

    In a graph it asserts, with texts that a GPU has no place for. So it needs soft placement there.
    """
    rows = uneven(len(devices))
    per_row, _ = losses()
    sizes = shares(rows, len(devices))

    def reference(x: Any) -> Any:
        return tf.reduce_mean(per_row(x))

    def parallel(x: Any) -> Any:
        def loss(part: Any) -> Any:
            return tf.nn.compute_average_loss(per_row(part), global_batch_size=faulty_size)

        total = tf.add_n(per_shard(devices, x, sizes, loss))
        return total / len(devices) if faulty_size is None else total

    def twin(x: Any) -> Any:
        def loss(part: Any) -> Any:
            return tf.nn.compute_average_loss(per_row(part), global_batch_size=rows)

        return tf.add_n(per_shard(devices, x, sizes, loss))

    inputs = {"x": sample(rows, 3)}
    return Case(parallel, twin, reference, inputs, kinds("value"), surroundings=soft_placement)


@planted(
    FAULTS,
    "V07-own-batch-size",
    "compute_average_loss without the global size",
    "tensorflow 48875",
    "mean of means of uneven shards",
)
def _no_global_batch_size(devices: Devices) -> Case:
    return _average_loss(devices, None)


@planted(
    FAULTS,
    "V07-partial-batch",
    "compute_average_loss with the size of a full batch",
    "tensorflow 48875",
    "divided by 16 rows, but the batch has 11",
)
def _full_batch_size(devices: Devices) -> Case:
    return _average_loss(devices, 16)


def _step(loss: Callable[[Any], Any], variables: list[Any]) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(x)
        return value, tape.gradient(value, variables)

    return step


@planted(
    FAULTS,
    "G01-summed-gradients",
    "gradients of means added up",
    "tensorflow 25806",
    "summed over <n> shards, but each shard's value is a mean",
)
def _gradients_summed(devices: Devices) -> Case:
    """A training step: each device's loss is a mean, so gradients have to be averaged."""
    per_row, variables = losses()
    count = len(devices)
    sizes = shares(2 * count, count)
    step = _step(lambda x: tf.reduce_mean(per_row(x)), variables)

    def parallel(x: Any) -> Any:
        values, gradients = zip(*per_shard(devices, x, sizes, step), strict=True)
        return tf.add_n(list(values)) / count, add_up(gradients)

    def twin(x: Any) -> Any:
        values, gradients = zip(*per_shard(devices, x, sizes, step), strict=True)
        return tf.add_n(list(values)) / count, [total / count for total in add_up(gradients)]

    return Case(parallel, twin, step, {"x": sample(2 * count, 3)}, kinds("value"))


@planted(
    FAULTS,
    "G02-regularised-towers",
    "penalty added once per tower",
    "tensorflow/models 342",
    "regulariser, is counted <n> times",
)
def _penalty_per_tower(devices: Devices) -> Case:
    rows = uneven(len(devices))
    per_row, variables = losses()
    count = len(devices)
    sizes = shares(rows, count)

    def penalty() -> Any:
        return 0.01 * tf.nn.l2_loss(variables[0])

    step = _step(lambda x: tf.reduce_mean(per_row(x)) + penalty(), variables)

    def joined(results: list[Any]) -> Any:
        values, gradients = zip(*results, strict=True)
        return tf.add_n(list(values)), add_up(gradients)

    def parallel(x: Any) -> Any:
        tower = _step(lambda part: tf.reduce_sum(per_row(part)) / rows + penalty(), variables)
        return joined(per_shard(devices, x, sizes, tower))

    def twin(x: Any) -> Any:
        tower = _step(lambda part: tf.reduce_sum(per_row(part)) / rows + penalty() / count, variables)
        return joined(per_shard(devices, x, sizes, tower))

    return Case(parallel, twin, step, {"x": sample(rows, 3)}, kinds("value"))
