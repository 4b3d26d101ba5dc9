"""Metrics, masks and indices of a batch that is split."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import tensorflow as tf
from case_table import each, fault, pair, rnd


@pair("accuracy", "value")
def _(dev, bad):
    def ref(x, y):
        return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(x, 1), y), tf.float32))

    def par(x, y):
        if bad:
            return tf.add_n(each(dev, ref, x, y))
        hits = each(dev, lambda p, q: tf.reduce_sum(tf.cast(tf.equal(tf.argmax(p, 1), q), tf.float32)), x, y)
        return tf.add_n(hits) / 11.0

    return dict(parallel=par, reference=ref, inputs={"x": rnd(11, 3), "y": np.arange(11) % 3})


@pair("precision", "value")
def _(dev, bad):
    def counts(p, q):
        return tf.reduce_sum(tf.cast((p > 0) & (q > 0), tf.float32)), tf.reduce_sum(tf.cast(p > 0, tf.float32))

    def ref(x, y):
        a, b = counts(x, y)
        return a / b

    def par(x, y):
        c = each(dev, counts, x, y)
        if bad:
            return tf.add_n([a / tf.maximum(b, 1.0) for a, b in c]) / float(len(dev))
        return tf.add_n([a for a, _ in c]) / tf.add_n([b for _, b in c])

    return dict(parallel=par, reference=ref, inputs={"x": rnd(20), "y": rnd(20, seed=3)}, gradients=False)


@fault("value")
def perplexity_of_shards_averaged(dev):
    def ref(x):
        return tf.exp(tf.reduce_mean(x**2))

    def par(x):
        return tf.add_n(each(dev, ref, x)) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)})


@fault("value")
def keras_metric_reset_in_each_tower(dev):
    a, b = tf.keras.metrics.Mean(), tf.keras.metrics.Mean()

    def ref(x):
        a.reset_state()
        a.update_state(x)
        return a.result()

    def par(x):
        for d, p in zip(dev, tf.split(x, len(dev))):
            with tf.device(d):
                b.reset_state()
                b.update_state(p * 1.0)
        return b.result()

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)})


@pair("masked_mean", "value")
def _(dev, bad):
    def parts(p, m):
        return tf.reduce_sum(p * m), tf.reduce_sum(m)

    def ref(x, m):
        a, b = parts(x, m)
        return a / b

    def par(x, m):
        s = each(dev, parts, x, m)
        if bad:
            return tf.add_n([a / b for a, b in s]) / float(len(dev))
        return tf.add_n([a for a, _ in s]) / tf.add_n([b for _, b in s])

    mask = (np.arange(8)[None, :] < np.array([8, 1, 3, 5, 2, 2, 7, 6])[:, None]).astype("float32")
    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 8), "m": mask})


@pair("padding_rows", "value")
def _(dev, bad):
    def ref(x):
        return tf.reduce_mean(tf.exp(x))

    def par(x):
        n = x.shape[0]
        padded = tf.pad(x, [[0, -n % len(dev)], [0, 0]])
        mask = tf.cast(tf.range(padded.shape[0]) < n, tf.float32)[:, None]
        s = each(dev, lambda p, m: tf.reduce_sum(tf.exp(p) * (1.0 if bad else m)), padded, mask)
        return tf.add_n(s) / float((padded.shape[0] if bad else n) * x.shape[1])

    return dict(parallel=par, reference=ref, inputs={"x": rnd(7, 6)})


@pair("argmax_over_rows", "value")
def _(dev, bad):
    def ref(x):
        return tf.argmax(x, 0)

    def par(x):
        s = each(dev, lambda p: (tf.reduce_max(p, 0), tf.argmax(p, 0)), x)
        best = tf.stack([m for m, _ in s])
        at = tf.stack([i + (0 if bad else 2 * k) for k, (_, i) in enumerate(s)])
        return tf.gather(tf.transpose(at), tf.argmax(best, 0), batch_dims=1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 5)})


@pair("top_k", "value")
def _(dev, bad):
    def ref(x):
        return tf.math.top_k(x, 4).values

    def par(x):
        s = each(dev, lambda p: tf.math.top_k(p, 1 if bad else 4).values, x)
        return tf.math.top_k(tf.concat(s, 0), 4).values

    return dict(parallel=par, reference=ref, inputs={"x": rnd(32)})


@fault("value")
def contrastive_loss_within_shards(dev):
    def ref(x):
        logits = tf.matmul(x, x, transpose_b=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(x)[0]), logits))

    def par(x):
        return tf.add_n(each(dev, ref, x)) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)})
