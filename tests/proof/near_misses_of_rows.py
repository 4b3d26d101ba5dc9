"""Pairs that differ: rows of nothing, shards of one row, and numbers within rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from more_near_misses import NEAR_MISSES
from near_misses import halves, miss, same

__all__ = ["NEAR_MISSES"]


def _numbers(x: Any) -> Any:
    return tf.cast(tf.abs(x) * 20, tf.int32)


def _summed(x: Any, ids: Any, step: int = 5) -> Any:
    """Sums of the columns of each row by these numbers, where they are below 5."""
    rows = x.shape[0]
    flat = tf.reshape(ids + tf.range(rows)[:, None] * step, [-1])
    return tf.reshape(tf.math.unsorted_segment_sum(tf.reshape(x, [-1]), flat, rows * 5), [rows, 5])


def _by_halves(fn: Any) -> Any:
    return lambda x, w: tf.concat([fn(part) for part in halves(x)], 0)


def _rows(x: Any, count: int = 8) -> list[Any]:
    return [tf.reshape(x[i : i + 1], [5]) for i in range(count)]


# Of no rows.
miss("a mean of nothing", lambda x, w: x @ w + 0 * tf.reduce_mean(x[8:]), lambda x, w: x @ w)
miss("a deviation of nothing", lambda x, w: x @ w + 0 * tf.math.reduce_std(x[8:]), lambda x, w: x @ w)
same("a sum or a product of nothing", lambda x, w, e: x[0] + e(x[8:], 0), tf.reduce_sum, tf.reduce_prod)
same("the largest or the smallest of nothing", lambda x, w, e: e(x[8:], 0), tf.reduce_max, tf.reduce_min)
same("any or all of nothing", lambda x, w, e: tf.cast(e(x[8:] > 0, 0), tf.float32), tf.reduce_any, tf.reduce_all)
same("a sum or the logarithm of one, of nothing", lambda x, w, e: e(x[8:], 0), tf.reduce_sum, tf.reduce_logsumexp)
same("zeros around nothing", lambda x, w, e: tf.pad(x[8:], [[1, 1], [0, 0]], constant_values=e), 0.0, 1.0)

# Of one row.
miss("one row is left out", lambda x, w: tf.add_n(_rows(x @ w, 7)), lambda x, w: tf.reduce_sum(x @ w, 0))
miss("one row counts twice", lambda x, w: tf.add_n([*_rows(x @ w), (x @ w)[3]]), lambda x, w: tf.reduce_sum(x @ w, 0))
miss(
    "a product of sums of rows",
    lambda x, w: tf.add_n(_rows(x)) * tf.add_n(_rows(x @ w)),
    lambda x, w: tf.reduce_sum(x * (x @ w), 0),
)
miss(
    "a sum of squares of rows of other rows",
    lambda x, w: tf.add_n([a * b for a, b in zip(_rows(x), _rows(x)[::-1], strict=True)]),
    lambda x, w: tf.reduce_sum(x * x, 0),
)
miss(
    "one row after another axis",
    lambda x, w: tf.add_n(_rows(tf.transpose(x @ w), 5)),
    lambda x, w: tf.reduce_sum(x @ w, 0),
    5,
    5,
)
same(
    "an axis of a sum of what was reshaped",
    lambda x, w, e: tf.reduce_sum(tf.reshape(x, [5, 1, 5]), [e, 1]),
    0,
    2,
    shape=(5, 5),
)
same(
    "an axis of a sum of rows",
    lambda x, w, e: tf.reduce_sum(tf.reduce_sum(tf.reshape(x, [2, 2, 2, 5]), 3)[:1], [0, e]),
    1,
    2,
)


# Of some columns of rows.
def _of_columns(x: Any, w: Any, columns: Any, rows: Any = slice(None)) -> Any:
    return tf.reduce_sum(x[rows][:, columns] ** 2, 1)


def _joined(x: Any, w: Any, fn: Any) -> Any:
    return tf.concat([fn(x, w, slice(0, 4)), fn(x, w, slice(4, 8))], 0)


miss(
    "other columns in the second half",
    lambda x, w: _joined(x, w, lambda x, w, rows: _of_columns(x, w, slice(rows.start // 4, rows.start // 4 + 3), rows)),
    lambda x, w: _of_columns(x, w, slice(0, 3)),
)
miss(
    "one column more",
    lambda x, w: _joined(x, w, lambda x, w, rows: _of_columns(x, w, slice(0, 4), rows)),
    lambda x, w: _of_columns(x, w, slice(0, 3)),
)
miss(
    "rows of some columns in another order",
    lambda x, w: tf.concat([_of_columns(part, w, slice(0, 3)) for part in halves(x)[::-1]], 0),
    lambda x, w: _of_columns(x, w, slice(0, 3)),
)
miss(
    "columns of two kinds with weights of the other",
    lambda x, w: tf.concat([tf.concat([p[:, :4], p[:, 4:] ** 2], 1) @ w[::-1] for p in halves(x)], 0),
    lambda x, w: tf.concat([x[:, :4], x[:, 4:] ** 2], 1) @ w,
)
miss(
    "a variance with the square of another mean",
    lambda x, w: tf.reduce_mean(x * x, 0) - tf.reduce_mean(x[:4], 0) ** 2,
    lambda x, w: tf.reduce_mean((x - tf.reduce_mean(x, 0)) ** 2, 0),
)
miss(
    "a square of a sum without twice the product",
    lambda x, w: x * x + (x @ w) ** 2,
    lambda x, w: (x + x @ w) ** 2,
)


def _cropped(x: Any, border: float) -> Any:
    boxes = tf.constant([[0.0, 0.0, 1.5, 1.0], [-0.5, 0.0, 1.0, 1.0]])
    return tf.image.crop_and_resize(x[None, :, :, None], boxes, [0, 0], [3, 3], extrapolation_value=border)


def _chosen(x: Any, y: Any) -> Any:
    return tf.raw_ops.Select(condition=x[:, 0] > 0, x=x, y=y)


miss("rows chosen for columns", lambda x, w: _chosen(x, -x), lambda x, w: tf.where(x[0] > 0, x, -x), 5, 5)
miss("twice a picture in the same frame", lambda x, w: _cropped(2.0 * x, 1.0), lambda x, w: 2.0 * _cropped(x, 1.0))

# Numbers within rows.
miss("numbers beyond a row", _by_halves(lambda x: _summed(x, _numbers(x))), lambda x, w: _summed(x, _numbers(x)))
miss(
    "numbers within another table",
    _by_halves(lambda x: _summed(tf.gather(tf.tile(x, [1, 5]), _numbers(x), batch_dims=1), _numbers(x))),
    lambda x, w: _summed(tf.gather(tf.tile(x, [1, 5]), _numbers(x), batch_dims=1), _numbers(x)),
)


def _looked_up_sometimes(x: Any) -> Any:
    ids = _numbers(x)
    found = tf.cond(tf.reduce_sum(x) > 1e3, lambda: tf.gather(x, ids, batch_dims=1), lambda: x)
    return _summed(found, ids)


def _looked_up_in_vain(x: Any) -> Any:
    ids = tf.concat([tf.argsort(x)[:, :4], _numbers(x)[:, :1]], 1)
    tf.gather(x, ids, batch_dims=1)  # which nobody reads, so that TensorFlow leaves it out
    return _summed(x, ids)


miss("numbers of a lookup that nobody reads", _by_halves(_looked_up_in_vain), lambda x, w: _looked_up_in_vain(x))
miss("numbers that are not looked up", _by_halves(_looked_up_sometimes), lambda x, w: _looked_up_sometimes(x))
same("where the numbers of a row begin", lambda x, w, e: _summed(x, tf.argsort(x), e), 5, 4)


def _placed(x: Any, step: int = 5) -> Any:
    order = tf.argsort(x)
    return _summed(tf.gather(x, order, batch_dims=1), order, step)


miss("rows that begin too early", _by_halves(lambda x: _placed(x, 4)), lambda x, w: _placed(x))
miss(
    "numbers of the other half",
    lambda x, w: tf.concat([_placed(p) for p in halves(x)[::-1]], 0),
    lambda x, w: _placed(x),
)

# What equals itself, and what does not.
same(
    "chosen by what equals itself", lambda x, w, e: tf.where(e(_numbers(x), _numbers(x)), x, -x), tf.equal, tf.not_equal
)
miss(
    "chosen by what equals itself in another order",
    lambda x, w: tf.where(_numbers(x) == _numbers(x)[::-1], x, -x),
    lambda x, w: x,
)
miss("chosen for the other of two", lambda x, w: tf.where(True, x, w[:1]), lambda x, w: w[:1] + 0 * x)

# The largest of some rows or of as many columns; whole numbers that wrap around before they are a picture.
miss("the largest of rows or of columns", lambda x, w: tf.reduce_max(x[:4]), lambda x, w: tf.reduce_max(x[:, :4]), 8, 8)
miss(
    "the smallest of rows and of columns",
    lambda x, w: tf.minimum(tf.reduce_min(x[:4] - 1), tf.reduce_min(x[:, 4:] - 1)),
    lambda x, w: tf.reduce_min(x - 1),
    8,
    8,
)


def _picture(x: Any) -> Any:
    return tf.raw_ops.ResizeBilinear(images=x, size=[3, 3])


miss(
    "whole numbers that wrap around, as a picture",
    lambda x, w: tf.add_n([_picture(tf.reduce_sum(p, 0)) for p in halves(x)]),
    lambda x, w: _picture(tf.reduce_sum(x, 0)),
    *(8, 2, 4, 4, 2),
    dtype="uint8",
)


def _around(x: Any, number: Any) -> Any:
    return tf.pad(x, [[0, 0], [1, 0]], constant_values=number)


def _largest_around(x: Any) -> Any:
    return _around(x, tf.reduce_max(x))


def _with_diagonal(x: Any, diagonal: Any) -> Any:
    return tf.linalg.set_diag(x[:, :, None] * x[:, None], diagonal)


miss("another number around columns", _by_halves(lambda x: _around(x, 1.0)), lambda x, w: _around(x, 2.0))
miss("the largest of a shard around", _by_halves(_largest_around), lambda x, w: _largest_around(x))
miss("rows of a diagonal in another order", lambda x, w: _with_diagonal(x, x[::-1]), lambda x, w: _with_diagonal(x, x))
miss(
    "the diagonal of the first shard",
    lambda x, w: tf.concat([_with_diagonal(p, x[:4]) for p in halves(x)], 0),
    lambda x, w: _with_diagonal(x, x),
)
miss("a diagonal beside", lambda x, w: tf.linalg.diag(x[:, 1:], k=1)[:, :4, :4], lambda x, w: tf.linalg.diag(x[:, 1:]))
miss(
    "a picture of all, with its edges",
    _by_halves(lambda x: tf.pad(x, [[1, 1], [0, 0]], "REFLECT")[1:-1] + tf.pad(x, [[1, 1], [0, 0]], "REFLECT")[2:]),
    lambda x, w: tf.pad(x, [[1, 1], [0, 0]], "REFLECT")[1:-1] + tf.pad(x, [[1, 1], [0, 0]], "REFLECT")[2:],
)
