"""Pairs of programs that differ for some inputs, most of them little. None may be proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from proof_pairs import Pair, array, variable

#: The program, the reference, and the shape (or the arrays) that both get. ``w`` is a matrix of 5 x 5.
NEAR_MISSES: dict[str, Callable[[Any], Pair]] = {}


def miss(name: str, parallel: Any, reference: Any, *shape: int, low: float = -1.0, dtype: str = "float32") -> None:
    def make(w: Any) -> Pair:
        x = array(*(shape or (8, 5)), low=low)
        x = x if dtype == "float32" else np.arange(int(np.prod(shape or (8, 5)))).reshape(shape or (8, 5)).astype(dtype)
        return Pair(lambda x: parallel(x, w), lambda x: reference(x, w), {"x": x}, [w], dtype == "float32")

    NEAR_MISSES[name] = make


def same(name: str, fn: Callable[..., Any], one: Any, other: Any, **options: Any) -> None:
    """The same function with two values of one setting."""
    shape = options.pop("shape", ())
    miss(name, lambda x, w: fn(x, w, one), lambda x, w: fn(x, w, other), *shape, **options)


def halves(x: Any, at: int = 4) -> Any:
    return x[:at], x[at:]


miss(
    "a mean of unequal means",
    lambda x, w: tf.add_n([tf.reduce_mean(p @ w) for p in halves(x, 3)]) / 2,
    lambda x, w: tf.reduce_mean(x @ w),
)
miss(
    "sums instead of the mean",
    lambda x, w: tf.add_n([tf.reduce_sum(p @ w) for p in halves(x)]),
    lambda x, w: tf.reduce_mean(x @ w),
)
miss(
    "a part is missing",
    lambda x, w: tf.add_n([tf.reduce_sum(p @ w) for p in tf.split(x, 4)[:3]]),
    lambda x, w: tf.reduce_sum(x @ w),
)
miss(
    "a part is doubled",
    lambda x, w: tf.add_n([tf.reduce_sum(p @ w) for p in (x[:4], x[3:])]),
    lambda x, w: tf.reduce_sum(x @ w),
)
miss("parts joined in another order", lambda x, w: tf.concat([p @ w for p in halves(x)[::-1]], 0), lambda x, w: x @ w)
miss("one row more", lambda x, w: tf.concat([x[:5] @ w, x[4:] @ w], 0)[:8], lambda x, w: x @ w)
miss("rows rolled", lambda x, w: tf.roll(x, 1, 0) @ w, lambda x, w: x @ w)
miss("rows reversed", lambda x, w: x[::-1] @ w, lambda x, w: x @ w)
miss("every second row", lambda x, w: tf.concat([x[::2], x[1::2]], 0) @ w, lambda x, w: x @ w)
miss(
    "softmax over rows",
    lambda x, w: tf.concat([tf.nn.softmax(p, 0) for p in halves(x)], 0),
    lambda x, w: tf.nn.softmax(x, 0),
)
miss("softmax over the other axis", lambda x, w: tf.nn.softmax(x, 0), lambda x, w: tf.nn.softmax(x, 1))
miss(
    "batch norm of each shard",
    lambda x, w: tf.concat([p - tf.reduce_mean(p, 0) for p in halves(x)], 0),
    lambda x, w: x - tf.reduce_mean(x, 0),
)
miss("sum over the other axis", lambda x, w: tf.reduce_sum(x, 0), lambda x, w: tf.reduce_sum(x, 1), 5, 5)
miss("transposed", lambda x, w: tf.transpose(x), lambda x, w: x, 5, 5)
miss("reshaped instead of transposed", lambda x, w: tf.reshape(x, [5, 8]), lambda x, w: tf.transpose(x))
miss("transposed weights", lambda x, w: x @ tf.transpose(w), lambda x, w: x @ w)
miss(
    "columns in another order",
    lambda x, w: tf.concat([(x @ w)[:, :2], (x @ w)[:, 3:], (x @ w)[:, 2:3]], 1),
    lambda x, w: x @ w,
)
miss("a maximum of sums", lambda x, w: tf.reduce_max(x, 0), lambda x, w: tf.reduce_sum(x, 0))
miss(
    "the largest of shards, scaled",
    lambda x, w: tf.maximum(2 * tf.reduce_max(x[:4], 0), tf.reduce_max(x[4:], 0)),
    lambda x, w: tf.reduce_max(x, 0),
)
miss(
    "the sum of maxima",
    lambda x, w: tf.reduce_max(x[:4], 0) + tf.reduce_max(x[4:], 0),
    lambda x, w: tf.reduce_max(x, 0),
)
miss(
    "the largest of some rows",
    lambda x, w: tf.maximum(tf.reduce_max(x[:4], 0), tf.reduce_max(x[5:], 0)),
    lambda x, w: tf.reduce_max(x, 0),
)
miss("the smallest", lambda x, w: tf.reduce_min(x, 0), lambda x, w: tf.reduce_max(x, 0))
miss(
    "a maximum that is broadcast",
    lambda x, w: tf.reduce_max(tf.stack([x, x]), 0),
    lambda x, w: tf.reduce_max(x, 0, keepdims=True) + 0 * x,
)
miss("absolute values", lambda x, w: tf.abs(x), lambda x, w: x)
miss("rounded", lambda x, w: tf.round(x), lambda x, w: x)
miss("floor of a multiple", lambda x, w: tf.floor(2 * x), lambda x, w: 2 * tf.floor(x))
miss("clipped", lambda x, w: tf.clip_by_value(x, -0.5, 0.5), lambda x, w: x)
miss(
    "clipped at another value",
    lambda x, w: tf.clip_by_value(x, -0.5, 0.5),
    lambda x, w: tf.clip_by_value(x, -0.5, 0.25),
)
miss("root of a square", lambda x, w: tf.sqrt(x * x), lambda x, w: x)
miss("square of a root", lambda x, w: tf.sqrt(x) ** 2, lambda x, w: x)
miss("exponential of a logarithm", lambda x, w: tf.exp(tf.math.log(x)), lambda x, w: x)
miss("divided by itself", lambda x, w: x / x, lambda x, w: tf.ones_like(x))
miss("nought times a logarithm", lambda x, w: x + 0 * tf.math.log(x), lambda x, w: x)
miss("a logarithm less itself", lambda x, w: x + tf.math.log(x) - tf.math.log(x), lambda x, w: x)
miss("nought times a matrix of logarithms", lambda x, w: x + tf.math.log(x) @ tf.zeros([5, 5]), lambda x, w: x)
miss("nought times an inverse", lambda x, w: x + 0 / x, lambda x, w: x)
miss("nought times infinity", lambda x, w: x + 0 * tf.constant(np.inf), lambda x, w: x)
miss("a product without NaN", lambda x, w: tf.math.divide_no_nan(x, w[:1]), lambda x, w: x / w[:1])
miss("float16 inside", lambda x, w: tf.cast(tf.cast(x, tf.float16), tf.float32) @ w, lambda x, w: x @ w)
miss("bfloat16 inside", lambda x, w: tf.cast(tf.cast(x, tf.bfloat16), tf.float32) @ w, lambda x, w: x @ w)
miss("integers inside", lambda x, w: tf.cast(tf.cast(x, tf.int32), tf.float32), lambda x, w: x)
miss(
    "a cast of a multiple",
    lambda x, w: tf.cast(tf.cast(2 * x, tf.int32), tf.float32),
    lambda x, w: 2 * tf.cast(tf.cast(x, tf.int32), tf.float32),
)
miss(
    "a comparison with or without equality",
    lambda x, w: tf.cast(x > 0, tf.float32),
    lambda x, w: tf.cast(x >= 0, tf.float32),
)
miss("the other branch", lambda x, w: tf.where(x > 0, x, 2 * x), lambda x, w: tf.where(x > 0, 2 * x, x))
miss("a leaky slope", lambda x, w: tf.nn.leaky_relu(x, 0.2), lambda x, w: tf.nn.leaky_relu(x, 0.1))
miss("relu or relu6", lambda x, w: tf.nn.relu6(x * 9), lambda x, w: tf.nn.relu(x * 9))
miss("gelu, exact or not", lambda x, w: tf.nn.gelu(x, True), lambda x, w: tf.nn.gelu(x))
miss("stopped gradient", lambda x, w: tf.stop_gradient(x @ w) + 0 * w[0], lambda x, w: x @ w + 0 * w[0])
miss("a gradient times 2", lambda x, w: 2 * (x @ w) - tf.stop_gradient(x @ w), lambda x, w: x @ w)
same("an epsilon", lambda x, w, e: x / tf.sqrt(tf.reduce_mean(x * x, 1, keepdims=True) + e), 1e-5, 1e-6)
same("a rate", lambda x, w, e: x * e, 0.1, 0.1000001)
same("a shift", lambda x, w, e: x + e, 1e-7, 0.0)
same("a power", lambda x, w, e: tf.abs(x) ** e, 2.0, 2.5)
same("an integer power", lambda x, w, e: x**e, 2.0, 4.0)
same("an axis of argmax", lambda x, w, e: tf.argmax(x, e), 0, 1)
same("exclusive", lambda x, w, e: tf.cumsum(x, 1, exclusive=e), True, False)
same("reverse", lambda x, w, e: tf.cumsum(x, 1, reverse=e), True, False)
same("an axis of a running sum", lambda x, w, e: tf.cumsum(x, e), 0, 1)
same("one-hot depth", lambda x, w, e: tf.one_hot(tf.argmax(x, 1), 6, on_value=e), 1.0, 2.0)
same("one-hot rows", lambda x, w, e: tf.one_hot(tf.argmax(x, e), 8)[:5, :5], 0, 1)
same("number of the largest", lambda x, w, e: tf.math.top_k(x, 3, sorted=True).values[:, e], 0, 1)
same("a band", lambda x, w, e: tf.linalg.band_part(x, e, 0), 1, 2)
same("padding", lambda x, w, e: tf.pad(x, [[0, 0], e]), [1, 0], [0, 1])
same("a padded value", lambda x, w, e: tf.pad(x, [[0, 0], [1, 1]], constant_values=e), 1.0, 0.0)
same("mirrored padding", lambda x, w, e: tf.pad(x, [[0, 0], [1, 1]], e), "REFLECT", "SYMMETRIC")
same("rows of a table", lambda x, w, e: tf.gather(x, e), [0, 2], [0, 1])
same("columns of a table", lambda x, w, e: tf.gather(x, [0, 1], axis=e)[:2, :2], 0, 1)
same("a slice", lambda x, w, e: x[:, e : e + 2], 1, 2)
same("a step", lambda x, w, e: x[:, ::e][:, :2], 2, 1)
same("a repeated axis", lambda x, w, e: tf.reshape(tf.tile(x, e), [-1])[:80], [2, 1], [1, 2])
same("an equation", lambda x, w, e: tf.einsum(e, x, w), "bi,ij->bj", "bi,ji->bj")
same("pooling", lambda x, w, e: e(tf.reshape(x, [8, 5, 1, 1]), 2, 1, "SAME"), tf.nn.max_pool2d, tf.nn.avg_pool2d)
same(
    "label smoothing",
    lambda x, w, e: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(x) * (1 - e) + e / 5, x),
    0.1,
    0.0,
)
same("a temperature", lambda x, w, e: tf.nn.softmax(x / e), 2.0, 2.5)
same("seeds", lambda x, w, e: x * tf.random.stateless_uniform([8, 5], (0, e)), 1, 2)
same(
    "turns of a loop",
    lambda x, w, e: tf.while_loop(lambda t, y: t < e, lambda t, y: (t + 1, tf.tanh(y @ w)), [0, x])[1],
    3,
    5,
)
same(
    "the start of a loop",
    lambda x, w, e: tf.while_loop(lambda t, y: t < 3, lambda t, y: (t + 1, tf.tanh(y @ w)), [0, x * e])[1],
    1.0,
    2.0,
)
same(
    "the body of a loop",
    lambda x, w, e: tf.while_loop(lambda t, y: t < 3, lambda t, y: (t + 1, tf.tanh(y @ w) * e), [0, x])[1],
    1.0,
    2.0,
)
same("a loop that changes a variable", lambda x, w, e: _counted(x, w, e), 2, 3)
same("a call that changes a variable", lambda x, w, e: _assigned(x, w, e), 2.0, 3.0)
same("a branch that changes a variable", lambda x, w, e: _branched(x, w, e), 2.0, 3.0)
miss("a stateful generator", lambda x, w: x + tf.random.uniform([8, 5]), lambda x, w: x + tf.random.uniform([8, 5]))
miss("dropout", lambda x, w: tf.nn.dropout(x, 0.5), lambda x, w: tf.nn.dropout(x, 0.5))
miss("an update before a read", lambda x, w: _updated(x, w, True), lambda x, w: _updated(x, w, False))
miss("an update that is left out", lambda x, w: _updated(x, w, True), lambda x, w: x @ w)
miss("a product that overflows", lambda x, w: x * 65536 * 65536 // 65536, lambda x, w: x * 65536, dtype="int32")
miss("division of integers", lambda x, w: (x + x) // 3, lambda x, w: 2 * (x // 3), dtype="int32")
miss("a remainder", lambda x, w: x % 3 + x % 3, lambda x, w: (2 * x) % 3, dtype="int32")
miss("negative division", lambda x, w: -(x // 2), lambda x, w: -x // 2, dtype="int32")
miss("division that truncates", lambda x, w: tf.truncatediv(-x, 2), lambda x, w: -x // 2, dtype="int32")
miss(
    "a mean of integers",
    lambda x, w: tf.reduce_mean(x[:4]) + tf.reduce_mean(x[4:]),
    lambda x, w: 2 * tf.reduce_mean(x),
    dtype="int32",
)
miss("narrow integers", lambda x, w: tf.cast(tf.cast(x * 100, tf.int8), tf.int32), lambda x, w: x * 100, dtype="int32")
miss(
    "conjugates",
    lambda x, w: tf.math.real(tf.math.squared_difference(tf.complex(x, x), tf.complex(x, -x))),
    lambda x, w: tf.math.real((tf.complex(x, x) - tf.complex(x, -x)) ** 2),
)
miss("a row of ones", lambda x, w: tf.concat([x[:7], tf.ones([1, 5])], 0) @ w, lambda x, w: x @ w)
miss("one row broadcast", lambda x, w: x[:1] + 0 * x, lambda x, w: x)
miss("a column broadcast", lambda x, w: x[:, :1] + 0 * x, lambda x, w: x)
miss("weights of another layer", lambda x, w: tf.tanh(x @ w) @ w, lambda x, w: tf.tanh(x @ w) @ tf.transpose(w))
miss("an order of layers", lambda x, w: tf.tanh(x @ w) + 1, lambda x, w: tf.tanh(x @ w + 1))
miss(
    "attention over shards",
    lambda x, w: tf.concat([tf.nn.softmax(p @ tf.transpose(p)) @ p for p in halves(x)], 0),
    lambda x, w: tf.nn.softmax(x @ tf.transpose(x)) @ x,
)
miss("a norm of each shard", lambda x, w: tf.add_n([tf.norm(p) for p in halves(x)]), lambda x, w: tf.norm(x))
miss(
    "a mean of ratios",
    lambda x, w: tf.add_n([tf.reduce_sum(p) / tf.reduce_sum(p * p) for p in halves(x)]),
    lambda x, w: tf.reduce_sum(x) / tf.reduce_sum(x * x),
)
miss(
    "a square of a part",
    lambda x, w: tf.add_n([tf.reduce_sum(p) ** 2 for p in halves(x)]),
    lambda x, w: tf.reduce_sum(x) ** 2,
)
miss(
    "the count of one part",
    lambda x, w: tf.reduce_sum(x) / 7.0,
    lambda x, w: tf.reduce_mean(x, 0)[0] + tf.reduce_sum(x) / 8.0,
)
miss(
    "segments",
    lambda x, w: tf.math.unsorted_segment_sum(x, [0, 0, 1, 1, 2, 2, 2, 2], 3),
    lambda x, w: tf.math.unsorted_segment_sum(x, [0, 0, 1, 1, 2, 2, 2, 1], 3),
)
miss(
    "counts",
    lambda x, w: tf.math.bincount(tf.argmax(x, 1, tf.int32), minlength=5, maxlength=5),
    lambda x, w: tf.math.bincount(tf.argmin(x, 1, tf.int32), minlength=5, maxlength=5),
)
miss(
    "positions within shards",
    lambda x, w: tf.concat([p + tf.cast(tf.range(4), tf.float32)[:, None] for p in halves(x)], 0),
    lambda x, w: x + tf.cast(tf.range(8), tf.float32)[:, None],
)


def _counted(x: Any, w: Any, turns: int) -> Any:
    tf.while_loop(lambda t: t < turns, lambda t: (_grown(t, w),), [0])
    return x @ w


def _grown(t: Any, w: Any) -> Any:
    w.assign_add(tf.ones_like(w))
    return t + 1


@tf.function
def _assign(w: Any, by: Any) -> None:
    w.assign_add(by * tf.ones_like(w))


def _assigned(x: Any, w: Any, by: float) -> Any:
    _assign(w, tf.constant(by))
    return x * 1.0


def _branched(x: Any, w: Any, by: float) -> Any:
    def change() -> Any:
        w.assign_add(by * tf.ones_like(w))
        return 0.0

    return x + tf.cond(x[0, 0] > 0, change, lambda: 0.0)


def _updated(x: Any, w: Any, first: bool) -> Any:
    if first:
        w.assign_add(tf.ones_like(w))
    y = x @ w
    if not first:
        w.assign_add(tf.ones_like(w))
    return y


def other_start_values(w: Any) -> Pair:
    a, b = tf.Variable(tf.ones([5, 5])), tf.Variable(tf.ones([5, 5]))
    return Pair(lambda x: x @ a, lambda x: x @ b, {"x": array(8, 5)})


NEAR_MISSES["variables with equal start values"] = other_start_values
NEAR_MISSES["a copy that is not updated"] = lambda w: _copies(variable(5, 5), variable(5, 5))


def _copies(a: Any, b: Any) -> Pair:
    def parallel(x: Any) -> Any:
        a.assign_add(tf.ones_like(a))
        return x @ b

    def reference(x: Any) -> Any:
        a.assign_add(tf.ones_like(a))
        return x @ a

    return Pair(parallel, reference, {"x": array(8, 5)}, [a], False, [(a, b)])
