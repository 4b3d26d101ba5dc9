"""Small slips in a program of towers, each a function of the towers, beside the same done right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Program, kinds
from harness.faults.samples import on_each, sample, shares, uneven
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

    def losses(self, x: Any) -> Any:
        """Return the sum of the squared results of each row: float32 [rows]."""
        return tf.reduce_sum(tf.square(self.model(x)), axis=1)

    def split(self, x: Any) -> Any:
        """Return the shard of each tower; their numbers of rows differ by at most one."""
        return tf.split(x, shares(x.shape[0], self.count))

    def shards(self, x: Any) -> list[tuple[str, Any]]:
        """Return the name of each device with its shard."""
        return list(zip(self.names, self.split(x), strict=True))

    def each(self, fn: Callable[..., Any], *batches: Any) -> list[Any]:
        """Return ``fn`` of each shard of the batches, in the scope of its device."""
        return on_each(self.names, fn, *map(self.split, batches))

    def joined(self, fn: Callable[..., Any], *batches: Any) -> Any:
        """Return ``fn`` of each shard, concatenated."""
        return tf.concat(self.each(fn, *batches), axis=0)

    def joined_model(self, x: Any) -> Any:
        """Return the model of each shard, concatenated."""
        return self.joined(self.model, x)

    def mean(self, fn: Callable[..., Any], *batches: Any) -> Any:
        """Return the mean over the shards of ``fn``, a nest of tensors."""
        return tf.nest.map_structure(lambda *parts: tf.add_n(parts) / self.count, *self.each(fn, *batches))

    def sum(self, fn: Callable[..., Any], *batches: Any) -> Any:
        """Return the sum over the shards of ``fn``, a nest of tensors."""
        return tf.nest.map_structure(lambda *parts: tf.add_n(parts), *self.each(fn, *batches))

    def mean_loss(self, x: Any) -> Any:
        """Return the mean over the shards of the loss."""
        return self.mean(self.loss, x)

    def mean_step(self, x: Any) -> Any:
        """Return the means over the shards of the loss and its gradients."""
        return self.mean(self.step, x)

    def weighted(self, fn: Callable[[Any], Any], x: Any) -> Any:
        """Return the mean over the rows of ``fn``, a nest of means over the rows of a shard."""
        rows = x.shape[0]
        return self.sum(lambda part: tf.nest.map_structure(lambda each: each * (part.shape[0] / rows), fn(part)), x)


#: What may follow where a result is lost: a graph leaves out the work behind it.
UNUSED = kinds("unused-device")


def slip(
    reference: Program,
    faulty: Program,
    right: Program,
    *found: str,
    rows: Callable[[int], int] = lambda count: 2 * count,
    inputs: Callable[[int], Mapping[str, Any]] | None = None,
    variables: Callable[[Any], Sequence[Any]] = lambda _: (),
    make: Callable[[Devices], Any] = Towers,
    **options: Any,
) -> Callable[[Devices], Case]:
    """Return what plants the program ``faulty``, whose twin is ``right``: functions of the towers and of the inputs.

    ``found`` are the kinds of finding, by default a wrong value. The input is ``x`` float32 [rows, 3], where ``rows``
    is a function of the number of towers, unless ``inputs`` makes others. ``make`` makes what the programs take
    in place of the towers. ``options`` are those of ``Case``.
    """

    def plant(devices: Devices) -> Case:
        towers, count = make(devices), len(devices)
        given = inputs(count) if inputs else {"x": sample(rows(count), 3)}
        one, two, three = (partial(fn, towers) for fn in (faulty, right, reference))
        return Case(one, two, three, given, kinds(*(found or ("value",))), variables(towers), **options)

    return plant


def trained(t: Towers) -> list[Any]:
    """Return the variables that are trained."""
    return [t.w, t.b]


def second(t: Towers, hidden: Any) -> Any:
    """Return a second layer of the results of the model: float32 [rows, 5]."""
    return tf.nn.softplus(tf.matmul(hidden, tf.matmul(t.w, t.w, transpose_a=True)))


def two_layers(t: Towers, x: Any) -> Any:
    """Return both layers in sequence."""
    return second(t, t.model(x))


def elsewhere(
    tower: Callable[[Towers, Any, str | None], Any],
    place: Callable[[Towers, int], str | None] = lambda t, _: t.names[0],
    *,
    reference: Program = two_layers,
    **options: Any,
) -> Callable[[Devices], Case]:
    """Return what plants towers of which a part is in the scope of ``place``; in the twin it is in the tower's own.

    ``tower`` is a function of the towers, the shard, and the name of the device for that part, in the scope of the
    shard's device. ``place`` is a function of the towers and of the number of the shard.
    """

    def program(t: Towers, x: Any, place: Callable[[Towers, int], str | None]) -> Any:
        places = [place(t, index) for index in range(t.count)]
        return tf.concat(on_each(t.names, partial(tower, t), t.split(x), places), axis=0)

    own = partial(program, place=lambda t, index: t.names[index])
    return slip(reference, partial(program, place=place), own, "op-placement", rows=uneven, **options)
