"""Wrong values: rows lost because a batch does not divide by the number of devices (V01, V03, V04)."""

from __future__ import annotations

from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted
from harness.faults.samples import dense, in_shards, losses, on_each, per_shard, sample, shares, uneven
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


def _floor_slice(devices: Devices, rows: int) -> Case:
    model, _ = dense()

    def parallel(x: Any) -> Any:
        size = x.shape[0] // len(devices)
        parts = [x[index * size : (index + 1) * size] for index in range(len(devices))]
        return tf.concat(on_each(devices.names, model, parts), axis=0)

    return Case(parallel, in_shards(devices.names, model), model, {"x": sample(rows, 3)}, kinds("shape"))


@planted(
    FAULTS, "V01-floor-slice", "remainder dropped by a floor slice", "keras-extras issue 7", r"Rows \d+.* were dropped"
)
def _ten_rows(devices: Devices) -> Case:
    return _floor_slice(devices, uneven(len(devices)))


@planted(
    FAULTS,
    "V01-fewer-rows",
    "3 rows on 4 devices: every row is dropped",
    "keras-extras issue 11",
    r"All \d+ rows were dropped",
)
def _fewer_rows(devices: Devices) -> Case:
    return _floor_slice(devices, len(devices) - 1)


@planted(
    FAULTS,
    "V01-get-slice",
    "remainder dropped; sizes known only at run time",
    "keras-extras issue 7",
    r"Rows \d+.* were dropped",
)
def _get_slice(devices: Devices) -> Case:
    """``get_slice`` of a widespread multi-GPU recipe for Keras 1 and 2: the sizes are tensors."""
    model, _ = dense()
    count = len(devices)

    def piece(x: Any, index: int) -> Any:
        shape = tf.shape(x)
        size = tf.concat([shape[:1] // count, shape[1:]], axis=0)
        stride = tf.concat([shape[:1] // count, shape[1:] * 0], axis=0)
        return tf.slice(x, stride * index, size)

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices.names, lambda index: model(piece(x, index)), range(count)), axis=0)

    def twin(x: Any) -> Any:
        rows = tf.shape(x)[0]
        parts = [x[rows * index // count : rows * (index + 1) // count] for index in range(count)]
        return tf.concat(on_each(devices.names, model, parts), axis=0)

    return Case(
        parallel,
        twin,
        model,
        {"x": sample(uneven(len(devices)), 3)},
        kinds("shape"),
        modes=("eager", "graph", "dynamic"),
    )


@planted(FAULTS, "V01-loss", "remainder dropped inside a mean", "keras-extras issue 7", r"Rows? \d+.* dropped")
def _loss_of_whole_shards(devices: Devices) -> Case:
    """The rows are lost in a loss, where no shape shows it."""
    per_row, _ = losses()
    count = len(devices)

    def loss(x: Any) -> Any:
        return tf.reduce_mean(per_row(x))

    def total(x: Any, sizes: list[int]) -> Any:
        sums = per_shard(devices, x[: sum(sizes)], sizes, lambda part: tf.reduce_sum(per_row(part)))
        return tf.add_n(sums) / sum(sizes)

    def parallel(x: Any) -> Any:
        return total(x, [x.shape[0] // count] * count)

    def twin(x: Any) -> Any:
        return total(x, shares(x.shape[0], count))

    return Case(parallel, twin, loss, {"x": sample(11, 3)}, kinds("value"))


@planted(
    FAULTS, "V03-even-split", "tf.split refuses an uneven batch", "keras issue 11844", r"evenly divide .*remainder\.py:"
)
def _even_split(devices: Devices) -> Case:
    model, _ = dense()
    count = len(devices)

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices.names, model, tf.split(x, count)), axis=0)

    def twin(x: Any) -> Any:
        rows = tf.shape(x)[0]
        sizes = rows // count + tf.cast(tf.range(count) < rows % count, tf.int32)
        return tf.concat(on_each(devices.names, model, tf.split(x, sizes, num=count)), axis=0)

    return Case(
        parallel,
        twin,
        model,
        {"x": sample(uneven(len(devices)), 3)},
        kinds("error"),
        modes=("eager", "graph", "dynamic"),
    )


@planted(FAULTS, "V04-cut-by-zero", "x[:-cut] is empty if cut is 0", "public code", r"All \d+ rows were dropped")
def _cut_to_a_multiple(devices: Devices) -> Case:
    """Right for every batch except those that need no cut."""
    model, _ = dense()
    count = len(devices)
    on_all = in_shards(devices.names, model)

    def parallel(x: Any) -> Any:
        cut = x.shape[0] % count
        return on_all(x[:-cut])

    def twin(x: Any) -> Any:
        cut = x.shape[0] % count
        return on_all(x[: x.shape[0] - cut])

    return Case(parallel, twin, model, {"x": sample(2 * count, 3)}, kinds("shape"))
