"""Wrong values: rows lost because a batch does not divide by the number of devices (V01, V03, V04)."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.samples import on_each, uneven
from harness.faults.slips import Towers, slip
from harness.lazy import tf

_MODES = ("eager", "graph", "dynamic")


def _on_all(t: Towers, parts: Any) -> Any:
    return tf.concat(on_each(t.names, t.model, parts), axis=0)


def _floor_slice(t: Towers, x: Any) -> Any:
    size = x.shape[0] // t.count
    return _on_all(t, [x[index * size : (index + 1) * size] for index in range(t.count)])


def _get_slice(t: Towers, x: Any) -> Any:
    """``get_slice`` of a widespread multi-GPU recipe for Keras 1 and 2: the sizes are tensors."""

    def tower(index: int) -> Any:
        shape = tf.shape(x)
        size = tf.concat([shape[:1] // t.count, shape[1:]], axis=0)
        stride = tf.concat([shape[:1] // t.count, shape[1:] * 0], axis=0)
        return t.model(tf.slice(x, stride * index, size))

    return tf.concat(on_each(t.names, tower, range(t.count)), axis=0)


def _sliced(t: Towers, x: Any) -> Any:
    rows = tf.shape(x)[0]
    return _on_all(t, [x[rows * index // t.count : rows * (index + 1) // t.count] for index in range(t.count)])


def _mean_of(t: Towers, x: Any, rows: int) -> Any:
    """The rows that are lost are in a loss, where no shape shows it."""
    return t.sum(lambda part: tf.reduce_sum(t.losses(part)), x[:rows]) / rows


def _even_split(t: Towers, x: Any) -> Any:
    return _on_all(t, tf.split(x, t.count))


def _uneven_split(t: Towers, x: Any) -> Any:
    rows = tf.shape(x)[0]
    sizes = rows // t.count + tf.cast(tf.range(t.count) < rows % t.count, tf.int32)
    return _on_all(t, tf.split(x, sizes, num=t.count))


def _cut_to_a_multiple(t: Towers, x: Any) -> Any:
    """Right for every batch except those that need no cut."""
    return t.joined_model(x[: -(x.shape[0] % t.count)])


def _cut_right(t: Towers, x: Any) -> Any:
    return t.joined_model(x[: x.shape[0] - x.shape[0] % t.count])


_LOST = r"Rows \d+.* were dropped"
_ALL = r"All \d+ rows were dropped"

FAULTS = (
    Fault(
        "V01-floor-slice",
        "remainder dropped by a floor slice",
        "keras-extras issue 7",
        slip(Towers.model, _floor_slice, Towers.joined_model, "shape", rows=uneven),
        _LOST,
        rule="C101",
    ),
    Fault(
        "V01-fewer-rows",
        "3 rows on 4 devices: every row is dropped",
        "keras-extras issue 11",
        slip(Towers.model, _floor_slice, Towers.joined_model, "shape", rows=lambda count: count - 1),
        _ALL,
        rule="C101",
    ),
    Fault(
        "V01-get-slice",
        "remainder dropped; sizes known only at run time",
        "keras-extras issue 7",
        slip(Towers.model, _get_slice, _sliced, "shape", rows=uneven, modes=_MODES),
        _LOST,
        rule="C101",
    ),
    Fault(
        "V01-loss",
        "remainder dropped inside a mean",
        "keras-extras issue 7",
        slip(
            lambda t, x: tf.reduce_mean(t.losses(x)),
            lambda t, x: _mean_of(t, x, x.shape[0] // t.count * t.count),
            lambda t, x: _mean_of(t, x, x.shape[0]),
            rows=lambda _: 11,
        ),
        r"Rows? \d+.* dropped",
        rule="C102",
    ),
    Fault(
        "V03-even-split",
        "tf.split refuses an uneven batch",
        "keras issue 11844",
        slip(Towers.model, _even_split, _uneven_split, "error", rows=uneven, modes=_MODES),
        r"evenly divide .*remainder\.py:",
    ),
    Fault(
        "V04-cut-by-zero",
        "x[:-cut] is empty if cut is 0",
        "public code",
        slip(Towers.model, _cut_to_a_multiple, _cut_right, "shape"),
        _ALL,
        rule="C101",
    ),
)
