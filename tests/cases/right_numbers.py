"""Right programs whose numbers are hard: lookups, ties, cancellation, long sums."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import tensorflow as tf
from case_table import XY, W, clean, each, mean_grads, rnd, tower_grads


@clean()
def table_lookup_in_towers(dev):
    """A lookup table lives on the host; TensorFlow looks up there."""
    t = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b", "c"]), tf.constant([1, 2, 3], tf.int64)), -1
    )

    def fn(s):
        return tf.one_hot(t.lookup(s) + 1, 5) * 2.0

    return dict(
        parallel=lambda s: tf.concat(each(dev, fn, s), 0),
        reference=fn,
        inputs={"s": np.array([b"a", b"b", b"x", b"c", b"a", b"q", b"b", b"c"])},
        gradients=False,
    )


@clean()
def table_lookup_on_the_host(dev):
    t = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b", "c"]), tf.constant([1, 2, 3], tf.int64)), 0
    )
    e = rnd(4, 3)

    def ref(s):
        return tf.tanh(tf.gather(e, t.lookup(s)))

    def par(s):
        i = t.lookup(s)
        return tf.concat(each(dev, lambda p: tf.tanh(tf.gather(e, p)), i), 0)

    return dict(
        parallel=par,
        reference=ref,
        inputs={"s": np.array([b"a", b"b", b"x", b"c", b"a", b"q", b"b", b"c"])},
        gradients=False,
    )


@clean()
def predicted_classes_in_bfloat16(dev):
    """Classes of a contraction split over devices: near ties go either way in bfloat16."""
    w = rnd(256, 40, seed=3)

    def ref(x):
        return tf.argmax(tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(w, tf.bfloat16)), 1)

    def par(x):
        out = []
        for d, p, q in zip(dev, tf.split(x, len(dev), axis=1), tf.split(w, len(dev), axis=0)):
            with tf.device(d):
                out.append(tf.matmul(tf.cast(p, tf.bfloat16), tf.cast(q, tf.bfloat16)))
        return tf.argmax(tf.add_n(out), 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(200, 256)}, gradients=False)


@clean()
def quantised_after_a_sum(dev):
    """int8 activations of a split contraction: at a half, the last bit decides."""
    w = rnd(256, 40, seed=3)

    def q(y):
        return tf.cast(tf.clip_by_value(tf.round(y * 1000.0), -30000, 30000), tf.int16)

    def ref(x):
        return q(tf.matmul(x, w))

    def par(x):
        out = []
        for d, a, b in zip(dev, tf.split(x, len(dev), axis=1), tf.split(w, len(dev), axis=0)):
            with tf.device(d):
                out.append(tf.matmul(a, b))
        return q(tf.add_n(out))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(200, 256)}, gradients=False)


@clean()
def relu_gradient_of_a_split_contraction_in_half(dev):
    a, b = tf.Variable(rnd(64, 32, seed=3)), tf.Variable(rnd(32, 4, seed=4))
    h = lambda t: tf.cast(t, tf.float16)

    def grad(f, x):
        with tf.GradientTape() as t:
            l = tf.reduce_mean(tf.cast(f(x), tf.float32))
        return t.gradient(l, [a, b])

    def ref(x):
        return grad(lambda x: tf.matmul(tf.nn.relu(tf.matmul(h(x), h(a))), h(b)), x)

    def par(x):
        def one(p):
            return grad(lambda x: tf.matmul(tf.nn.relu(tf.matmul(h(x), h(a))), h(b)), p)

        g = each(dev, one, x)
        return [tf.add_n([q[i] for q in g]) / float(len(dev)) for i in range(2)]

    return dict(parallel=par, reference=ref, inputs={"x": rnd(32, 64)}, gradients=False)


@clean()
def residual_near_zero(dev):
    """The mean of standardised features: 0 up to rounding."""

    def ref(x):
        m, s = tf.nn.moments(x, 1, keepdims=True)
        y = (x - m) * tf.math.rsqrt(s + 1e-6)
        return {"y": y, "mean": tf.reduce_mean(y, 1)}

    def par(x):
        s = each(dev, ref, x)
        return {k: tf.concat([t[k] for t in s], 0) for k in s[0]}

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 64)}, gradients=False)


@clean()
def loss_at_the_optimum(dev):
    """Training has converged: loss and gradient are rounding error."""
    v = tf.Variable(W)
    y = rnd(8, 6) @ W

    def loss(p, q):
        return tf.reduce_mean((tf.matmul(p, v) - q) ** 2)

    def ref(x, y):
        with tf.GradientTape() as t:
            l = loss(x, y)
        return l, t.gradient(l, v)

    def par(x, y):
        s = tower_grads(dev, loss, [v], x, y)
        return tf.add_n([l for l, _ in s]) / float(len(dev)), mean_grads(s)[0]

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6), "y": y}, gradients=False)


@clean()
def long_sum_in_float32(dev):
    def ref(x):
        return tf.reduce_sum(tf.exp(x))

    def par(x):
        return tf.add_n(each(dev, ref, x))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(1_000_000)}, gradients=False)


@clean()
def mean_in_float16(dev):
    def ref(x):
        return tf.reduce_mean(x, 0)

    def par(x):
        return tf.add_n(each(dev, lambda p: tf.reduce_mean(p, 0), x)) / tf.constant(len(dev), tf.float16)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(1024, 9, dtype="float16")}, gradients=False)


@clean()
def bfloat16_sum_of_shards(dev):
    def ref(x):
        return tf.reduce_sum(tf.cast(x, tf.bfloat16), 0)

    def par(x):
        return tf.add_n(each(dev, lambda p: tf.reduce_sum(tf.cast(p, tf.bfloat16), 0), x))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(256, 9)}, gradients=False)


@clean()
def thirty_steps_of_momentum(dev):
    v = tf.Variable(W, name="w")
    m = tf.Variable(tf.zeros([6, 5]), trainable=False, name="m")

    def loss(p, q):
        return tf.reduce_mean(tf.abs(tf.matmul(tf.tanh(p), v) - q) ** 1.5)

    def train(grad, x, y):
        for _i in range(30):
            m.assign(0.9 * m + grad(x, y))
            v.assign_sub(0.05 * m)
        return tf.reduce_sum(v)

    def whole(x, y):
        with tf.GradientTape() as t:
            l = loss(x, y)
        return t.gradient(l, v)

    return dict(
        parallel=lambda x, y: train(lambda x, y: mean_grads(tower_grads(dev, loss, [v], x, y))[0], x, y),
        reference=lambda x, y: train(whole, x, y),
        inputs=XY,
        variables=[v, m],
    )
