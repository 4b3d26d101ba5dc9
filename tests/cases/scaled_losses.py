"""Losses and gradients of shards, and how they are scaled."""
# mypy: ignore-errors

from __future__ import annotations

import tensorflow as tf
from case_table import XY, each, fault, mean_grads, mse_setup, pair, rnd, sizes, tower_grads


@pair("uneven_mean", "value")
def _(dev, bad):
    def ref(x):
        return tf.reduce_mean(tf.abs(x))

    def par(x):
        cut = sizes(11, len(dev))
        means = each(dev, lambda p: tf.reduce_mean(tf.abs(p)), x)
        if bad:
            return tf.add_n(means) / float(len(dev))
        return tf.add_n([m * (c / 11.0) for m, c in zip(means, cut)])

    return dict(parallel=par, reference=ref, inputs={"x": rnd(11, 6)})


@pair("sgd_step_scale", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()

    def ref(x, y):
        l, g = grad(x, y)
        v.assign_sub(0.1 * g)
        return l

    def par(x, y):
        s = tower_grads(dev, loss, [v], x, y)
        g = tf.add_n([g[0] for _, g in s]) if bad else mean_grads(s)[0]
        v.assign_sub(0.1 * g)
        return tf.add_n([l for l, _ in s]) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v])


@pair("l2_counted", "value")
def _(dev, bad):
    v, loss, _g = mse_setup()

    def ref(x, y):
        with tf.GradientTape() as t:
            l = loss(x, y) + 0.01 * tf.nn.l2_loss(v)
        return t.gradient(l, v)

    def par(x, y):
        k = 1.0 if bad else 1.0 / len(dev)
        s = tower_grads(dev, lambda p, q: loss(p, q) / len(dev) + k * 0.01 * tf.nn.l2_loss(v), [v], x, y)
        return tf.add_n([g[0] for _, g in s])

    return dict(parallel=par, reference=ref, inputs=XY, gradients=False)


@pair("clip", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()

    def ref(x, y):
        return tf.clip_by_norm(grad(x, y)[1], 0.2)

    def par(x, y):
        s = tower_grads(dev, loss, [v], x, y)
        if bad:
            clipped = []
            for d, (_, g) in zip(dev, s):
                with tf.device(d):
                    clipped.append(tf.clip_by_norm(g[0], 0.2))
            return tf.add_n(clipped) / float(len(dev))
        return tf.clip_by_norm(mean_grads(s)[0], 0.2)

    return dict(parallel=par, reference=ref, inputs=XY, gradients=False)


@fault("value")
def labels_of_the_next_shard(dev):
    v, loss, grad = mse_setup()

    def par(x, y):
        s = tower_grads(dev, loss, [v], x, tf.roll(y, 2, 0))
        return tf.add_n([l for l, _ in s]) / float(len(dev)), mean_grads(s)[0]

    return dict(parallel=par, reference=grad, inputs=XY, gradients=False)


@fault("value")
def labels_broadcast_in_a_tower(dev):
    w = rnd(6, 1, seed=3)

    def ref(x, y):
        return tf.reduce_mean((tf.matmul(x, w) - y) ** 2)

    def par(x, y):
        one = lambda p, q: tf.reduce_mean((tf.matmul(p, w)[:, 0] - q) ** 2)  # [n] - [n, 1] is [n, n]
        return tf.add_n(each(dev, one, x, y)) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6), "y": rnd(8, 1, seed=5)})


@pair("accumulation", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()

    def ref(x, y):
        v.assign_sub(0.1 * grad(x, y)[1])
        return tf.reduce_sum(v)

    def par(x, y):
        total = None
        micro = 4
        for k, (xs, ys) in enumerate(zip(tf.split(x, micro), tf.split(y, micro))):
            if bad and k == micro - 1:
                break  # range(1, micro) and a first one by hand: the last micro-batch is lost
            g = mean_grads(tower_grads(dev, loss, [v], xs, ys))[0]
            total = g if total is None else total + g
        v.assign_sub(0.1 * total / float(micro))
        return tf.reduce_sum(v)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(16, 6), "y": rnd(16, 5, seed=7)}, variables=[v])


@pair("accumulator_reset", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()
    acc = tf.Variable(tf.zeros_like(v), trainable=False, name="accumulator")

    def ref(x, y):
        for xs, ys in zip(tf.split(x, 2), tf.split(y, 2)):
            v.assign_sub(0.1 * grad(xs, ys)[1])
        return tf.reduce_sum(v)

    def par(x, y):
        for xs, ys in zip(tf.split(x, 2), tf.split(y, 2)):
            acc.assign_add(mean_grads(tower_grads(dev, loss, [v], xs, ys))[0])
            v.assign_sub(0.1 * acc)
            if not bad:
                acc.assign(tf.zeros_like(acc))
        return tf.reduce_sum(v)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(16, 6), "y": rnd(16, 5, seed=7)}, variables=[v])


@pair("stale_weights_second_step", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()

    def ref(x, y):
        for xs, ys in zip(tf.split(x, 2), tf.split(y, 2)):
            v.assign_sub(0.1 * grad(xs, ys)[1])
        return tf.reduce_sum(v)

    def par(x, y):
        held = tf.identity(v)
        for xs, ys in zip(tf.split(x, 2), tf.split(y, 2)):
            w = held if bad else tf.identity(v)

            def one(p, q):
                with tf.GradientTape() as t:
                    t.watch(w)
                    l = tf.reduce_mean((tf.matmul(p, w) - q) ** 2)
                return l, [t.gradient(l, w)]

            v.assign_sub(0.1 * mean_grads(each(dev, one, xs, ys))[0])
        return tf.reduce_sum(v)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(16, 6), "y": rnd(16, 5, seed=7)}, variables=[v])


@pair("last_writer", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()

    def ref(x, y):
        v.assign(v - 0.1 * grad(x, y)[1])
        return tf.constant(0.0) + tf.reduce_sum(x)

    def par(x, y):
        start = tf.identity(v)
        s = tower_grads(dev, loss, [v], x, y)
        if bad:
            for _, g in s:
                v.assign(start - 0.1 * g[0])
        else:
            v.assign(start - 0.1 * mean_grads(s)[0])
        return tf.constant(0.0) + tf.reduce_sum(x)

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v])
