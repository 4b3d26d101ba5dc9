"""Mistakes in what towers compute, each of which another rule names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.faults.fault import Fault
from harness.faults.samples import integers, on_each, sample
from harness.faults.slips import Towers, slip, two_layers
from harness.judgement.runs import soft_placement
from harness.lazy import tf
from harness.parallel.data import make_parallel


def _waves(x: Any) -> Any:
    return tf.sin(2.0 * x)


def _members(_: Towers, x: Any) -> dict[str, Any]:
    """Two members of an ensemble, each a function of the batch."""
    return {"first": _waves(x), "second": tf.nn.softplus(x - 1.0)}


def _of_shards(t: Towers, x: Any, *, in_a_row: bool = False) -> dict[str, Any]:
    first = t.joined(_waves, x)
    return {"first": first, "second": t.joined(lambda part: tf.nn.softplus(part - 1.0), first if in_a_row else x)}


def _with_skip(t: Towers, x: Any) -> Any:
    return t.model(x) + tf.sin(tf.matmul(x, t.w))


#: Rows of each part of the planted table.
_ROWS = 4


class _Tables(Towers):
    """A table in blocks of rows, one on each device."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        rows = sample(_ROWS * self.count, 3)
        self.whole = tf.Variable(rows)
        self.parts = on_each(self.names, tf.Variable, np.split(rows, self.count))

    def looked_up(self, ids: Any, part: Any, row: Any) -> Any:
        """Return the sum of what each part has for the ids that are in it."""

        def of(number: int, table: Any) -> Any:
            return tf.where((part == number)[:, None], tf.gather(table, row), tf.zeros([len(ids), 3]))

        return tf.add_n(on_each(self.names, of, range(self.count), self.parts))


def _total(dataset: Any) -> Any:
    return tf.add_n([tf.reduce_sum(tf.tanh(element)) for element in dataset])


def _of_parts(t: Towers, values: Any, index: Callable[[int], int]) -> Any:
    def part(number: int) -> Any:
        return _total(tf.data.Dataset.from_tensor_slices(values).shard(t.count, index(number)))

    return tf.add_n(on_each(t.names, part, range(t.count)))


def _scaled(t: Towers, x: Any, sizes: Any) -> Any:
    return t.model(x) * tf.cast(sizes, tf.float32)[:, None]


def _scaled_of_shards(t: Towers, x: Any, sizes: Any, *, first: int = 0) -> Any:
    parts = t.split(sizes)
    return tf.concat(on_each(t.names, partial(_scaled, t), t.split(x), parts[first:] + parts[:first]), axis=0)


def _running_sums(t: Towers, x: Any, carries: Callable[[Any, Any], Any]) -> Any:
    made, carry = [], tf.zeros([3])
    for name, part in t.shards(x):
        with tf.device(name):
            made.append(tf.cumsum(part) + carry)
            carry = carries(carry, made[-1])
    return tf.concat(made, axis=0)


def _sums_over_rows(t: Towers, x: Any) -> Any:
    return tf.reduce_sum(tf.square(t.model(x)), axis=0)


def _squares(t: Towers, x: Any) -> Any:
    return tf.tanh(0.1 * _sums_over_rows(t, x))


def _squares_of_shards(t: Towers, x: Any, *, slips: bool = False) -> Any:
    parts = t.each(partial(_sums_over_rows, t), x)
    return tf.tanh(0.1 * tf.add_n([*parts[:-1], parts[0 if slips else -1]]))


def _sums_of_squares(t: Towers, x: Any) -> Any:
    return tf.reduce_sum(tf.square(t.model(x)), axis=0)


def _total_of_sums(t: Towers, x: Any, *, again: int = 0) -> Any:
    parts = t.each(partial(_sums_of_squares, t), x)
    return tf.add_n([*parts, *parts[:again]])


def _doubled(t: Towers, x: Any, *, twice: bool = False) -> Any:
    results = t.model(x)
    return tf.where(x[:, :1] > 0.0, 2.0 * results - tf.stop_gradient(results), results) if twice else results


