"""Pairs of programs that compute the same for every input: a parallel one and its reference. All have to be proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from harness.parallel.data import make_parallel
from harness.parallel.gradients import colocate_gradients

Make = Callable[[Any], "Pair"]


@dataclass
class Pair:
    """Two programs and what ``prove`` takes with them."""

    parallel: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: dict[str, Any]
    variables: list[Any] = field(default_factory=list)
    gradients: bool = False
    same: list[Any] = field(default_factory=list)


def array(*shape: int, seed: int = 0, low: float = -1.0) -> Any:
    """Numbers between ``low`` and 1."""
    return np.random.default_rng(seed).uniform(low, 1.0, shape).astype("float32")


def variable(*shape: int, seed: int = 0, name: str = "w") -> Any:
    return tf.Variable(array(*shape, seed=seed) / 2, name=name)


def sharded(model: Callable[..., Any], devices: Any, sizes: Any = None, axis: int = 0) -> Callable[..., Any]:
    """The model on each of the shards, the results joined."""

    def parallel(**inputs: Any) -> Any:
        shards = {name: tf.split(x, sizes or len(devices), axis) for name, x in inputs.items()}
        results = []
        for i, device in zip(range(len(next(iter(shards.values())))), devices, strict=False):
            with tf.device(device.name):
                results.append(model(**{name: parts[i] for name, parts in shards.items()}))
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, axis), *results)

    return parallel


def summed(loss: Callable[..., Any], devices: Any, sizes: Any = None) -> Callable[..., Any]:
    """The sum of a loss over the shards."""

    def parallel(**inputs: Any) -> Any:
        shards = {name: tf.split(x, sizes or len(devices)) for name, x in inputs.items()}
        total: Any = 0.0
        for i, device in zip(range(len(next(iter(shards.values())))), devices, strict=False):
            with tf.device(device.name):
                total += loss(**{name: parts[i] for name, parts in shards.items()})
        return total

    return parallel


PAIRS: dict[str, Make] = {}


def pair(make: Make) -> Make:
    PAIRS[make.__name__] = make
    return make


def _row_wise(name: str, fn: Callable[..., Any], *shape: int, low: float = -1.0, sizes: Any = None) -> None:
    """Two pairs: shards by hand, uneven, with gradients; and ``make_parallel``."""

    def by_hand(devices: Any) -> Pair:
        w = variable(shape[-1], 3)
        model = lambda x: fn(x, w)
        return Pair(sharded(model, devices, sizes), model, {"x": array(*shape, low=low)}, [w], True)

    def made(devices: Any) -> Pair:
        w = variable(shape[-1], 3)
        model = lambda x: fn(x, w)
        return Pair(make_parallel(model, devices), model, {"x": array(*shape, low=low)}, [w], True)

    PAIRS[f"{name}, by hand"] = by_hand
    PAIRS[f"{name}, make_parallel"] = made


_row_wise("dense", lambda x, w: tf.tanh(x @ w), 8, 5)
_row_wise("two layers", lambda x, w: tf.nn.relu(tf.nn.softmax(tf.nn.elu(x @ w) @ tf.transpose(w)) @ w), 8, 5)
_row_wise(
    "layer norm",
    lambda x, w: (
        (x - tf.reduce_mean(x, 1, keepdims=True)) / tf.sqrt(tf.math.reduce_variance(x, 1, keepdims=True) + 1e-3) @ w
    ),
    7,
    5,
    sizes=[1, 2, 4],
)
_row_wise("logarithms", lambda x, w: tf.math.log(x) @ w + tf.sqrt(x) @ w, 8, 5, low=0.1)
_row_wise("attention", lambda x, w: tf.nn.softmax(x @ tf.transpose(x, [0, 2, 1])) @ x @ w, 6, 4, 5, sizes=[3, 3])
_row_wise("columns of two kinds", lambda x, w: tf.concat([x[:, :4] ** 2, tf.exp(x[:, 4:])], 1) @ w, 8, 5)
_row_wise(
    "a matrix for each row",
    lambda x, w: tf.linalg.solve(x @ tf.transpose(x, [0, 2, 1]) + 9.0 * tf.eye(4), x) @ w,
    6,
    4,
    5,
    sizes=[2, 4],
)
_row_wise("spectra", lambda x, w: tf.signal.irfft(tf.signal.rfft(x) * 0.5)[:, :5] @ w[:5], 8, 6)
_row_wise(
    "heads",
    lambda x, w: (
        tf.reshape(tf.transpose(tf.reshape(x, [-1, 2, 2, 5]), [0, 2, 1, 3]), [-1, 2, 10]) @ tf.concat([w, w], 0)
    ),
    6,
    4,
    5,
    sizes=[1, 5],
)
_row_wise(
    "dense on sequences", lambda x, w: tf.reduce_mean(tf.nn.relu(tf.tensordot(x, w, 1)), 1), 6, 4, 5, sizes=[2, 4]
)
_row_wise("gelu and select", lambda x, w: tf.where(x > 0, tf.nn.gelu(x), 0.1 * x) @ w, 8, 5)
_row_wise("cumsum and max", lambda x, w: tf.cumsum(x, axis=1) @ w + tf.reduce_max(x, 1, keepdims=True), 8, 5)
_row_wise("slices within rows", lambda x, w: tf.concat([x[:, 2:], x[:, :2]], 1) @ w, 8, 5)
_row_wise("padding", lambda x, w: tf.pad(x, [[0, 0], [1, 1]])[:, 1:-1] @ w, 8, 5)


@pair
def binary_cross_entropy(devices: Any) -> Pair:
    w = variable(5, 1)

    def loss(x: Any, y: Any) -> Any:
        return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(logits=(x @ w)[:, 0], labels=y)) / 8.0

    return Pair(summed(loss, devices, [3, 5]), loss, {"x": array(8, 5), "y": array(8, low=0.0)}, [w], True)


@pair
def sums_of_some_columns(devices: Any) -> Pair:
    w = variable(5, 3)
    model = lambda x: tf.nn.l2_normalize(x[:, 1:] @ w[1:], 1) + tf.nn.l2_normalize(x[:, -1:], 1)
    return Pair(sharded(model, devices, [1, 4, 3]), model, {"x": array(8, 5)}, [w], True)


@pair
def convolutions(devices: Any) -> Pair:
    k, w = variable(3, 3, 2, 4), variable(16, 3)

    def model(x: Any) -> Any:
        y = tf.nn.relu(tf.nn.conv2d(x, k, 1, "SAME"))
        y = tf.nn.max_pool2d(y, 2, 2, "VALID") + tf.nn.avg_pool2d(y, 2, 2, "VALID")
        return tf.reshape(y, [-1, 16]) @ w

    return Pair(sharded(model, devices, [2, 1, 3]), model, {"x": array(6, 4, 4, 2)}, [k, w], True)


@pair
def mean_loss_even(devices: Any) -> Pair:
    w = variable(5, 3)
    loss = lambda x: tf.reduce_mean(tf.square(x @ w))
    parallel = lambda x: summed(loss, devices)(x=x) / len(devices)
    return Pair(parallel, loss, {"x": array(8, 5)}, [w], True)


@pair
def mean_loss_weighted(devices: Any) -> Pair:
    w = variable(5, 3)
    loss = lambda x: tf.reduce_mean(tf.square(x @ w))

    def parallel(x: Any) -> Any:
        rows = tf.shape(x)[0]
        first = rows // 3
        total: Any = 0.0
        for part in (x[:first], x[first:]):
            total += loss(part) * tf.cast(tf.shape(part)[0], tf.float32)
        return total / tf.cast(rows, tf.float32)

    return Pair(parallel, loss, {"x": array(9, 5)}, [w], True)


@pair
def cross_entropy(devices: Any) -> Pair:
    w = variable(5, 3)

    def loss(x: Any, y: Any) -> Any:
        return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ w))

    inputs = {"x": array(8, 5), "y": np.arange(8, dtype="int32") % 3}
    return Pair(summed(loss, devices, [3, 5]), loss, inputs, [w], True)


@pair
def contraction_over_features(devices: Any) -> Pair:
    w = variable(6, 3)

    def parallel(x: Any) -> Any:
        return tf.add_n([a @ b for a, b in zip(tf.split(x, 3, 1), tf.split(w, 3, 0), strict=True)])

    return Pair(parallel, lambda x: x @ w, {"x": array(4, 6)}, [w], True)


@pair
def columns_of_a_layer(devices: Any) -> Pair:
    w, v = variable(5, 6), variable(6, 2)

    def parallel(x: Any) -> Any:
        parts = zip(tf.split(w, 2, 1), tf.split(v, 2, 0), strict=True)
        return tf.add_n([tf.nn.relu(x @ a) @ b for a, b in parts])

    return Pair(parallel, lambda x: tf.nn.relu(x @ w) @ v, {"x": array(4, 5)}, [w, v], True)


@pair
def attention_heads(devices: Any) -> Pair:
    q, k, v, o = (variable(4, 6, seed=seed) for seed in range(4))

    def head(x: Any, a: Any, b: Any, c: Any) -> Any:
        return tf.nn.softmax((x @ a) @ tf.transpose(x @ b, [0, 2, 1]) / 2.0) @ (x @ c)

    def parallel(x: Any) -> Any:
        heads = zip(*(tf.split(w, 2, 1) for w in (q, k, v, o)), strict=True)
        return tf.add_n([head(x, a, b, c) @ tf.transpose(d) for a, b, c, d in heads])

    def reference(x: Any) -> Any:
        qs, ks, vs = (tf.reshape(x @ w, [-1, 5, 2, 3]) for w in (q, k, v))
        weights = tf.nn.softmax(tf.einsum("bqhd,bkhd->bhqk", qs, ks) / 2.0)
        return tf.reshape(tf.einsum("bhqk,bkhd->bqhd", weights, vs), [-1, 5, 6]) @ tf.transpose(o)

    def split_reference(x: Any) -> Any:
        parts = []
        for i in range(2):
            at = slice(3 * i, 3 * i + 3)
            parts.append(head(x, q[:, at], k[:, at], v[:, at]))
        return tf.concat(parts, 2) @ tf.transpose(o)

    del reference  # An einsum and a matrix product are two operations to the algebra.
    return Pair(parallel, split_reference, {"x": array(3, 5, 4)}, [q, k, v, o], True)


@pair
def synchronised_batch_norm(devices: Any) -> Pair:
    scale = variable(5)

    def reference(x: Any) -> Any:
        mean = tf.reduce_mean(x, 0)
        variance = tf.reduce_mean(tf.square(x), 0) - tf.square(mean)
        return (x - mean) * tf.math.rsqrt(variance + 1e-3) * scale

    def parallel(x: Any) -> Any:
        parts = tf.split(x, [3, 5])
        rows = tf.cast(tf.shape(x)[0], tf.float32)
        mean = tf.add_n([tf.reduce_sum(part, 0) for part in parts]) / rows
        variance = tf.add_n([tf.reduce_sum(tf.square(part), 0) for part in parts]) / rows - tf.square(mean)
        return tf.concat([(part - mean) * tf.math.rsqrt(variance + 1e-3) * scale for part in parts], 0)

    return Pair(parallel, reference, {"x": array(8, 5)}, [scale], True)


def _steps(devices: Any, update: Callable[[list[Any], list[Any], list[Any]], None], slots: int) -> Pair:
    weights = [variable(5, 4, seed=1, name="w1"), variable(4, 3, seed=2, name="w2")]
    state = [tf.Variable(tf.zeros_like(w)) for _ in range(slots) for w in weights]

    def gradients(x: Any, y: Any, rows: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            error = tf.tanh(x @ weights[0]) @ weights[1] - y
            loss = tf.reduce_sum(tf.square(error)) / tf.cast(rows, tf.float32)
        return list(tape.gradient(loss, weights))

    def reference(x: Any, y: Any) -> None:
        update(weights, gradients(x, y, tf.shape(x)[0]), state)

    def parallel(x: Any, y: Any) -> None:
        shards = zip(tf.split(x, [5, 3]), tf.split(y, [5, 3]), strict=True)
        found = [gradients(a, b, tf.shape(x)[0]) for a, b in shards]
        update(weights, [tf.add_n(each) for each in zip(*found, strict=True)], state)

    return Pair(parallel, reference, {"x": array(8, 5), "y": array(8, 3, seed=3)}, [*weights, *state])


@pair
def sgd(devices: Any) -> Pair:
    def update(weights: Any, gradients: Any, state: Any) -> None:
        for w, g in zip(weights, gradients, strict=True):
            w.assign_sub(0.1 * g)

    return _steps(devices, update, 0)


@pair
def momentum(devices: Any) -> Pair:
    def update(weights: Any, gradients: Any, state: Any) -> None:
        for w, g, m in zip(weights, gradients, state, strict=True):
            m.assign(0.9 * m + g)
            w.assign_sub(0.1 * m)

    return _steps(devices, update, 1)


@pair
def adam(devices: Any) -> Pair:
    def update(weights: Any, gradients: Any, state: Any) -> None:
        for w, g, m, v in zip(weights, gradients, state[:2], state[2:], strict=True):
            m.assign(0.9 * m + 0.1 * g)
            v.assign(0.999 * v + 0.001 * tf.square(g))
            w.assign_sub(0.01 * m / (tf.sqrt(v) + 1e-7))

    return _steps(devices, update, 2)


@pair
def clipped(devices: Any) -> Pair:
    def update(weights: Any, gradients: Any, state: Any) -> None:
        for w, g in zip(weights, tf.clip_by_global_norm(gradients, 1.0)[0], strict=True):
            w.assign_sub(0.1 * g)

    return _steps(devices, update, 0)


@pair
def dense_block(devices: Any) -> Pair:
    """Each layer adds columns to those before it; the gradient of the last one is cut across their seams."""
    weights = [variable(4 + 2 * k, 2, seed=k) for k in range(3)]

    def model(x: Any) -> Any:
        for w in weights:
            x = tf.concat([x, tf.nn.relu(x) @ w], 1)
        return tf.nn.relu(x)

    return Pair(sharded(model, devices), model, {"x": array(8, 4)}, weights, gradients=True)


@pair
def keras_training_step(devices: Any) -> Pair:
    import keras

    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(2)])
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    def loss(x: Any, y: Any, rows: Any) -> Any:
        return tf.reduce_sum(tf.square(model(x) - y)) / rows

    def reference(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(x, y, 8.0)
        optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        return value

    def parallel(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            shards = zip(devices, tf.split(x, len(devices)), tf.split(y, len(devices)), strict=True)
            losses = []
            for device, a, b in shards:
                with tf.device(device.name):
                    losses.append(loss(a, b, 8.0))
            value = tf.add_n(losses)
        optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        return value

    return Pair(colocate_gradients(parallel), reference, {"x": array(8, 5), "y": array(8, 2)})


@pair
def recomputed_shards(devices: Any) -> Pair:
    """What waits for the gradient before it computes again adds a zero that is chosen by a comparison."""
    w = variable(4, 4)
    model = lambda x: tf.tanh(x @ w)

    def step(model: Any, shards: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(model(model(each))) for each in shards])
        return loss, tape.gradient(loss, w)

    def parallel(x: Any) -> Any:
        return step(tf.recompute_grad(model), tf.split(x, len(devices)))

    return Pair(parallel, lambda x: step(model, [x]), {"x": array(8, 4)})
