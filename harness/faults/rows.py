"""Wrong values: data split or joined along the wrong axis, and arguments that cannot be split.

V05: the wrong axis. V18: statistics of a shard. V19: an argument that is not a batch, but is split like one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import on_each, sample, uneven
from harness.faults.slips import Towers, slip
from harness.lazy import tf
from harness.parallel.data import make_parallel


def _side_by_side(t: Towers, x: Any) -> Any:
    return tf.concat(t.each(t.model, x), axis=1)


def _columns(count: int) -> Any:
    return tf.constant(sample(3, count, seed=5))


def _stacked(t: Towers, x: Any, *, axis: int) -> Any:
    """Square results: transposed, they have the right shape."""
    weights = _columns(t.count)
    return tf.stack(t.each(lambda row: tf.squeeze(tf.matmul(row, weights), axis=0), x), axis=axis)


def _along_axis_1(fn: Callable[[Any], Any], inputs: Callable[[int], Mapping[str, Any]]) -> Callable[[Devices], Case]:
    """``fn`` of each row by itself, but of parts of the rows: the shape is right."""

    def program(t: Towers, x: Any, axis: int) -> Any:
        return tf.concat(on_each(t.names, fn, tf.split(x, t.count, axis=axis)), axis=axis)

    return slip(lambda _, x: fn(x), partial(program, axis=1), partial(program, axis=0), inputs=inputs)


def _running_sum(x: Any) -> Any:
    """The first device's part is right."""
    return tf.cumsum(x, axis=1)


def _convolution(x: Any) -> Any:
    """A padded convolution of images cut in strips, float16: wrong only at the seams."""
    kernel = tf.constant(sample(3, 3, 2, 2, seed=3).astype("float16"))
    return tf.nn.conv2d(x, kernel, strides=1, padding="SAME")


def _images(count: int) -> dict[str, Any]:
    return {"x": sample(count, 2 * count, 6, 2).astype("float16")}


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


_ALONG_1 = "is split along axis 1"
_LIKE_A_BATCH = "Every row of the result needs all of table"

FAULTS = (
    Fault(
        "V05-joined-side-by-side",
        "results joined along the feature axis",
        "public code",
        slip(Towers.model, _side_by_side, Towers.joined_model, "shape"),
        "joined along axis 1",
        rule="C110",
    ),
    Fault(
        "V05-stacked-as-columns",
        "square results transposed",
        "public code",
        slip(
            lambda t, x: tf.matmul(x, _columns(t.count)),
            partial(_stacked, axis=1),
            partial(_stacked, axis=0),
            rows=lambda count: count,
        ),
        "is transposed",
        rule="C404",
    ),
    Fault(
        "V05-split-features",
        "softmax split along the axis that it normalises",
        "public code",
        _along_axis_1(lambda x: tf.nn.softmax(x), lambda count: {"x": sample(2 * count, 2 * count)}),
        _ALONG_1,
        rule="C110",
    ),
    Fault(
        "V05-split-time",
        "running sum split along the time axis",
        "public code",
        _along_axis_1(_running_sum, lambda count: {"x": sample(count, 3 * count)}),
        _ALONG_1,
        rule="C110",
    ),
    Fault(
        "V05-split-image-rows",
        "convolution split along the image height, in float16",
        "public code",
        _along_axis_1(_convolution, _images),
        _ALONG_1,
        rule="C110",
    ),
    Fault(
        "V18-batch-statistics",
        "batch normalisation per shard",
        "tensorflow 7439",
        _batch_statistics,
        "not row-wise",
        rule="C110",
    ),
    Fault(
        "V19-table",
        "make_parallel without `broadcast` for a table",
        "public code",
        _split_table,
        _LIKE_A_BATCH,
        rule="C110",
    ),
    Fault(
        "V19-table-by-hand",
        "a table split like a batch",
        "public code",
        slip(
            lambda _, x, table: _attention(x, table),
            lambda t, x, table: t.joined(_attention, x, table),
            lambda t, x, table: t.joined(lambda part: _attention(part, table), x),
            inputs=lambda count: {"x": sample(2 * count, 3), "table": sample(5 * count, 3, seed=7)},
        ),
        _LIKE_A_BATCH,
        rule="C110",
    ),
)
