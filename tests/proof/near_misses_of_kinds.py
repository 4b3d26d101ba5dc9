"""More pairs of programs that differ for some inputs, kind by kind: look-ups, running sums, segments, steps, casts."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from near_misses import halves, miss, same
from near_misses_of_rows import NEAR_MISSES
from proof_pairs import Pair, array

__all__ = ["NEAR_MISSES"]


def _ids(x: Any, most: int = 4, least: int = 0) -> Any:
    """A number of a row for each row, which depends on what is in it."""
    return tf.clip_by_value(tf.cast(x[:, 0] * 10, tf.int32), least, most)


def _size(x: Any) -> Any:
    return tf.cast(tf.shape(x)[0], tf.float32)


def _sharded(fn: Any, of_all: Any = None) -> Any:
    """The same function of each half as of the whole, which differs."""
    return lambda x, w: tf.concat([fn(part, w) for part in halves(x)], 0), lambda x, w: (of_all or fn)(x, w)


# Look-ups, with numbers that are clipped.
same("where numbers are clipped", lambda x, w, e: tf.gather(w, _ids(x, e)), 3, 4)
same("where numbers are clipped below", lambda x, w, e: tf.gather(w, _ids(x, 4, e)), 0, 1)
miss("clipped to the rows of a shard", *_sharded(lambda x, w: tf.gather(x, _ids(x, 7) % tf.shape(x)[0])))
miss("clipped or around", lambda x, w: tf.gather(w, _ids(x)), lambda x, w: tf.gather(w, _ids(x, 9) % 5))
miss("a part of a table by clipped numbers", lambda x, w: _of_two(x, w, 3), lambda x, w: tf.gather(w, _ids(x)))
same("rows and columns that are looked up", lambda x, w, e: tf.gather(w, _ids(x), axis=e)[:5, :5], 0, 1, shape=(5, 5))
same(
    "an order of pairs of numbers", lambda x, w, e: tf.gather_nd(w, tf.stack([_ids(x), tf.range(8) % 5][::e], 1)), 1, -1
)
same(
    "what is set or added",
    lambda x, w, e: e(w, _ids(x)[:, None], x),
    *[tf.tensor_scatter_nd_add, tf.tensor_scatter_nd_max],
)
same("where a hot one is", lambda x, w, e: tf.one_hot(_ids(x), 8, axis=e), 0, 1)
same("a hot one beyond the depth", lambda x, w, e: tf.one_hot(_ids(x) + e, 5), 0, 1)
miss("the first or the last of equal ones", lambda x, w: tf.argmax(x, 1), lambda x, w: 4 - tf.argmax(x[:, ::-1], 1))
miss("which of equal ones", lambda x, w: tf.argsort(x, 1, "DESCENDING"), lambda x, w: tf.argsort(x, 1)[:, ::-1])
same(
    "left or right of equal ones",
    lambda x, w, e: tf.searchsorted([0, 3, 3], tf.cast(x[:, 0] * 9, tf.int32), e),
    "left",
    "right",
)
miss("counts of shards", *_sharded(lambda x, w: tf.math.bincount(_ids(x), minlength=5, maxlength=5)))
same("the most that is counted", lambda x, w, e: tf.math.bincount(_ids(x), minlength=3, maxlength=e)[:3], 2, 3)

# Running sums and products.
miss("a running sum that goes on from the last row", lambda x, w: _goes_on(x, x[3:4]), lambda x, w: tf.cumsum(x))
miss("a running sum that goes on from nought", lambda x, w: _goes_on(x, 0 * x[3:4]), lambda x, w: tf.cumsum(x))
same("from the end, without itself", lambda x, w, e: tf.cumsum(x, exclusive=e, reverse=True), True, False)
miss("a running product of shards", *_sharded(lambda x, w: tf.math.cumprod(x)))
miss("a running largest", lambda x, w: tf.scan(tf.maximum, x), lambda x, w: tf.scan(tf.minimum, x))
miss(
    "the order of a fold",
    lambda x, w: tf.foldl(lambda a, r: a / 2 + r, x),
    lambda x, w: tf.foldr(lambda a, r: a / 2 + r, x),
)

# Segments, by numbers in no order.
same(
    "numbers below nought",
    lambda x, w, e: tf.math.unsorted_segment_sum(x, e(_ids(x, 4, -3)), 5),
    tf.identity,
    tf.nn.relu,
)
same("numbers of segments, shifted", lambda x, w, e: tf.math.unsorted_segment_sum(x, (_ids(x) + e) % 5, 5), 0, 1)
miss("segments of shards, each for itself", *_sharded(lambda x, w: tf.math.unsorted_segment_sum(x, _ids(x), 5)))
miss(
    "a mean of the means of segments",
    lambda x, w: tf.add_n([tf.math.unsorted_segment_mean(p, _ids(p), 5) for p in halves(x)]) / 2,
    lambda x, w: tf.math.unsorted_segment_mean(x, _ids(x), 5),
)
miss(
    "rows counted from nought in each shard",
    lambda x, w: tf.add_n([tf.math.unsorted_segment_sum(p, tf.range(4), 8) for p in halves(x)]),
    lambda x, w: tf.math.unsorted_segment_sum(x, tf.range(8), 8),
)
same("where rows are scattered", lambda x, w, e: tf.scatter_nd((_ids(x) * e)[:, None], x, [9, 5]), 1, 2)

# Letters.
same("letters of a product", lambda x, w, e: tf.einsum(e, x, w), "ij,jk->ik", "ij,kj->ik")
same("a letter that is summed", lambda x, w, e: tf.einsum(e, x, w), "ij,ij->i", "ij,ij->j", shape=(5, 5))
same("letters of an outer product", lambda x, w, e: tf.einsum(e, x[0], w[0]), "i,j->ij", "i,j->ji")
same(
    "letters of a batch",
    lambda x, w, e: tf.einsum(e, tf.reshape(x, [2, 4, 5]), tf.stack([w, -w])),
    "bij,bjk->bik",
    "bij,bkj->bik",
)
same("a letter that is in no argument's place", lambda x, w, e: tf.einsum(e, x, w), "ij,jk->i", "ij,kj->i")
same("one letter twice", lambda x, w, e: tf.einsum(e, x, w), "ij,jj->ij", "ij,ji->ij", shape=(5, 5))
miss(
    "letters over shards",
    lambda x, w: tf.add_n([tf.einsum("ij,ik->jk", p, q) for p, q in zip(halves(x), halves(x)[::-1], strict=True)]),
    lambda x, w: tf.einsum("ij,ik->jk", x, x),
)

# Slices with steps.
same("every second, backwards", lambda x, w, e: x[e] @ w, slice(None, None, -2), slice(1, None, 2))
same("backwards from there", lambda x, w, e: x[e] @ w, slice(6, 2, -1), slice(5, 1, -1))
same("backwards to there", lambda x, w, e: tf.reduce_sum(x[e] @ w, 0), slice(-1, -9, -1), slice(-1, -8, -1))
same("columns backwards", lambda x, w, e: x[:, e], slice(-1, 0, -2), slice(3, None, -2))
miss(
    "every third, of which one is left out",
    lambda x, w: tf.add_n([tf.reduce_sum(x[i::3] @ w, 0) for i in (0, 1)]),
    lambda x, w: tf.reduce_sum(x @ w, 0),
)
miss(
    "every third, with a mean of means",
    lambda x, w: tf.add_n([tf.reduce_mean(x[i::3] @ w, 0) for i in range(3)]) / 3,
    lambda x, w: tf.reduce_mean(x @ w, 0),
)
miss(
    "every second, put together in succession",
    lambda x, w: tf.reshape(tf.stack([x[::2] @ w, x[1::2] @ w], 0), [8, 5]),
    lambda x, w: x @ w,
)
miss(
    "every second, put together the other way round",
    lambda x, w: tf.reshape(tf.stack([x[1::2] @ w, x[::2] @ w], 1), [8, 5]),
    lambda x, w: x @ w,
)
miss(
    "columns of shards, beside each other",
    lambda x, w: tf.reshape(tf.concat([tf.reshape(p, [2, 10]) for p in halves(x)], 1), [8, 5]),
    lambda x, w: x,
)
same("a roll that goes round", lambda x, w, e: tf.roll(x, e, 0), 7, -2)
same("what is at an edge", lambda x, w, e: tf.pad(x, [[1, 1], [0, 0]], e), "REFLECT", "SYMMETRIC")
same("tiled or repeated", lambda x, w, e: e(x), lambda x: tf.tile(x, [2, 1]), lambda x: tf.repeat(x, 2, 0))
same("how much of a row is reversed", lambda x, w, e: tf.reverse_sequence(x, tf.range(8) % e, 1, 0), 4, 5)
miss("a window across shards", *_sharded(lambda x, w: tf.nn.avg_pool1d(x[None], 3, 1, "SAME")[0]))
same(
    "rows or columns of a condition",
    lambda x, w, e: tf.where(tf.reshape(x[0] > 0, e), x, w),
    [1, 5],
    [5, 1],
    shape=(5, 5),
)

# Ragged, sparse, text.
same("lengths of rows", lambda x, w, e: tf.reduce_mean(tf.RaggedTensor.from_row_lengths(x, e), 1), [3, 5], [4, 4])
same("what fills rows", lambda x, w, e: tf.RaggedTensor.from_row_lengths(x[:, 0], [3, 5]).to_tensor(e), 0.0, 1.0)
same(
    "a side of a sparse product",
    lambda x, w, e: tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(w), x, adjoint_a=e),
    True,
    False,
    shape=(5, 5),
)
miss(
    "a softmax of what is not nought",
    lambda x, w: tf.sparse.to_dense(tf.sparse.softmax(tf.sparse.from_dense(tf.nn.relu(x)))),
    lambda x, w: tf.nn.softmax(tf.nn.relu(x)),
)
same("digits", lambda x, w, e: tf.strings.to_number(tf.strings.as_string(x, precision=e)), 3, 4)
same(
    "an order of words",
    lambda x, w, e: tf.strings.join([tf.strings.as_string(x), tf.strings.as_string(x + 1)][::e]),
    1,
    -1,
)
same("a number of buckets", lambda x, w, e: tf.strings.to_hash_bucket_fast(tf.strings.as_string(x), e), 7, 8)

# Complex numbers.
same(
    "a conjugate in a product",
    lambda x, w, e: tf.math.real(tf.matmul(_complex(x), _complex(x), **{e: True})),
    "adjoint_b",
    "transpose_b",
)
miss(
    "the real part of a square",
    lambda x, w: tf.math.real(_complex(x) * _complex(x)),
    lambda x, w: tf.math.real(_complex(x)) ** 2,
)
miss("a complex number's size", lambda x, w: tf.abs(_complex(x)), lambda x, w: tf.math.real(_complex(x)))
same("a part of a complex number", lambda x, w, e: e(_complex(x)), tf.math.real, tf.math.imag)
same("a transform there or back", lambda x, w, e: tf.math.real(e(_complex(x))), tf.signal.fft, tf.signal.ifft)
same("a conjugate", lambda x, w, e: tf.math.imag(e(_complex(x)) * _complex(x + 1)), tf.math.conj, tf.identity)

# Whole numbers and casts.
miss("a half of the negative", lambda x, w: -x // 2, lambda x, w: -(x // 2), dtype="int32")
same("towards nought or down", lambda x, w, e: e(x - 20, 3), tf.truncatediv, tf.math.floordiv, dtype="int32")
same(
    "what is left, towards nought or down",
    lambda x, w, e: e(x - 20, 3),
    tf.truncatemod,
    tf.math.floormod,
    dtype="int32",
)
miss("three times a third", lambda x, w: x // 3 * 3, lambda x, w: x, dtype="int32")
miss(
    "a third of three times, in 8 bits",
    lambda x, w: tf.cast(x, tf.int8) * 9 // 9,
    lambda x, w: tf.cast(x, tf.int8),
    dtype="int32",
)
miss(
    "a mean of whole numbers",
    lambda x, w: (tf.reduce_mean(x[:4], 0) + tf.reduce_mean(x[4:], 0)) // 2,
    lambda x, w: tf.reduce_mean(x, 0),
    dtype="int32",
)
miss(
    "a large number as a float",
    lambda x, w: tf.cast(tf.cast(x + 16777217, tf.float32), tf.int32),
    lambda x, w: x + 16777217,
    dtype="int32",
)
miss(
    "half of the bits",
    lambda x, w: tf.cast(tf.cast(x * 2**31, tf.int32), tf.int64),
    lambda x, w: x * 2**31,
    dtype="int64",
)
same("kept within its type", lambda x, w, e: e(x * 9, tf.int8), tf.saturate_cast, tf.cast, dtype="int32")
miss(
    "a third in between",
    lambda x, w: tf.cast(tf.cast(tf.cast(x, tf.float64) / 3, tf.float32), tf.float64),
    lambda x, w: tf.cast(x, tf.float64) / 3,
)
miss(
    "whole, and then not nought", lambda x, w: tf.cast(tf.cast(x, tf.int32), tf.bool), lambda x, w: tf.cast(x, tf.bool)
)
miss("unsigned in between", lambda x, w: tf.cast(tf.cast(x, tf.uint8) - 5, tf.int32), lambda x, w: x - 5, dtype="int32")
same("bits as they are", lambda x, w, e: e(x, tf.int32), tf.bitcast, tf.cast)

# Loops and branches.
miss("as many turns as rows", *_sharded(lambda x, w: _doubled(x, tf.shape(x)[0])))
miss("turns until no row of a shard is small", *_sharded(lambda x, w: _grown(x)))
same(
    "the most turns",
    lambda x, w, e: tf.while_loop(lambda y: True, lambda y: (tf.tanh(y @ w),), [x], maximum_iterations=e)[0],
    2,
    3,
)
same(
    "two that take turns",
    lambda x, w, e: tf.while_loop(lambda t, a, b: t < e, lambda t, a, b: (t + 1, b, tf.tanh(a)), [0, x, x @ w])[1],
    2,
    3,
)
same(
    "a first turn",
    lambda x, w, e: tf.while_loop(lambda t, y: t < 4, lambda t, y: (t + 1, y + w[t] * x), [e, x])[1],
    0,
    1,
)
same(
    "backwards through the rows",
    lambda x, w, e: tf.while_loop(lambda t, y: t < 8, lambda t, y: (t + 1, y / 2 + x[abs(e - t)]), [0, x[0]])[1],
    0,
    7,
)
miss("a branch for each shard", *_sharded(lambda x, w: tf.cond(tf.reduce_mean(x) > 0, lambda: x, lambda: -x)))
same(
    "a branch of a branch",
    lambda x, w, e: tf.cond(x[0, 0] > 0, lambda: tf.cond(x[0, 1] > e, lambda: x, lambda: -x), lambda: 2 * x),
    0.0,
    0.5,
)
miss("branches in order", lambda x, w: _cases(x), lambda x, w: _cases(x, -1))
miss("a mean of what a shard keeps", lambda x, w: tf.add_n([_kept(p) for p in halves(x)]) / 2, lambda x, w: _kept(x))

# Variables.
same("one row that is updated twice", lambda x, w, e: w.scatter_add(tf.IndexedSlices(x[:2], [e, 0])), 0, 1)
same("an update, and what is read", lambda x, w, e: _read(w, e), 0, 1)
same("updates in turn", lambda x, w, e: [w.assign(each) for each in [w * 2, w + x[:5]][::e]], 1, -1)
miss("an update in each turn", lambda x, w: _added(x, w, 2), lambda x, w: _added(x, w, 3))

# Seeds.
same(
    "an algorithm of random numbers",
    lambda x, w, e: x * tf.random.stateless_normal([8, 5], (1, 2), alg=e),
    "philox",
    "threefry",
)
miss("one seed for each shard", *_sharded(lambda x, w: tf.nn.experimental.stateless_dropout(x, 0.5, (1, 2))))
same("limits of random numbers", lambda x, w, e: x * tf.random.stateless_uniform([8, 5], (1, 2), 0, e), 1.0, 2.0)

# What depends on how many rows there are.
miss("divided by the rows of a shard", *_sharded(lambda x, w: x / _size(x)))
miss("the root of the rows of a shard", *_sharded(lambda x, w: x @ w * tf.math.rsqrt(_size(x))))
miss(
    "means of shards, summed",
    lambda x, w: tf.add_n([tf.reduce_sum(p, 0) / _size(p) for p in halves(x)]),
    lambda x, w: tf.reduce_sum(x, 0) / _size(x),
)
miss("positions in a shard", *_sharded(lambda x, w: x + tf.range(_size(x))[:, None]))
miss("from nought to one in each shard", *_sharded(lambda x, w: x * tf.linspace(0.0, 1.0, tf.shape(x)[0])[:, None]))
miss("a diagonal of each shard", *_sharded(lambda x, w: tf.eye(tf.shape(x)[0], 5) + x))
miss("as many elements as a shard has", *_sharded(lambda x, w: x * tf.cast(tf.size(x), tf.float32)))
miss("the rows or the axes", lambda x, w: x * tf.cast(tf.rank(x), tf.float32), lambda x, w: x * _size(x))
miss("rows scaled to the length 1, by shards", *_sharded(lambda x, w: tf.nn.l2_normalize(x, 0)))
miss(
    "a variance of samples",
    lambda x, w: tf.math.reduce_variance(x, 0) * _size(x) / (_size(x) - 1),
    lambda x, w: tf.math.reduce_variance(x, 0),
)
miss("a cube of absolute values", lambda x, w: tf.abs(x) ** 3, lambda x, w: x**3)
miss("roots of what may be negative", lambda x, w: tf.math.rsqrt(x) * tf.math.rsqrt(x), lambda x, w: 1 / x)
miss("a gradient of the largest of equal ones", lambda x, w: _of_largest(x, True), lambda x, w: _of_largest(x, False))


def _layers(w: Any) -> Pair:
    one, other = (tf.keras.layers.Dropout(0.5, seed=seed) for seed in (1, 2))
    inputs = {"x": array(8, 5)}
    return Pair(lambda x: one(x, training=True), lambda x: other(x, training=True), inputs, [w], gradients=True)


NEAR_MISSES["the seed of a layer"] = _layers


def _of_two(x: Any, w: Any, at: int) -> Any:
    ids = _ids(x)
    one, other = tf.gather(w[:at], tf.minimum(ids, at - 1)), tf.gather(w[at:], tf.maximum(ids - at, 0))
    return tf.where((ids <= at)[:, None], one, other)


def _goes_on(x: Any, before: Any) -> Any:
    return tf.concat([tf.cumsum(x[:4]), before + tf.cumsum(x[4:])], 0)


def _complex(x: Any) -> Any:
    return tf.complex(x, 2 * x + 1)


def _doubled(x: Any, turns: Any) -> Any:
    return tf.while_loop(lambda t, y: t < turns, lambda t, y: (t + 1, 2 * y), [0, x])[1]


def _grown(x: Any) -> Any:
    return tf.while_loop(lambda y: tf.reduce_any(tf.abs(y) < 0.5), lambda y: (2 * y + 0.01,), [x])[0]


def _cases(x: Any, step: int = 1) -> Any:
    pairs = [(x[0, 0] > 0, lambda: x), (x[0, 1] > 0, lambda: -x)]
    return tf.case(pairs[::step], default=lambda: 2 * x)


def _kept(x: Any) -> Any:
    return tf.reduce_mean(tf.boolean_mask(x, x[:, 0] > 0), 0)


def _read(w: Any, late: int) -> Any:
    before = w.read_value()
    w.assign_add(tf.ones([5, 5]))
    return (before, w.read_value())[late]


def _added(x: Any, w: Any, turns: int) -> Any:
    def turn(t: Any) -> Any:
        w.assign_add(x[:5] * 0.1)
        return (t + 1,)

    return tf.while_loop(lambda t: t < turns, turn, [0])[0] * 0


def _of_largest(x: Any, by_shards: bool) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        most = tf.maximum(*[tf.reduce_max(p) for p in halves(x)]) if by_shards else tf.reduce_max(x)
    return tape.gradient(most, x)
