"""Wrong values: data split or joined along the wrong axis, and functions or arguments that cannot be split.

V05: the wrong axis. V18: a function that is not row-wise. V19: an argument that is not a batch, but is split like one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted
from harness.faults.samples import dense, on_each, sample, uneven
from harness.lazy import tf
from harness.parallel.data import make_parallel

FAULTS: list[Fault[Case]] = []


@planted(FAULTS, "V05-joined-side-by-side", "results joined along features", "public code", "joined along axis 1")
def _joined_side_by_side(devices: Devices) -> Case:
    model, _ = dense()
    count = len(devices)

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices.names, model, tf.split(x, count)), axis=1)

    def twin(x: Any) -> Any:
        return tf.concat(on_each(devices.names, model, tf.split(x, count)), axis=0)

    return Case(parallel, twin, model, {"x": sample(2 * count, 3)}, kinds("shape"))


@planted(FAULTS, "V05-stacked-as-columns", "square results transposed", "public code", "is transposed")
def _stacked_as_columns(devices: Devices) -> Case:
    """Square results: transposed, they have the right shape."""
    count = len(devices)
    weights = tf.Variable(sample(3, count, seed=5))

    def reference(x: Any) -> Any:
        return tf.matmul(x, weights)

    def row(x: Any) -> Any:
        return tf.squeeze(tf.matmul(x, weights), axis=0)

    def parallel(x: Any) -> Any:
        return tf.stack(on_each(devices.names, row, tf.split(x, count)), axis=1)

    def twin(x: Any) -> Any:
        return tf.stack(on_each(devices.names, row, tf.split(x, count)), axis=0)

    return Case(parallel, twin, reference, {"x": sample(count, 3)}, kinds("value"))


@planted(FAULTS, "V05-split-features", "softmax split along its own axis", "public code", "is split along axis 1")
def _split_features(devices: Devices) -> Case:
    """A softmax over features, which are split: the shape is right, and each part sums to 1."""
    count = len(devices)

    def reference(x: Any) -> Any:
        return tf.nn.softmax(x)

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices.names, reference, tf.split(x, count, axis=1)), axis=1)

    def twin(x: Any) -> Any:
        return tf.concat(on_each(devices.names, reference, tf.split(x, count, axis=0)), axis=0)

    return Case(parallel, twin, reference, {"x": sample(2 * count, 2 * count)}, kinds("value"))


@planted(FAULTS, "V05-split-time", "running sum split along time", "public code", "is split along axis 1")
def _split_time(devices: Devices) -> Case:
    """Sequences [batch, time]: a running sum over time, split along time. The first device's part is right."""
    count = len(devices)

    def reference(x: Any) -> Any:
        return tf.cumsum(x, axis=1)

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices.names, reference, tf.split(x, count, axis=1)), axis=1)

    def twin(x: Any) -> Any:
        return tf.concat(on_each(devices.names, reference, tf.split(x, count, axis=0)), axis=0)

    return Case(parallel, twin, reference, {"x": sample(count, 3 * count)}, kinds("value"))


@planted(
    FAULTS, "V05-split-image-rows", "convolution split along height, float16", "public code", "is split along axis 1"
)
def _split_image_rows(devices: Devices) -> Case:
    """A padded convolution of images cut in strips, float16: wrong only at the seams."""
    count = len(devices)
    kernel = tf.Variable(sample(3, 3, 2, 2, seed=3).astype("float16"))

    def reference(x: Any) -> Any:
        return tf.nn.conv2d(x, kernel, strides=1, padding="SAME")

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices.names, reference, tf.split(x, count, axis=1)), axis=1)

    def twin(x: Any) -> Any:
        return tf.concat(on_each(devices.names, reference, tf.split(x, count, axis=0)), axis=0)

    return Case(parallel, twin, reference, {"x": sample(count, 2 * count, 6, 2).astype("float16")}, kinds("value"))


def _not_row_wise(devices: Devices, per_row: Callable[[Any], Any], batch_wise: Callable[[Any], Any], kind: str) -> Case:
    """``batch_wise`` on each shard; the twin applies it to the concatenated results of ``per_row``."""
    count = len(devices)

    def reference(x: Any) -> Any:
        return batch_wise(per_row(x))

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices.names, reference, tf.split(x, count)), axis=0)

    def twin(x: Any) -> Any:
        return batch_wise(tf.concat(on_each(devices.names, per_row, tf.split(x, count)), axis=0))

    return Case(parallel, twin, reference, {"x": sample(2 * count, 3)}, kinds(kind))


