"""Small slips in a program of towers, each a function of the towers, beside the same done right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, kinds
from harness.faults.samples import on_each, sample, shares
from harness.lazy import tf


class Towers:
    """A small model on the devices, one tower each: ``tanh(x @ w + b)`` from 3 to 5 features, on ``names``."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.names = devices.names
        self.count = len(devices)
        self.w = tf.Variable(sample(3, 5, seed=1), name="weights")
        self.b = tf.Variable(sample(5, seed=2), name="bias")
        #: Is not trained.
        self.total = tf.Variable(sample(3, seed=3), trainable=False, name="total")

    def model(self, x: Any) -> Any:
        """Return float32 [rows, 5]."""
        return tf.tanh(tf.matmul(x, self.w) + self.b)

    def loss(self, x: Any) -> Any:
        """Return the mean over the rows of the squared results."""
        return tf.reduce_mean(tf.square(self.model(x)))

    def step(self, x: Any, loss: Callable[[Any], Any] | None = None) -> tuple[Any, list[Any]]:
        """Return the loss and its gradients with respect to the weights and the bias."""
        with tf.GradientTape() as tape:
            value = (loss or self.loss)(x)
        return value, tape.gradient(value, [self.w, self.b])

    def each(self, fn: Callable[..., Any], *batches: Any) -> list[Any]:
        """Return ``fn`` of each shard of the batches, in the scope of its device."""
        sizes = shares(batches[0].shape[0], self.count)
        return on_each(self.names, fn, *(tf.split(batch, sizes) for batch in batches))

    def joined(self, fn: Callable[..., Any], *batches: Any) -> Any:
        """Return ``fn`` of each shard, concatenated."""
        return tf.concat(self.each(fn, *batches), axis=0)

    def mean(self, fn: Callable[..., Any], *batches: Any) -> Any:
        """Return the mean over the shards of ``fn``, a nest of tensors."""
        return tf.nest.map_structure(lambda *parts: tf.add_n(parts) / self.count, *self.each(fn, *batches))

    def sum(self, fn: Callable[..., Any], *batches: Any) -> Any:
        """Return the sum over the shards of ``fn``, a nest of tensors."""
        return tf.nest.map_structure(lambda *parts: tf.add_n(parts), *self.each(fn, *batches))


Program = Callable[..., Any]
#: What may follow where a result is lost: a graph leaves out the work behind it.
UNUSED = kinds("unused-device")


def slip(
    reference: Program,
    faulty: Program,
    right: Program,
    *found: str,
    rows: Callable[[int], int] = lambda count: 2 * count,
    inputs: Callable[[int], Mapping[str, Any]] | None = None,
    variables: Callable[[Towers], Sequence[Any]] = lambda _: (),
    **options: Any,
) -> Callable[[Devices], Case]:
    """Return what plants the program ``faulty``, whose twin is ``right``: functions of the towers and of the inputs.

    ``found`` are the kinds of finding, by default a wrong value. The input is ``x`` float32 [rows, 3], where ``rows``
    is a function of the number of towers, unless ``inputs`` makes others. ``options`` are those of ``Case``.
    """

    def plant(devices: Devices) -> Case:
        towers = Towers(devices)
        given = inputs(towers.count) if inputs else {"x": sample(rows(towers.count), 3)}
        one, two, three = (partial(fn, towers) for fn in (faulty, right, reference))
        return Case(one, two, three, given, kinds(*(found or ("value",))), variables(towers), **options)

    return plant
