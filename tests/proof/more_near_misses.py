"""More pairs that differ: one function with two values of one setting; lists, state, numbers, shards."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from near_misses import NEAR_MISSES, halves, miss, same
from proof_pairs import Pair, array, variable

__all__ = ["NEAR_MISSES"]


@cache
def _generator() -> Any:
    with tf.init_scope():
        return tf.random.Generator.from_seed(1)


def _list(x: Any, size: int, at: int, *, grows: bool = True) -> Any:
    return tf.TensorArray(tf.float32, size, dynamic_size=grows, clear_after_read=False).write(at, x)


# Lists. One that grows is longer than it was.
miss("a list that grows", lambda x, w: tf.reduce_sum(_list(x, 0, 0).stack(), 0), lambda x, w: tf.zeros_like(x))
miss("the length of a list", lambda x, w: x * tf.cast(_list(x, 2, 3).size(), tf.float32), lambda x, w: x * 2.0)
same("an entry of a list", lambda x, w, e: _list(x, 2, 0).write(1, x @ w).read(e), 0, 1)
same("an order of entries", lambda x, w, e: _list(x, 2, e).write(1 - e, x @ w).stack(), 0, 1)
same("an entry that is written again", lambda x, w, e: _list(x, 2, 0).write(e, x @ w).write(1 - e, -x).stack(), 0, 1)

# One setting of an operation.
same("axes of a product", lambda x, w, e: tf.tensordot(x, w, [[1], [e]]), 0, 1)
same("a side of a product", lambda x, w, e: tf.matmul(w, w, transpose_a=e, transpose_b=not e), True, False)
same("an order of axes", lambda x, w, e: tf.transpose(tf.reshape(x, [2, 4, 5]), e), (1, 0, 2), (1, 2, 0))
same("where it is stacked", lambda x, w, e: tf.reshape(tf.stack([x, -x], e), [-1]), 0, 1)
same("what is unstacked", lambda x, w, e: tf.unstack(x, axis=0)[e], 0, 1)
same("columns that are left out", lambda x, w, e: tf.concat([x[:, :e], x[:, e + 1 :]], 1), 0, 1)
same("an offset", lambda x, w, e: x[:, e : e + 3], 0, 1)
same("from the end", lambda x, w, e: x[:, e:], -3, -2)
same("a negative step", lambda x, w, e: x[:, ::e], -1, 1)
same("repeats", lambda x, w, e: tf.repeat(x, e, 1), [1, 2, 1, 1, 1], [2, 1, 1, 1, 1])
same("tiles", lambda x, w, e: tf.reshape(tf.tile(x, e), [-1]), [2, 1], [1, 2])
same("an axis of reversal", lambda x, w, e: tf.reverse(x, [e]), 0, 1)
same("a diagonal", lambda x, w, e: tf.linalg.diag_part(w, k=e)[:4], 0, 1)
same("a triangle", lambda x, w, e: tf.linalg.band_part(w, *e), (0, -1), (-1, 0))
same("strict triangles", lambda x, w, e: tf.linalg.band_part(w, -1, 0) - e * tf.linalg.band_part(w, 0, 0), 0.0, 1.0)
same("how many are the largest", lambda x, w, e: tf.math.top_k(x, e)[0][:, :1] * e, 1, 2)
same("the second largest", lambda x, w, e: tf.math.top_k(x, 3)[0][:, e], 0, 1)
same("largest or smallest", lambda x, w, e: tf.sort(x, 1, e), "ASCENDING", "DESCENDING")
same("a running product", lambda x, w, e: tf.math.cumprod(x, 1, exclusive=e), True, False)
same("a norm's power", lambda x, w, e: tf.norm(x, e, 1), 1, 2)
same("a deviation", lambda x, w, e: tf.math.reduce_std(x, e), 0, 1, shape=(5, 5))
same("a variance of a sample", lambda x, w, e: tf.math.reduce_variance(x, 0) * 8 / e, 8, 7)
same("a bias", lambda x, w, e: tf.nn.bias_add(x, tf.range(5.0) * e), 1.0, 2.0)
same("a slope", lambda x, w, e: tf.nn.leaky_relu(x, e), 0.1, 0.01)
same("a constant of elu", lambda x, w, e: e(x), tf.nn.elu, tf.nn.selu)
same("an activation", lambda x, w, e: e(x @ w), tf.nn.relu, tf.nn.softplus)
same("sine or cosine", lambda x, w, e: e(x), tf.sin, tf.cos)
same("rounding down or up", lambda x, w, e: e(x), tf.floor, tf.math.ceil)
same("a half rounded", lambda x, w, e: e(x), tf.round, lambda x: tf.floor(x + 0.5))
same("the smaller or the larger", lambda x, w, e: e(x, w[:1]), tf.minimum, tf.maximum)
same("a limit of a ratio", lambda x, w, e: x / tf.maximum(tf.abs(x), e), 0.5, 0.25)
same("a clipped norm", lambda x, w, e: tf.clip_by_norm(x, e), 0.5, 0.25)
same("a norm of rows or of all", lambda x, w, e: tf.clip_by_norm(x, 0.5, e), None, [1])
same("a small epsilon", lambda x, w, e: tf.math.rsqrt(tf.reduce_mean(x * x) + e), 1e-5, 1e-6)
same("a decay", lambda x, w, e: w.assign(e * w + (1 - e) * tf.reduce_mean(x)), 0.9, 0.99)
same("a momentum that looks ahead", lambda x, w, e: w.assign_sub(0.1 * (tf.reduce_sum(x, 0) + e * w)), 0.9, 0.8)
same("a stride of a convolution", lambda x, w, e: _convolved(x, w, e, "SAME")[:, :1], 1, 2)
same("padding of a convolution", lambda x, w, e: tf.reduce_sum(_convolved(x, w, 1, e)), "SAME", "VALID")
same("a dilation", lambda x, w, e: tf.nn.conv2d(_image(x), _kernel(w), 1, "SAME", dilations=e), 1, 2)
same("a window of a pool", lambda x, w, e: tf.reduce_sum(tf.nn.max_pool2d(_image(x), e, 1, "SAME")), 1, 2)
same("a mean or a maximum of a window", lambda x, w, e: e(_image(x), 2, 2, "SAME"), tf.nn.max_pool2d, tf.nn.avg_pool2d)
same("how it is resized", lambda x, w, e: tf.image.resize(_image(x), (4, 4), e), "bilinear", "nearest")
same("rows that are looked up", lambda x, w, e: tf.gather(w, e) + x[:2], [0, 1], [1, 0])
same("an axis of a look-up", lambda x, w, e: tf.gather(w, [0, 2], axis=e) @ tf.ones([5 if e == 0 else 2, 2]), 0, 1)
same("segments by number", lambda x, w, e: tf.math.unsorted_segment_sum(x, tf.range(8) % e, 4), 2, 3)
same(
    "a mean of segments",
    lambda x, w, e: e(x, tf.range(8) // 2, 4),
    *[tf.math.unsorted_segment_sum, tf.math.unsorted_segment_max],
)
same("where it is scattered", lambda x, w, e: tf.scatter_nd([[e], [2]], x[:2], [8, 5]), 0, 1)
same("what is on", lambda x, w, e: tf.one_hot(tf.argmax(x, 1), 5, on_value=e), 1.0, 2.0)
same("a seed of one row", lambda x, w, e: x * tf.random.stateless_normal([8, 5], e), (1, 2), (1, 3))
same("a distribution", lambda x, w, e: x * e([8, 5], (1, 2)), tf.random.stateless_normal, tf.random.stateless_uniform)
same("a shape of numbers", lambda x, w, e: x * tf.reshape(tf.random.stateless_normal(e, (1, 2)), [8, 5]), [40], [20, 2])
same("turns of a loop over rows", lambda x, w, e: _turns(x, w, e), 3, 4)
same("a loop that ends by a value", lambda x, w, e: _until(x, e), 2.0, 4.0)
same("an accumulator of a loop", lambda x, w, e: _summed(x, e), 0.0, 1.0)
same("a branch by the rows", lambda x, w, e: tf.cond(tf.reduce_sum(x) > e, lambda: x, lambda: -x), 0.0, 1.0)
same("branches in the other order", lambda x, w, e: _either(tf.reduce_sum(x) > 0, x @ w, tf.tanh(x @ w), e), 0, 1)
same("a factor in one branch", lambda x, w, e: _either(tf.reduce_sum(x) > 0, x @ w, e * (x @ w), 0), 1.0, 2.0)
same(
    "branches by two conditions",
    lambda x, w, e: _either(x[0, 0] > 0, x, w, 0) * _either(x[0, e] > 0, x, w, 0),
    0,
    1,
    shape=(5, 5),
)
miss(
    "nothing times a logarithm in a branch",
    lambda x, w: tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: x + 0.0 * tf.math.log(x)),
    lambda x, w: x,
)
miss(
    "a gradient of the other branch",
    lambda x, w: tf.stop_gradient(_either(x[0, 0] > 0, x @ w, tf.tanh(x @ w), 0) - x @ w) + x @ w,
    lambda x, w: _either(x[0, 0] > 0, x @ w, tf.tanh(x @ w), 0),
)
same(
    "a case",
    lambda x, w, e: tf.switch_case(tf.argmax(x[0], output_type=tf.int32), [lambda i=i: x * (i + e) for i in range(5)]),
    0.0,
    1.0,
)
same("an upstream factor", lambda x, w, e: _times(x, e), 2.0, 3.0)
same("a second derivative", lambda x, w, e: _derivative(x, e), 2, 3)

# Shards.
miss(
    "rows of a softmax over classes, by columns",
    lambda x, w: tf.concat([tf.nn.softmax(x[:, :2]), tf.nn.softmax(x[:, 2:])], 1),
    lambda x, w: tf.nn.softmax(x),
)
miss("layer norm by columns", lambda x, w: tf.concat([_norm(x[:, :2]), _norm(x[:, 2:])], 1), lambda x, w: _norm(x))
miss(
    "columns that are added, not joined",
    lambda x, w: x[:, :2] @ w[:2] + x[:, 2:] @ w[:3],
    lambda x, w: x @ w,
)
miss("rows of the weights", lambda x, w: x[:, :2] @ w[3:] + x[:, 2:] @ w[:3], lambda x, w: x @ w)
miss(
    "a relu between the parts of a product",
    lambda x, w: tf.nn.relu(x[:, :2] @ w[:2]) + tf.nn.relu(x[:, 2:] @ w[2:]),
    lambda x, w: tf.nn.relu(x @ w),
)
miss(
    "a bias in each part",
    lambda x, w: tf.add_n([p[:4] @ w + 1 for p in halves(x)]),
    lambda x, w: (x[:4] + x[4:]) @ w + 1,
)
miss(
    "a mean that is divided twice",
    lambda x, w: tf.add_n([tf.reduce_mean(p, 0) / 2 for p in halves(x)]) / 2,
    lambda x, w: tf.reduce_mean(x, 0),
)
miss(
    "a ring that skips one",
    lambda x, w: tf.add_n([x[i::4] for i in (0, 1, 3)]),
    lambda x, w: tf.add_n([x[i::4] for i in range(4)]),
)
miss("an interleaved join", lambda x, w: tf.reshape(tf.stack(tf.split(x @ w, 2), 1), [8, 5]), lambda x, w: x @ w)
miss("a last batch that is repeated", lambda x, w: tf.concat([x[:6] @ w, x[4:6] @ w], 0), lambda x, w: x @ w)
miss("a broadcast of the first row", lambda x, w: x @ w + x[:1] @ w, lambda x, w: x @ w + x @ w)
miss(
    "a norm of the gradient of one shard",
    lambda x, w: _clipped(x[:4], w) + _clipped(x[4:], w),
    lambda x, w: _clipped(x, w),
)
miss("weights that were updated between", lambda x, w: _between(x, w), lambda x, w: _after(x, w))
miss("one update for two", lambda x, w: _stepped(x, w, 1, 0.2), lambda x, w: _stepped(x, w, 2, 0.1))
miss("a gradient before and after an update", lambda x, w: _stepped(x, w, 2, 0.1), lambda x, w: _accumulated(x, w))
miss(
    "a sum of logarithms",
    lambda x, w: tf.add_n([tf.math.log(tf.reduce_sum(p)) for p in halves(x)]),
    lambda x, w: tf.math.log(tf.reduce_sum(x)),
    low=0.1,
)
miss(
    "logs of sums of shards",
    lambda x, w: tf.add_n([tf.reduce_logsumexp(p) for p in halves(x)]),
    lambda x, w: tf.reduce_logsumexp(x),
)
miss(
    "an argmax of each shard",
    lambda x, w: tf.maximum(*[tf.argmax(p, 0) for p in halves(x)]),
    lambda x, w: tf.argmax(x, 0),
)
miss(
    "a cumulative sum by shards",
    lambda x, w: tf.concat([tf.cumsum(p, 0) for p in halves(x)], 0),
    lambda x, w: tf.cumsum(x, 0),
)
miss("a sort by shards", lambda x, w: tf.concat([tf.sort(p, 0) for p in halves(x)], 0), lambda x, w: tf.sort(x, 0))
miss(
    "a median of medians",
    lambda x, w: tf.add_n([tf.sort(p, 0)[2] for p in halves(x)]) / 2,
    lambda x, w: tf.sort(x, 0)[4],
)
miss(
    "a product of sums",
    lambda x, w: tf.reduce_sum(x[:4], 0) * tf.reduce_sum(x[4:], 0),
    lambda x, w: tf.reduce_prod(x, 0),
)
miss(
    "a sum of products",
    lambda x, w: tf.reduce_sum(x[:4] * x[4:]),
    lambda x, w: tf.reduce_sum(x[:4]) * tf.reduce_sum(x[4:]),
)
miss(
    "a Gram matrix of each shard",
    lambda x, w: tf.add_n([p @ tf.transpose(p) for p in halves(x)]),
    lambda x, w: (x @ tf.transpose(x))[:4, :4],
)
miss(
    "rows against columns", lambda x, w: tf.reduce_sum(x @ w, 1), lambda x, w: tf.linalg.matvec(x, tf.reduce_sum(w, 0))
)
miss("an outer sum", lambda x, w: x[:, :1] + x[:5, 0], lambda x, w: x[:, :1] + x[3:, 0])
miss("nought rows", lambda x, w: tf.concat([x[:0], x[1:]], 0), lambda x, w: x[:7])
miss("a mask of nought or one", lambda x, w: tf.where(x > 0, x, 0.0), lambda x, w: tf.where(x >= 0.5, x, 0.0))
miss("a mask that is inverted", lambda x, w: tf.where(x > 0, x, w[:1]), lambda x, w: tf.where(x > 0, w[:1], x))
miss(
    "a mean over what is masked",
    lambda x, w: tf.reduce_mean(tf.nn.relu(x)),
    lambda x, w: tf.reduce_sum(tf.nn.relu(x)) / tf.reduce_sum(tf.cast(x > 0, tf.float32)),
)

# Numbers.
miss(
    "an integer that wraps around", lambda x, w: (x + 2147483647) // 2, lambda x, w: x // 2 + 1073741823, dtype="int32"
)
miss(
    "a square that wraps around",
    lambda x, w: tf.cast(x * 70000 * 70000, tf.int64),
    lambda x, w: tf.cast(x, tf.int64) * 70000 * 70000,
    dtype="int32",
)
miss(
    "a shift to the right",
    lambda x, w: tf.bitwise.right_shift(-x, 1),
    lambda x, w: -tf.bitwise.right_shift(x, 1),
    dtype="int32",
)
miss(
    "a half of an integer",
    lambda x, w: tf.cast(x // 2, tf.float32),
    lambda x, w: tf.cast(x, tf.float32) / 2,
    dtype="int32",
)
miss("an unsigned number", lambda x, w: tf.cast(tf.cast(-x, tf.uint8), tf.int32), lambda x, w: -x, dtype="int32")
miss("a truth value", lambda x, w: tf.cast(tf.cast(x, tf.bool), tf.float32), lambda x, w: x)
miss("a number's sign", lambda x, w: tf.sign(x) * x, lambda x, w: x)
miss("a third", lambda x, w: x * 0.3333333, lambda x, w: x / 3)
miss("a tenth, in float16", lambda x, w: x * tf.cast(tf.constant(0.1, tf.float16), tf.float32), lambda x, w: x * 0.1)
miss(
    "a square root of squares",
    lambda x, w: tf.sqrt(tf.reduce_sum(x * x, 1)),
    lambda x, w: tf.reduce_sum(tf.sqrt(x * x), 1),
)
miss("a power of a sum", lambda x, w: tf.pow(x + w[:1], 3), lambda x, w: tf.pow(x, 3) + tf.pow(w[:1], 3))
miss("a power that is not whole", lambda x, w: tf.pow(x, 2.5), lambda x, w: tf.pow(x, 2) * tf.sqrt(tf.abs(x)))
miss("an inverse of a sum", lambda x, w: 1 / (x + w[:1]), lambda x, w: 1 / x + 1 / w[:1])
miss("an exponential of a sum", lambda x, w: tf.exp(x) + tf.exp(w[:1]), lambda x, w: tf.exp(x + w[:1]))
miss("an absolute value of a sum", lambda x, w: tf.abs(x + w[:1]), lambda x, w: tf.abs(x) + tf.abs(w[:1]))

# State.
miss("a variable that is read before the branch", lambda x, w: _read_before(x, w), lambda x, w: _read_after(x, w))
miss("an update in one branch", lambda x, w: _in_branch(x, w, True), lambda x, w: _in_branch(x, w, False))
miss("an update of a row", lambda x, w: _row(x, w, 0), lambda x, w: _row(x, w, 1))
miss(
    "a generator with a state",
    lambda x, w: x * _generator().normal([8, 5]),
    lambda x, w: x * _generator().normal([8, 5]),
)
miss("a function of Python", lambda x, w: _in_python(x), lambda x, w: _in_python(x))


def _in_python(x: Any) -> Any:
    made = tf.numpy_function(lambda y: y * np.float32(np.random.default_rng().uniform()), [x], tf.float32)
    return tf.ensure_shape(made, [8, 5])


def _row(x: Any, w: Any, at: int) -> Any:
    w[at].assign(x[0])
    return x @ w


def _read_before(x: Any, w: Any) -> Any:
    before = w.read_value()
    w.assign_add(tf.ones_like(w))
    return x @ before


def _read_after(x: Any, w: Any) -> Any:
    w.assign_add(tf.ones_like(w))
    return x @ w


def _in_branch(x: Any, w: Any, first: bool) -> Any:
    def update() -> Any:
        w.assign(2.0 * w)
        return tf.constant(0.0)

    none = lambda: tf.constant(0.0)
    return x + tf.cond(x[0, 0] > 0, *((update, none) if first else (none, update)))


def _gradient(x: Any, w: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(w)
        loss = tf.reduce_sum(tf.tanh(x @ w))
    return tape.gradient(loss, w)


def _clipped(x: Any, w: Any) -> Any:
    return tf.clip_by_norm(_gradient(x, w), 0.1)


def _stepped(x: Any, w: Any, steps: int, rate: float) -> None:
    for _ in range(steps):
        w.assign_sub(rate * _gradient(x, w))


def _accumulated(x: Any, w: Any) -> None:
    w.assign_sub(0.1 * (_gradient(x, w) + _gradient(x, w)))


def _between(x: Any, w: Any) -> None:
    for part in halves(x):
        w.assign_sub(0.1 * _gradient(part, w))


def _after(x: Any, w: Any) -> None:
    w.assign_sub(0.1 * tf.add_n([_gradient(part, w) for part in halves(x)]))


def _norm(x: Any) -> Any:
    return x - tf.reduce_mean(x, 1, keepdims=True)


def _image(x: Any) -> Any:
    return tf.reshape(x, [2, 2, 2, 5])


def _kernel(w: Any) -> Any:
    return tf.reshape(tf.concat([w] * 4, 0), [2, 2, 5, 5])


def _convolved(x: Any, w: Any, stride: int, padding: str) -> Any:
    return tf.nn.conv2d(_image(x), _kernel(w), stride, padding)


def _turns(x: Any, w: Any, turns: int) -> Any:
    return tf.while_loop(lambda t, y: t < turns, lambda t, y: (t + 1, tf.tanh(y @ w)), [0, x])[1]


def _until(x: Any, most: float) -> Any:
    return tf.while_loop(lambda y: tf.reduce_sum(y * y) < most, lambda y: (2.0 * y + 0.1,), [x])[0]


def _summed(x: Any, start: float) -> Any:
    zero = tf.fill([5], start)
    return tf.while_loop(lambda t, s: t < 8, lambda t, s: (t + 1, s + x[t]), [0, zero])[1]


def _either(condition: Any, one: Any, other: Any, swapped: int) -> Any:
    branches = [lambda: one, lambda: other]
    return tf.cond(condition, *(branches[::-1] if swapped else branches))


def _times(x: Any, factor: float) -> Any:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def inner(x: Any) -> Any:
        return tf.tanh(x), lambda g: g * factor

    return inner(x)


def _derivative(x: Any, power: int) -> Any:
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(x**power)
        first = inner.gradient(y, x)
    return outer.gradient(first, x)


def _two(same_start: bool) -> Any:
    def make(w: Any) -> Pair:
        a, b = variable(5, 5, name="a"), variable(5, 5, name="b")
        other = b if same_start else a

        def parallel(x: Any) -> Any:
            a.assign_add(tf.ones_like(a))
            return x @ other

        def reference(x: Any) -> Any:
            b.assign_add(tf.ones_like(b))
            return x @ b

        return Pair(parallel, reference, {"x": array(8, 5)}, [], False, [(a, b)] if same_start else [])

    return make


NEAR_MISSES["an update of one of two copies"] = _two(same_start=True)
NEAR_MISSES["two variables, each updated"] = _two(same_start=False)