@planted(FAULTS, "V18-batch-softmax", "softmax over the batch", "public code", "not row-wise")
def _batch_softmax(devices: Devices) -> Case:
    model, _ = dense()
    return _not_row_wise(devices, model, lambda rows: tf.nn.softmax(rows, axis=0), "value")


@planted(FAULTS, "V18-rank", "rank within the batch, integers", "public code", "not row-wise")
def _rank_in_batch(devices: Devices) -> Case:
    """The rank of each row within its batch, integers."""
    model, _ = dense()
    return _not_row_wise(devices, model, lambda rows: tf.argsort(rows, axis=0), "value")


@planted(FAULTS, "V18-argmax", "argmax over the batch", "public code", "not row-wise")
def _argmax_over_batch(devices: Devices) -> Case:
    model, _ = dense()
    return _not_row_wise(devices, model, lambda rows: tf.argmax(rows, axis=0), "shape")


@planted(FAULTS, "V18-sort", "sort of the batch", "public code", "not row-wise")
def _sort(devices: Devices) -> Case:
    model, _ = dense()
    return _not_row_wise(devices, model, lambda rows: tf.sort(rows, axis=0), "value")


@planted(FAULTS, "V18-negatives", "in-batch negatives", "public code", "not row-wise")
def _in_batch_negatives(devices: Devices) -> Case:
    """A contrastive loss: each row is compared with all others of its batch."""
    model, _ = dense()

    def contrast(rows: Any) -> Any:
        likeness = tf.matmul(rows, rows, transpose_b=True)
        return tf.reduce_logsumexp(likeness, axis=1) - tf.linalg.diag_part(likeness)

    return _not_row_wise(devices, model, contrast, "value")


@planted(FAULTS, "V18-batch-statistics", "batch normalisation per shard", "tensorflow 7439", "not row-wise")
def _batch_statistics(devices: Devices) -> Case:
    """A Keras layer that normalises each shard by the shard's own mean and variance."""
    layer = tf.keras.layers.BatchNormalization()
    layer.build((None, 3))

    def reference(x: Any) -> Any:
        return layer(x, training=True)

    def normalise(x: Any, mean: Any, variance: Any) -> Any:
        return tf.nn.batch_normalization(x, mean, variance, layer.beta, layer.gamma, layer.epsilon)

    on_all = make_parallel(normalise, devices, broadcast=("mean", "variance"))

    def twin(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, axes=[0])
        for moving, new in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
            moving.assign(moving * layer.momentum + new * (1.0 - layer.momentum))
        return on_all(x=x, mean=mean, variance=variance)

    return Case(
        make_parallel(reference, devices), twin, reference, {"x": sample(uneven(len(devices)), 3)}, kinds("value")
    )


def _attention(x: Any, table: Any) -> Any:
    return tf.matmul(tf.nn.softmax(tf.matmul(x, table, transpose_b=True)), table)


@planted(FAULTS, "V19-table", "make_parallel without broadcast", "public code", "Table is split like a batch")
def _split_table(devices: Devices) -> Case:
    """A table of as many rows as the batch is split like it, and each device sees a part."""
    inputs = {"x": sample(2 * len(devices), 3), "table": sample(2 * len(devices), 3, seed=7)}
    return Case(
        make_parallel(_attention, devices),
        make_parallel(_attention, devices, broadcast=("table",)),
        _attention,
        inputs,
        kinds("value"),
    )


@planted(FAULTS, "V19-table-by-hand", "a table split like a batch", "public code", "Table is split like a batch")
def _split_table_by_hand(devices: Devices) -> Case:
    count = len(devices)

    def parallel(x: Any, table: Any) -> Any:
        return tf.concat(on_each(devices.names, _attention, tf.split(x, count), tf.split(table, count)), axis=0)

    def twin(x: Any, table: Any) -> Any:
        return tf.concat(on_each(devices.names, _attention, tf.split(x, count), [table] * count), axis=0)

    inputs = {"x": sample(2 * count, 3), "table": sample(5 * count, 3, seed=7)}
    return Case(parallel, twin, _attention, inputs, kinds("value"))
