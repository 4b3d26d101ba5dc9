"""Sparse gradients, and tables that are split over devices."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import tensorflow as tf
from case_table import clean, each, fault, pair, rnd


@pair("indexed_slices", "value")
def _(dev, bad):
    table = tf.Variable(rnd(9, 3, seed=2), name="table")

    def g(i):
        with tf.GradientTape() as t:
            l = tf.reduce_sum(tf.gather(tf.convert_to_tensor(table), i) ** 2)
        return tf.convert_to_tensor(t.gradient(l, table))

    def gs(i):
        return tf.gather(tf.identity(table), i) * 2.0, i

    def ref(i):
        return g(i)

    def par(i):
        parts = each(dev, gs, i)
        if bad:  # values averaged as if the rows were the same, first tower's indices
            return tf.math.unsorted_segment_sum(tf.add_n([p[0] for p in parts]), parts[0][1], 9)
        return tf.math.unsorted_segment_sum(tf.concat([p[0] for p in parts], 0), tf.concat([p[1] for p in parts], 0), 9)

    return dict(parallel=par, reference=ref, inputs={"i": np.array([0, 1, 1, 2, 7, 7, 7, 8])}, gradients=False)


@fault("value")
def duplicate_rows_overwrite(dev):
    table = tf.Variable(rnd(9, 3, seed=2))
    i = np.array([[0], [1], [1], [2], [7], [7], [7], [8]])

    def ref(u):
        table.assign(tf.tensor_scatter_nd_sub(table, i, u))
        return tf.reduce_sum(u)

    def par(u):
        t = tf.identity(table)
        parts = each(dev, lambda p: p * 1.5 / 1.5, u)
        u = tf.concat(parts, 0)
        table.assign(tf.tensor_scatter_nd_update(t, i, tf.gather_nd(t, i) - u))
        return tf.reduce_sum(u)

    return dict(parallel=par, reference=ref, inputs={"u": rnd(8, 3)}, variables=[table], gradients=False)


@pair("embedding_by_mod", "value")
def _(dev, bad):
    full = rnd(16, 3, seed=2)
    n = len(dev)
    tables = []
    for k, d in enumerate(dev):
        with tf.device(d):
            tables.append(tf.constant(full[k::n]))

    def ref(i):
        return tf.gather(full, i)

    def par(i):
        out = []
        for k, (d, t) in enumerate(zip(dev, tables)):
            with tf.device(d):
                here = tf.cast(i % n == k, tf.float32)[:, None]
                at = i // n if not bad else i % 4  # "div" index into a "mod" table
                out.append(tf.gather(t, at) * here)
        return tf.add_n(out)

    return dict(parallel=par, reference=ref, inputs={"i": np.array([0, 3, 5, 15, 7, 8, 9, 2])})


@clean()
def keras_embedding_of_device_0(dev):
    """A Keras Embedding that lives on device 0, called in each tower: Keras 3 reads it and gathers in the tower."""
    layer = tf.keras.layers.Embedding(20, 4)
    with tf.device(dev[0]):
        layer.build((None,))

    def fn(i):
        return tf.tanh(layer(i))

    def par(i):
        return tf.concat(each(dev, fn, i), 0)

    return dict(parallel=par, reference=fn, inputs={"i": np.arange(8)}, gradients=False)


@pair("vocabulary_parallel_cross_entropy", "value")
def _(dev, bad):
    w = rnd(6, 16, seed=3) * 3

    def ref(x, y):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.matmul(x, w))

    def par(x, y):
        n, k = len(dev), 16 // len(dev)
        logits = []
        for d, c in zip(dev, tf.split(w, n, axis=1)):
            with tf.device(d):
                logits.append(tf.matmul(x, c))
        top = []
        for d, l in zip(dev, logits):
            with tf.device(d):
                top.append(tf.reduce_max(l, 1))
        m = tf.reduce_max(tf.stack(top), 0)
        sums, hit = [], []
        for j, (d, l) in enumerate(zip(dev, logits)):
            with tf.device(d):
                own = top[j] if bad else m  # each shard subtracts its own maximum
                sums.append(tf.reduce_sum(tf.exp(l - own[:, None]), 1))
                at = y - j * k
                inside = (at >= 0) & (at < k)
                hit.append(tf.where(inside, tf.gather(l, tf.clip_by_value(at, 0, k - 1), batch_dims=1), 0.0))
        return tf.math.log(tf.add_n(sums)) + m - tf.add_n(hit)

    return dict(
        parallel=par, reference=ref, inputs={"x": rnd(8, 6), "y": np.array([0, 3, 5, 15, 7, 8, 9, 2])}, gradients=False
    )
