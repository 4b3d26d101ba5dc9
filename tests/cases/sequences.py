"""Sequences, convolutions and attention, split along an axis."""
# mypy: ignore-errors

from __future__ import annotations

import tensorflow as tf
from case_table import fault, pair, rnd


@pair("sequence_parallel_cumsum", "value")
def _(dev, bad):
    def ref(x):
        return tf.cumsum(x, 1)

    def par(x):
        out, carry = [], 0.0
        for d, p in zip(dev, tf.split(x, len(dev), axis=1)):
            with tf.device(d):
                c = tf.cumsum(p, 1) + (0.0 if bad else carry)
                out.append(c)
                carry = c[:, -1:]
        return tf.concat(out, 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(3, 16)})


@pair("rnn_state", "value")
def _(dev, bad):
    a, b = rnd(4, 4, seed=2) * 0.3, rnd(6, 4, seed=3)

    def run(x, h):
        out = tf.scan(lambda s, t: tf.tanh(tf.matmul(s, a) + tf.matmul(t, b)), tf.transpose(x, [1, 0, 2]), h)
        return out[-1]

    def ref(x):
        return run(x, tf.zeros([x.shape[0], 4]))

    def par(x):
        out, h = [], tf.zeros([2, 4])
        for d, p in zip(dev, tf.split(x, len(dev))):
            with tf.device(d):
                o = run(p, h)
                out.append(o)
                if bad:
                    h = o  # the state of the rows before goes on to other rows
        return tf.concat(out, 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 5, 6)}, gradients=False)


@pair("spatial_convolution", "value")
def _(dev, bad):
    k = rnd(3, 3, 2, 3, seed=2)

    def ref(x):
        return tf.nn.conv2d(x, k, 1, "SAME")

    def par(x):
        h = x.shape[1] // len(dev)
        padded = tf.pad(x, [[0, 0], [1, 1], [0, 0], [0, 0]])
        out = []
        for i, d in enumerate(dev):
            with tf.device(d):
                if bad:  # no rows of the neighbours
                    out.append(tf.nn.conv2d(x[:, i * h : (i + 1) * h], k, 1, "SAME"))
                else:
                    part = tf.pad(padded[:, i * h : (i + 1) * h + 2], [[0, 0], [0, 0], [1, 1], [0, 0]])
                    out.append(tf.nn.conv2d(part, k, 1, "VALID"))
        return tf.concat(out, 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(2, 16, 5, 2)}, gradients=False)


@fault("value")
def strides_start_anew_in_each_strip(dev):
    k = rnd(3, 3, 2, 3, seed=2)

    def ref(x):
        return tf.nn.conv2d(x, k, 2, "VALID")[:, :4]

    def par(x):
        out = []
        for i, d in enumerate(dev):
            with tf.device(d):
                out.append(tf.nn.conv2d(x[:, i * 3 : i * 3 + 3], k, 2, "VALID"))
        return tf.concat(out, 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(2, 12, 7, 2)}, gradients=False)


@pair("causal_attention", "value")
def _(dev, bad):
    def attend(q, k, offset):
        s = tf.matmul(q, k, transpose_b=True)
        rows = tf.range(tf.shape(q)[1])[:, None] + offset
        s = tf.where(rows >= tf.range(tf.shape(k)[1])[None, :], s, -1e9)
        return tf.matmul(tf.nn.softmax(s), k)

    def ref(x):
        return attend(x, x, 0)

    def par(x):
        out = []
        for i, (d, q) in enumerate(zip(dev, tf.split(x, len(dev), axis=1))):
            with tf.device(d):
                out.append(attend(q, x, 0 if bad else i * q.shape[1]))
        return tf.concat(out, 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(2, 12, 4)}, gradients=False)


@pair("ring_attention", "value")
def _(dev, bad):
    """Blocks of keys on each device, merged by their log-sum-exp."""

    def ref(q, k):
        return tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 20.0), k)

    def par(q, k):
        parts = []
        for d, b in zip(dev, tf.split(k, len(dev), axis=1)):
            with tf.device(d):
                s = tf.matmul(q, b, transpose_b=True) * 20.0
                m = tf.reduce_max(s, -1, keepdims=True)
                e = tf.exp(s - m)
                parts.append((m, tf.reduce_sum(e, -1, keepdims=True), tf.matmul(e, b)))
        m = tf.reduce_max(tf.stack([p[0] for p in parts]), 0)
        top = tf.add_n([o * (1.0 if bad else tf.exp(a - m)) for a, _, o in parts])
        low = tf.add_n([z * (1.0 if bad else tf.exp(a - m)) for a, z, _ in parts])
        return top / low

    return dict(parallel=par, reference=ref, inputs={"q": rnd(2, 3, 4), "k": rnd(2, 16, 4, seed=3)}, gradients=False)


@fault("value")
def rotary_positions_start_anew(dev):
    def rope(x, start):
        t = tf.cast(tf.range(x.shape[1]) + start, tf.float32)[:, None] * tf.constant([1.0, 0.1])
        a, b = tf.split(x, 2, axis=-1)
        return tf.concat([a * tf.cos(t) - b * tf.sin(t), a * tf.sin(t) + b * tf.cos(t)], -1)

    def par(x):
        out = []
        for d, p in zip(dev, tf.split(x, len(dev), axis=1)):
            with tf.device(d):
                out.append(rope(p, 0))
        return tf.concat(out, 1)

    return dict(parallel=par, reference=lambda x: rope(x, 0), inputs={"x": rnd(2, 12, 4)}, gradients=False)


@fault("value")
def bias_columns_transposed_einsum(dev):
    m = rnd(5, 5, seed=3)

    def ref(x):
        return tf.einsum("bij,jk->bik", x, m)

    def par(x):
        out = []
        for i, (d, p) in enumerate(zip(dev, tf.split(x, len(dev)))):
            with tf.device(d):
                out.append(tf.einsum("bij,jk->bik" if i else "bij,kj->bik", p, m))
        return tf.concat(out, 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 3, 5)})
