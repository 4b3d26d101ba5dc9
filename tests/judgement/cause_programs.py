"""Faulty programs, with their references and the words that must name the cause."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from harness import Devices

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(10, 3)).astype(np.float32)
EVEN = RANDOM.normal(size=(8, 3)).astype(np.float32)
WEIGHTS = RANDOM.normal(size=(3, 4)).astype(np.float32)

Fn = Callable[..., Any]


@functools.cache
def shared() -> Any:
    """The variable of all programs; TensorFlow must not start before the devices are configured."""
    return tf.Variable(WEIGHTS, name="weights")


def dense(x: Any) -> Any:
    return tf.tanh(tf.matmul(x, shared()))


def sizes_of(rows: int, count: int = 4) -> list[int]:
    return [rows // count + (index < rows % count) for index in range(count)]


def towers(devices: Devices, fn: Fn, x: Any, sizes: Sequence[int] | None = None) -> list[Any]:
    parts = []
    for device, part in zip(devices, tf.split(x, sizes or sizes_of(x.shape[0])), strict=True):
        with tf.device(device.name):
            parts.append(fn(part))
    return parts


def joined(devices: Devices, fn: Fn, x: Any) -> Any:
    return tf.concat(towers(devices, fn, x), axis=0)


def loss(x: Any) -> Any:
    return tf.reduce_mean(tf.square(dense(x)))


def step(fn: Fn, x: Any) -> Any:
    with tf.GradientTape() as tape:
        value = fn(x)
    return value, tape.gradient(value, shared())


def batch_norm(x: Any) -> Any:
    return (x - tf.reduce_mean(x, axis=0)) / (tf.math.reduce_std(x, axis=0) + 0.1)


def dropped(devices: Devices, x: Any) -> Any:
    size = x.shape[0] // 4
    parts = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            parts.append(dense(x[index * size : (index + 1) * size]))
    return tf.concat(parts, axis=0)


def doubled(devices: Devices, x: Any) -> Any:
    parts = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            parts.append(dense(x[2 * max(index - 1, 0) : 2 * max(index - 1, 0) + 2]))
    return tf.concat(parts, axis=0)


def stopped(part: Any) -> Any:
    return tf.tanh(tf.matmul(part, tf.stop_gradient(shared())))


def half(part: Any) -> Any:
    return tf.tanh(tf.cast(tf.matmul(tf.cast(part, tf.float16), tf.cast(shared(), tf.float16)), tf.float32))


def scaled(devices: Devices, x: Any, number: int, change: Fn) -> Any:
    parts = towers(devices, dense, x)
    parts[number] = change(parts[number])
    return tf.concat(parts, axis=0)


def swapped(devices: Devices, x: Any) -> Any:
    mean, largest = tf.reduce_mean(joined(devices, dense, x)), tf.reduce_max(joined(devices, dense, x))
    return {"mean": largest, "largest": mean}


def mean_of(fn: Fn) -> Fn:
    return lambda devices, x: tf.add_n(towers(devices, fn, x)) / 4.0


def summed_step(devices: Devices, x: Any) -> Any:
    values, gradients = zip(*towers(devices, lambda part: step(loss, part), x), strict=True)
    return tf.add_n(list(values)) / 4.0, tf.add_n(list(gradients))


def penalty(x: Any) -> Any:
    return tf.reduce_mean(tf.square(dense(x))) + 0.1 * tf.nn.l2_loss(shared())


def summed_penalty(x: Any) -> Any:
    return tf.reduce_sum(tf.square(dense(x))) + 0.1 * tf.nn.l2_loss(shared())


def penalty_sum(devices: Devices, x: Any) -> Any:
    rows = float(4 * x.shape[0])
    tower = lambda part: tf.reduce_sum(tf.square(dense(part))) / rows + 0.1 * tf.nn.l2_loss(shared())  # noqa: E731
    return tf.add_n(towers(devices, tower, x))


def padded(devices: Devices, x: Any) -> Any:
    return joined(devices, dense, tf.pad(x, [[0, 2], [0, 0]]))


OLD = RANDOM.normal(size=(3, 4)).astype(np.float32)


#: Name, faulty program, reference, batch, words of the first line. Nobody named these beforehand; each stands for many.
CASES: list[tuple[str, Fn, Fn, Any, str]] = [
    ("dropped", dropped, dense, X, r"Rows 8 and 9 of 10 were dropped: the batch is split into 4 equal parts"),
    ("doubled", doubled, dense, EVEN, r"Rows 0 and 1|Rows 0 to 1"),
    ("reversed", lambda d, x: tf.reverse(joined(d, dense, x), [0]), dense, X, r"10 rows are in reverse order"),
    ("shifted", lambda d, x: tf.roll(joined(d, dense, x), -1, 0), dense, X, r"rows are shifted by 1"),
    (
        "shards in another order",
        lambda d, x: tf.concat(towers(d, dense, x)[::-1], 0),
        dense,
        EVEN,
        r"shards are joined in a different order than the batch was split: shards 3, 2, 1 and 0",
    ),
    (
        "join along features",
        lambda d, x: tf.concat(towers(d, dense, x), 1),
        dense,
        EVEN,
        r"joined along axis 1, but the batch is split along axis 0",
    ),
    ("stacked", lambda d, x: tf.stack(towers(d, dense, x)), dense, EVEN, r"stacked along a new axis 0"),
    ("not row-wise", lambda d, x: joined(d, batch_norm, x), batch_norm, X, r"not row-wise"),
    (
        "softmax over rows",
        lambda d, x: joined(d, lambda p: tf.nn.softmax(p, axis=0), x),
        lambda x: tf.nn.softmax(x, axis=0),
        X,
        r"not row-wise",
    ),
    ("mean of means", mean_of(loss), loss, X, r"mean of means of uneven shards: 4 parts of 3, 3, 2 and 2 rows"),
    (
        "mean of roots",
        mean_of(lambda p: tf.sqrt(loss(p))),
        lambda x: tf.sqrt(loss(x)),
        EVEN,
        r"averaged over shards, but in the reference it is not a mean over rows",
    ),
    ("sum of means", lambda d, x: tf.add_n(towers(d, loss, x)), loss, EVEN, r"4 times too large"),
    (
        "mean of sums",
        mean_of(lambda p: tf.reduce_sum(dense(p))),
        lambda x: tf.reduce_sum(dense(x)),
        X,
        r"4 times too small",
    ),
    ("gradients added up", summed_step, lambda x: step(loss, x), EVEN, r"4 times too large"),
    (
        "one shard lost",
        lambda d, x: tf.add_n(towers(d, lambda p: tf.reduce_sum(dense(p)), x)[:3]),
        lambda x: tf.reduce_sum(dense(x)),
        X,
        r"part of shard 3 .* is missing",
    ),
    ("one shard alone", lambda d, x: towers(d, loss, x)[2], loss, X, r"includes only shard 2 .*; the parts of"),
    ("zeros of one", lambda d, x: scaled(d, x, 1, tf.zeros_like), dense, EVEN, r"Rows 2 and 3, those of shard 1"),
    (
        "one shard twice as large",
        lambda d, x: scaled(d, x, 3, lambda p: 2.0 * p),
        dense,
        EVEN,
        r"Rows 6 and 7, those of shard 3 .* 2 times",
    ),
    (
        "a neighbour's rows",
        lambda d, x: tf.concat([*towers(d, dense, x)[:3], towers(d, dense, x)[2]], 0),
        dense,
        EVEN,
        r"Rows 4 and 5 take the place of rows 6 and 7",
    ),
    ("everything doubled", lambda d, x: 2.0 * joined(d, dense, x), dense, X, r"2 times"),
    ("half precision", lambda d, x: joined(d, half, x), dense, X, r"computes in float16 instead of float32"),
    ("an offset", lambda d, x: joined(d, dense, x) + 0.25, dense, X, r"off by 0.25"),
    (
        "outputs swapped",
        swapped,
        lambda x: {"mean": tf.reduce_mean(dense(x)), "largest": tf.reduce_max(dense(x))},
        X,
        r"output\['largest'\] and output\['mean'\] are in the wrong order",
    ),
    (
        "padded before means of towers",
        lambda d, x: tf.add_n(towers(d, loss, tf.pad(x, [[0, 2], [0, 0]]))) / 4.0,
        loss,
        X,
        r"batch of 10 rows is padded to 12 with zeros, and the added rows count",
    ),
    ("padded", padded, dense, X, r"padded to 12 with zeros, and the added rows count in output"),
    (
        "padded before a mean",
        lambda d, x: tf.reduce_mean(padded(d, x)),
        lambda x: tf.reduce_mean(dense(x)),
        X,
        r"batch of 10 rows is padded to 12 with zeros, and the added rows count",
    ),
    ("half", lambda d, x: 0.5 * joined(d, dense, x), dense, X, r"0.5 times the single-device result"),
    (
        "one shard twice",
        lambda d, x: tf.add_n([*towers(d, lambda p: tf.reduce_sum(dense(p)), x), tf.reduce_sum(dense(x[2:4]))]),
        lambda x: tf.reduce_sum(dense(x)),
        EVEN,
        r"part of shard 1 .* is counted twice in output",
    ),
    (
        "a largest index",
        lambda d, x: tf.reduce_max(tf.stack(towers(d, lambda p: tf.argmax(p, 0), x)), 0),
        lambda x: tf.argmax(x, 0),
        X,
        r"Output is the maximum over the shards' results",
    ),
    (
        "old weights of one",
        lambda d, x: scaled(d, x, 2, lambda p: tf.tanh(tf.matmul(x[4:6], OLD)) + 0.0 * p),
        dense,
        EVEN,
        r"Only rows 4 and 5, those of shard 2 \([CG]PU:2\), differ",
    ),
    (
        "another activation",
        lambda d, x: joined(d, lambda p: tf.nn.softplus(tf.matmul(p, shared())), x),
        dense,
        X,
        r"first op whose result differs from the reference's is Softplus: .*; the reference runs Tanh \(.*\) there",
    ),
    (
        "no activation",
        lambda d, x: tf.exp(joined(d, lambda p: tf.matmul(p, shared()), x)),
        lambda x: tf.exp(dense(x)),
        X,
        r"first op whose result differs from the reference's is Exp on .*; the reference runs Tanh \(.*\) there",
    ),
    (
        "no penalty",
        lambda d, x: tf.add_n(towers(d, loss, x)) / 4.0,
        penalty,
        EVEN,
        r"a term that depends on variables alone, such as a regulariser, is missing",
    ),
    ("a penalty for each tower", penalty_sum, penalty, EVEN, r"regulariser, is counted 4 times"),
    (
        "a penalty in each sum",
        lambda d, x: tf.add_n(towers(d, summed_penalty, x)),
        summed_penalty,
        EVEN,
        r"regulariser, is counted 4 times",
    ),
]
