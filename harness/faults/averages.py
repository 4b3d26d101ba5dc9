"""Wrong values: averages of averages, and losses that count something once per device (V02, V06, V07, G01, G02)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault
from harness.faults.samples import add_up, on_each, sample, uneven
from harness.faults.slips import Towers, slip
from harness.judgement.runs import soft_placement
from harness.lazy import tf


def _rest_to_the_last(t: Towers, x: Any, fn: Callable[[Any], Any]) -> Any:
    """The sum of ``fn`` of each shard, of which the last is longer."""
    own = x.shape[0] // t.count
    sizes = [own] * (t.count - 1) + [own + x.shape[0] % t.count]
    return tf.add_n(on_each(t.names, fn, tf.split(x, sizes)))


def _loss(t: Towers, x: Any) -> Any:
    return tf.reduce_mean(t.losses(x))


def _metrics(t: Towers, x: Any) -> Any:
    losses = t.losses(x)
    return {"mean": tf.reduce_mean(losses), "worst": tf.reduce_max(losses)}


def _metrics_of_all(t: Towers, x: Any, *, weighted: bool) -> Any:
    """The sum is added up in Python, and the metrics are a dict, of which only one entry is wrong."""
    parts = t.split(x)
    results = on_each(t.names, partial(_metrics, t), parts)
    total = tf.constant(0.0)
    for result, part in zip(results, parts, strict=True):
        total += result["mean"] * (part.shape[0] / x.shape[0] if weighted else 1 / t.count)
    return {"mean": total, "worst": tf.reduce_max(tf.stack([result["worst"] for result in results]))}


def _average_loss(own_size: int | None) -> Callable[[Devices], Case]:
    """``compute_average_loss`` outside a strategy: without the size it divides by the shard's own.

    In a graph it asserts, with texts that a GPU has no place for. So it needs soft placement there.
    """

    def total(t: Towers, x: Any, size: int | None) -> Any:
        return t.sum(lambda part: tf.nn.compute_average_loss(t.losses(part), global_batch_size=size), x)

    def faulty(t: Towers, x: Any) -> Any:
        return total(t, x, None) / t.count if own_size is None else total(t, x, own_size)

    return slip(_loss, faulty, lambda t, x: total(t, x, x.shape[0]), rows=uneven, surroundings=soft_placement)


def _gradients_summed(t: Towers, x: Any) -> Any:
    """A training step: each device's loss is a mean, so gradients have to be averaged."""
    losses, gradients = zip(*t.each(t.step, x), strict=True)
    return tf.add_n(losses) / t.count, add_up(gradients)


def _penalised(t: Towers, x: Any, rows: int = 0, share: float = 1.0) -> Any:
    """The part of rows ``x`` in a batch of ``rows`` rows, by default their own number, and a share of the penalty."""
    penalty = 0.01 * share
    return t.step(x, lambda part: tf.reduce_sum(t.losses(part)) / (rows or x.shape[0]) + penalty * tf.nn.l2_loss(t.w))


_MEANS = "mean of means of uneven shards"

FAULTS = (
    Fault(
        "V02-rest-to-the-last",
        "mean of means, with a longer last shard",
        "public code",
        slip(
            lambda _, x: tf.reduce_mean(x),
            lambda t, x: _rest_to_the_last(t, x, tf.reduce_mean) / t.count,
            lambda t, x: _rest_to_the_last(t, x, tf.reduce_sum) / x.shape[0],
            inputs=lambda count: {"x": sample(uneven(count))},
        ),
        _MEANS,
        rule="C110",
    ),
    Fault(
        "V06-mean-of-means",
        "mean of means of uneven shards",
        "transformers issue 6969",
        slip(
            _loss,
            lambda t, x: tf.reduce_mean(tf.stack(t.each(partial(_loss, t), x))),
            lambda t, x: t.weighted(partial(_loss, t), x),
            rows=uneven,
        ),
        _MEANS,
        rule="C110",
    ),
    Fault(
        "V06-dict-of-metrics",
        "mean of means in one of two metrics",
        "tensorflow 48875",
        slip(_metrics, partial(_metrics_of_all, weighted=False), partial(_metrics_of_all, weighted=True), rows=uneven),
        _MEANS,
        rule="C110",
    ),
    Fault(
        "V07-own-batch-size",
        "compute_average_loss without global_batch_size",
        "tensorflow 48875",
        _average_loss(None),
        _MEANS,
        rule="C110",
    ),
    Fault(
        "V07-partial-batch",
        "compute_average_loss with the size of a full batch, for a partial batch",
        "tensorflow 48875",
        _average_loss(16),
        "divided by 16 instead of by the 11 rows of the batch",
        rule="C403",
    ),
    Fault(
        "G01-summed-gradients",
        "gradients of means added up instead of averaged",
        "tensorflow 25806",
        slip(Towers.step, _gradients_summed, Towers.mean_step),
        "summed over <n> shards, but each shard's value is a mean",
        rule="C110",
    ),
    Fault(
        "G02-regularised-towers",
        "penalty added once per tower",
        "tensorflow/models 342",
        slip(
            _penalised,
            lambda t, x: t.sum(lambda part: _penalised(t, part, x.shape[0]), x),
            lambda t, x: t.sum(lambda part: _penalised(t, part, x.shape[0], 1 / t.count), x),
            rows=uneven,
        ),
        "regulariser, is counted <n> times",
        rule="C402",
    ),
)