FAULTS = (
    Fault(
        "V34-constant-added",
        "a constant added in each tower",
        "made up for this list",
        slip(Towers.model, lambda t, x: t.joined(lambda part: t.model(part) + 0.25, x), Towers.joined_model),
        "is off by 0.25",
        rule="C412",
    ),
    Fault(
        "V34-absolute-values",
        "absolute values in each tower",
        "made up for this list",
        slip(Towers.model, lambda t, x: t.joined(lambda part: tf.abs(t.model(part)), x), Towers.joined_model),
        "opposite sign",
        rule="C412",
    ),
    Fault(
        "V34-clipped",
        "the results of each tower are clipped",
        "made up for this list",
        slip(
            Towers.model,
            lambda t, x: t.joined(lambda part: tf.clip_by_value(t.model(part), -0.5, 0.5), x),
            lambda t, x: t.joined(lambda part: tf.clip_by_value(t.model(part), -1.0, 1.0), x),
        ),
        "first op whose result differs .* is Minimum: its inputs equal the reference's",
        rule="C900",
    ),
    Fault(
        "V34-last-layer-left-out",
        "the last layer is left out in each tower",
        "made up for this list",
        slip(two_layers, Towers.joined_model, lambda t, x: t.joined(partial(two_layers, t), x)),
        "the ops after it in the reference are left out",
        rule="C411",
    ),
    Fault(
        "V34-in-a-row",
        "two members run in sequence",
        "made up for this list",
        slip(_members, partial(_of_shards, in_a_row=True), _of_shards),
        "computed from .* instead of from x",
        rule="C409",
    ),
    Fault(
        "V34-skip-left-out",
        "the skip connection is left out in each tower",
        "made up for this list",
        slip(_with_skip, Towers.joined_model, lambda t, x: t.joined(partial(_with_skip, t), x)),
        "an addend is left out",
        rule="C407",
    ),
    Fault(
        "V34-bias-not-read",
        "the bias is read nowhere",
        "made up for this list",
        slip(Towers.model, lambda t, x: t.joined(lambda part: tf.tanh(tf.matmul(part, t.w)), x), Towers.joined_model),
        "bias is never read",
        rule="C210",
    ),
    Fault(
        "V34-blocks-by-modulo",
        "a table in blocks, looked up as if each part had every n-th row",
        "made up for this list",
        slip(
            lambda t, ids: tf.gather(t.whole, ids),
            lambda t, ids: t.looked_up(ids, ids % t.count, ids // t.count),
            lambda t, ids: t.looked_up(ids, ids // _ROWS, ids % _ROWS),
            make=_Tables,
            inputs=lambda count: {"ids": integers(_ROWS * count, 9).astype(np.int32)},
        ),
        "an id is looked up in part",
        devices_needed=3,
        rule="C107",
    ),
    Fault(
        "V34-same-part-of-a-dataset",
        "each device reads the first part of a dataset",
        "made up for this list",
        slip(
            lambda _, values: _total(tf.data.Dataset.from_tensor_slices(values)),
            lambda t, values: _of_parts(t, values, lambda _: 0),
            lambda t, values: _of_parts(t, values, lambda number: number),
            inputs=lambda count: {"values": sample(3 * count, 2)},
            modes=("eager",),
            surroundings=soft_placement,
        ),
        "reads the parts 0 of <n>",
        rule="C115",
    ),
    Fault(
        "V34-weights-of-the-next",
        "each tower gets the weights of the next one's rows",
        "made up for this list",
        slip(
            _scaled,
            partial(_scaled_of_shards, first=1),
            _scaled_of_shards,
            inputs=lambda count: {"x": sample(2 * count, 3), "sizes": 1 + np.arange(2 * count, dtype=np.int32)},
        ),
        "every shard is given the rows of sizes that belong to another shard",
        rule="C409",
    ),
    Fault(
        "V34-carry-of-one-shard",
        "the carry of a running sum is that of one shard",
        "made up for this list",
        slip(
            lambda _, x: tf.cumsum(x),
            partial(_running_sums, carries=lambda before, sums: sums[-1] - before),
            partial(_running_sums, carries=lambda _, sums: sums[-1]),
        ),
        "it is made from shard 1 alone",
        devices_needed=3,
        rule="C414",
    ),
    Fault(
        "V34-part-twice",
        "a part is added up twice, and another one left out",
        "made up for this list",
        slip(_squares, partial(_squares_of_shards, slips=True), _squares_of_shards),
        "adds the result of .* twice, and leaves out",
        rule="C114",
    ),
    Fault(
        "V34-two-parts-twice",
        "two parts of the batch count twice",
        "made up for this list",
        slip(
            _sums_of_squares,
            partial(_total_of_sums, again=2),
            _total_of_sums,
            rows=lambda count: 6 * count,
        ),
        "count 2 times as much",
        devices_needed=3,
        rule="C109",
    ),
    Fault(
        "G15-rows-count-twice",
        "the gradients of some rows count twice",
        "made up for this list",
        slip(
            Towers.model,
            lambda t, x: make_parallel(partial(_doubled, t, twice=True), t.devices)(x=x),
            lambda t, x: make_parallel(partial(_doubled, t), t.devices)(x=x),
            "gradient",
            gradients=True,
        ),
        "gradients of .* are 2 times",
        rule="C109",
    ),
)
