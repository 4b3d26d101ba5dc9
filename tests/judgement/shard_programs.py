"""The parts of programs that share out a batch: the program, small layers, and ways to cut the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.faults.samples import sample

_ROWS = 10


@dataclass(frozen=True)
class Program:
    """What ``harness.verify`` takes."""

    parallel: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Mapping[str, Any]
    modes: tuple[str, ...] = ("eager", "graph")
    #: How many of the devices it uses.
    devices: int = 4


def layers() -> tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]:
    """Two dense layers from 6 to 6 features, and both together."""
    import tensorflow as tf

    one, two = tf.Variable(sample(6, 6, seed=1)), tf.Variable(sample(6, 6, seed=2))

    def first(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, one))

    def second(x: Any) -> Any:
        return tf.nn.softplus(tf.matmul(x, two))

    return first, second, lambda x: second(first(x))


def on_shards(devices: Devices, fn: Callable[[Any], Any], x: Any) -> list[Any]:
    """``fn`` of an equal part of the rows on each device."""
    import tensorflow as tf

    found = []
    for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
        with tf.device(device.name):
            found.append(fn(part))
    return found


def by_split(x: Any, sizes: list[int]) -> list[Any]:
    import tensorflow as tf

    return list(tf.split(x, sizes))


def by_slices(x: Any, sizes: list[int]) -> list[Any]:
    ends = np.cumsum(sizes)
    return [x[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def by_gather(x: Any, sizes: list[int]) -> list[Any]:
    import tensorflow as tf

    ends = np.cumsum(sizes)
    return [tf.gather(x, list(range(end - size, end))) for end, size in zip(ends, sizes, strict=True)]


def by_masks(x: Any, sizes: list[int]) -> list[Any]:
    import tensorflow as tf

    owner = np.repeat(np.arange(len(sizes)), sizes)
    return [tf.boolean_mask(x, owner == shard) for shard in range(len(sizes))]


def by_reshape(x: Any, sizes: list[int]) -> list[Any]:
    import tensorflow as tf

    whole = tf.reshape(x, [len(sizes), -1, x.shape[1]])
    return [whole[shard] for shard in range(len(sizes))]


def by_unstack(x: Any, sizes: list[int]) -> list[Any]:
    import tensorflow as tf

    return list(tf.unstack(tf.reshape(x, [len(sizes), -1, x.shape[1]])))


CUTS = (by_split, by_slices, by_gather, by_masks, by_reshape, by_unstack)


def cut_by(cut: Callable[[Any, list[int]], list[Any]], sizes: list[int]) -> Callable[[Devices, bool], Program]:
    """The second layer stands in a hard-coded scope."""

    def make(devices: Devices, wrong: bool) -> Program:
        import tensorflow as tf

        first, second, both = layers()

        def parallel(x: Any) -> Any:
            outputs = []
            for device, part in zip(devices, cut(x, sizes), strict=True):
                with tf.device(device.name):
                    hidden = first(part)
                with tf.device(devices[0].name if wrong else device.name):
                    outputs.append(second(hidden))
            return tf.concat(outputs, 0)

        return Program(parallel, both, {"x": sample(sum(sizes), 6)})

    return make
