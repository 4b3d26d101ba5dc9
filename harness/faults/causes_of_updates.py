"""Mistakes in what training steps do with variables, each of which another rule names."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.faults.fault import Fault
from harness.faults.samples import sample
from harness.faults.slips import Towers, slip, trained
from harness.lazy import tf


def _counted(t: Towers, x: Any) -> Any:
    t.total.assign_add(tf.reduce_sum(x, axis=0))
    return t.joined_model(x)


def _fading(t: Towers, x: Any) -> Any:
    """A total that fades, as the statistics of a normalisation do."""
    t.total.assign_add(tf.reduce_sum(x, axis=0))
    t.total.assign(0.9 * t.total)
    return t.model(x)


def _fading_of_shards(t: Towers, x: Any, *, fades: bool = True) -> Any:
    t.total.assign_add(t.sum(lambda part: tf.reduce_sum(part, axis=0), x))
    if fades:
        t.total.assign(0.9 * t.total)
    return t.joined_model(x)


class _Shifted(Towers):
    """With two variables of one shape."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self.shift = tf.Variable(sample(5, seed=9), name="shift")

    def model(self, x: Any) -> Any:
        return super().model(x) * (1.0 + self.shift)

    def slopes(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = self.loss(x)
        return tape.gradient(value, [self.b, self.shift])


def _shifted(t: _Shifted) -> list[Any]:
    return [t.b, t.shift]


def _shifted_step(t: _Shifted, x: Any, *, shards: bool = False, swapped: bool = False) -> Any:
    slopes = t.mean(t.slopes, x) if shards else t.slopes(x)
    for variable, slope in zip(_shifted(t), slopes[::-1] if swapped else slopes, strict=True):
        variable.assign_sub(0.1 * slope)
    return slopes


class _Averaged(Towers):
    """With a moving average of the bias."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self.average = tf.Variable(sample(5, seed=8), name="average")


def _averaged(t: _Averaged) -> list[Any]:
    return [t.b, t.average]


def _averaged_step(t: _Averaged, x: Any, *, shards: bool = False, early: bool = False) -> Any:
    value, (_, slope) = t.mean_step(x) if shards else t.step(x)
    if early:
        t.average.assign(0.9 * t.average + 0.1 * t.b)
    t.b.assign_sub(0.1 * slope)
    if not early:
        t.average.assign(0.9 * t.average + 0.1 * t.b)
    return value


class _Momentum(Towers):
    """With an optimizer that has momentum."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self.optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
        self.optimizer.build(trained(self))


def _momentum_step(t: _Momentum, x: Any, *, shards: bool = False, times: int = 1) -> Any:
    value, slopes = t.mean_step(x) if shards else t.step(x)
    for _ in range(times):
        t.optimizer.apply(slopes, trained(t))
    return value


class _Decaying(Towers):
    """With one optimizer that decays the weights, and one that does not."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self.decaying = tf.keras.optimizers.AdamW(0.1, weight_decay=0.05)
        self.plain = tf.keras.optimizers.Adam(0.1)
        for optimizer in (self.decaying, self.plain):
            optimizer.build(trained(self))


def _decaying_step(t: _Decaying, x: Any, *, shards: bool = False, decays: bool = True) -> Any:
    value, slopes = t.mean_step(x) if shards else t.step(x)
    (t.decaying if decays else t.plain).apply(slopes, trained(t))
    return value


def _updated(t: Towers, slopes: Any) -> None:
    for variable, slope in zip(trained(t), slopes, strict=True):
        variable.assign_sub(0.1 * slope)


def _plain_step(t: Towers, x: Any) -> Any:
    value, slopes = t.step(x)
    _updated(t, slopes)
    return value


def _step_of_means(t: Towers, x: Any) -> Any:
    value, slopes = t.mean_step(x)
    _updated(t, slopes)
    return value


def _in_turn(t: Towers, x: Any) -> Any:
    values = []
    for name, part in t.shards(x):
        with tf.device(name):
            value, slopes = t.step(part)
            _updated(t, [slope / t.count for slope in slopes])
            values.append(value)
    return tf.add_n(values) / t.count


class _Remembering(Towers):
    """With a table that has a row for each id."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self.table = tf.Variable(sample(2 * self.count, 5, seed=4), trainable=False, name="memory")


def _written(t: _Remembering, x: Any, ids: Any) -> Any:
    results = t.model(x)
    t.table.scatter_nd_update(ids[:, None], results)
    return results


def _written_of_shards(t: _Remembering, x: Any, ids: Any, *, rows: int | None = None) -> Any:
    results = t.joined_model(x)
    t.table.scatter_nd_update(ids[:rows, None], results[:rows])
    return results


FAULTS = (
    Fault(
        "S10-counted-besides",
        "a total that the reference does not update",
        "made up for this list",
        slip(Towers.model, _counted, Towers.joined_model, variables=lambda t: [t.total]),
        "total is updated, but the reference",
        rule="C204",
    ),
    Fault(
        "S10-update-missing",
        "one of two updates is missing",
        "made up for this list",
        slip(_fading, partial(_fading_of_shards, fades=False), _fading_of_shards, variables=lambda t: [t.total]),
        "is updated once instead of twice",
        rule="C204",
    ),
    Fault(
        "S10-updates-swapped",
        "two variables get each other's updates",
        "made up for this list",
        slip(
            _shifted_step,
            partial(_shifted_step, shards=True, swapped=True),
            partial(_shifted_step, shards=True),
            make=_Shifted,
            variables=_shifted,
        ),
        "gets the update of variable",
        rule="C404",
    ),
    Fault(
        "S10-average-too-early",
        "an average of the weights is updated before them",
        "made up for this list",
        slip(
            _averaged_step,
            partial(_averaged_step, shards=True, early=True),
            partial(_averaged_step, shards=True),
            make=_Averaged,
            variables=_averaged,
        ),
        "reads the value that .* before",
        rule="C210",
    ),
    Fault(
        "S10-applied-again",
        "the optimizer applies the gradients twice",
        "made up for this list",
        slip(
            _momentum_step,
            partial(_momentum_step, shards=True, times=2),
            partial(_momentum_step, shards=True),
            make=_Momentum,
            variables=trained,
        ),
        "applies the same gradients 2 times",
        rule="C204",
    ),
    Fault(
        "S10-decay-missing",
        "the optimizer decays no weights",
        "made up for this list",
        slip(
            _decaying_step,
            partial(_decaying_step, shards=True, decays=False),
            partial(_decaying_step, shards=True),
            make=_Decaying,
            variables=trained,
        ),
        "weight decay of 0.05 is missing",
        rule="C402",
    ),
    Fault(
        "S10-shards-in-turn",
        "each shard's step begins where the last one's ended",
        "made up for this list",
        slip(_plain_step, _in_turn, _step_of_means, variables=trained),
        "ran once for each of the <n> shards, one after the other",
        rule="C110",
    ),
    Fault(
        "S10-row-not-written",
        "the last row is not written to a table",
        "made up for this list",
        slip(
            _written,
            partial(_written_of_shards, rows=-1),
            _written_of_shards,
            make=_Remembering,
            inputs=lambda count: {"x": sample(2 * count, 3), "ids": np.arange(2 * count, dtype=np.int32)},
            variables=lambda t: [t.table],
        ),
        r"row \d+ of variable memory keeps its old value",
        rule="C117",
    ),
)
