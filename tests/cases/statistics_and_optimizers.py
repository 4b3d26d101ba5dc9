"""Statistics of a batch, state that both programs carry, and optimizers."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import tensorflow as tf
from case_table import XY, W, clean, each, fault, mean_grads, mse_setup, pair, rnd, tower_grads


@pair("batch_norm", "value")
def _(dev, bad):
    def ref(x):
        m, s = tf.nn.moments(x, 0)
        return tf.nn.batch_normalization(x, m, s, None, None, 1e-3)

    def par(x):
        if bad:
            return tf.concat(each(dev, ref, x), 0)
        n = float(x.shape[0])
        m = tf.add_n(each(dev, lambda p: tf.reduce_sum(p, 0), x)) / n
        s = tf.add_n(each(dev, lambda p: tf.reduce_sum((p - m) ** 2, 0), x)) / n
        return tf.concat(each(dev, lambda p: tf.nn.batch_normalization(p, m, s, None, None, 1e-3), x), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(12, 6)})


@pair("moving_mean", "value")
def _(dev, bad):
    mm = tf.Variable(tf.zeros(6), trainable=False, name="moving_mean")

    def ref(x):
        mm.assign(0.9 * mm + 0.1 * tf.reduce_mean(x, 0))
        return tf.tanh(x)

    def par(x):
        means = each(dev, lambda p: tf.reduce_mean(p, 0), x)
        if bad:
            for m in means:
                mm.assign(0.9 * mm + 0.1 * m)
        else:
            mm.assign(0.9 * mm + 0.1 * (tf.add_n(means) / float(len(dev))))
        return tf.concat(each(dev, tf.tanh, x), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, variables=[mm], gradients=False)


@fault("value")
def moving_mean_of_the_last_tower(dev):
    mm = tf.Variable(tf.zeros(6), trainable=False)

    def ref(x):
        mm.assign(tf.reduce_mean(x, 0))
        return tf.tanh(x)

    def par(x):
        def one(p):
            mm.assign(tf.reduce_mean(p, 0))
            return tf.tanh(p)

        return tf.concat(each(dev, one, x), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)})  # nobody names the variable


@pair("dropout_mask", "value")
def _(dev, bad):
    def ref(x):
        return x * tf.cast(tf.random.stateless_uniform(tf.shape(x), [3, 4]) > 0.5, tf.float32)

    def par(x):
        if bad:
            return tf.concat(each(dev, ref, x), 0)
        mask = tf.cast(tf.random.stateless_uniform(tf.shape(x), [3, 4]) > 0.5, tf.float32)
        return tf.concat(each(dev, lambda p, m: p * m, x, mask), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)})


@pair("row_seeds", "value")
def _(dev, bad):
    """Noise by a seed for each row: the same on any number of devices, if the row's own number is used."""

    def noise(rows):
        return tf.map_fn(
            lambda r: tf.random.stateless_normal([6], tf.stack([r, 7])), rows, fn_output_signature=tf.float32
        )

    def ref(x):
        return x + noise(tf.range(8, dtype=tf.int64))

    def par(x):
        rows = tf.range(8, dtype=tf.int64)
        if bad:
            rows = rows % 2  # the number in the shard
        return tf.concat(each(dev, lambda p, r: p + noise(r), x, rows), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)})


@pair("learning_rate_schedule", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()
    step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
    rate = lambda: 0.1 * tf.pow(0.5, tf.cast(step, tf.float32))

    def ref(x, y):
        for _i in range(2):
            v.assign_sub(rate() * grad(x, y)[1])
            step.assign_add(1)
        return tf.reduce_sum(v)

    def par(x, y):
        for _i in range(2):

            def one(p, q):
                if bad:
                    step.assign_add(1)
                with tf.GradientTape() as t:
                    l = loss(p, q)
                return l, [t.gradient(l, v)]

            r = rate()
            v.assign_sub(r * mean_grads(each(dev, one, x, y))[0])
            if not bad:
                step.assign_add(1)
        return tf.reduce_sum(v)

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v])


@fault("value")
def only_the_step_counter_is_wrong(dev):
    v, loss, grad = mse_setup()
    step = tf.Variable(0, dtype=tf.int64, trainable=False)

    def ref(x, y):
        v.assign_sub(0.1 * grad(x, y)[1])
        step.assign_add(1)
        return tf.reduce_sum(v)

    def par(x, y):
        def one(p, q):
            step.assign_add(1)
            with tf.GradientTape() as t:
                l = loss(p, q)
            return l, [t.gradient(l, v)]

        v.assign_sub(0.1 * mean_grads(each(dev, one, x, y))[0])
        return tf.reduce_sum(v)

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v])


@pair("token_counts", "value")
def _(dev, bad):
    """A vector of int64 counts that both programs carry; nobody names it."""
    counts = tf.Variable(tf.zeros([5], tf.int64), trainable=False, name="counts")

    def count(i):
        return tf.math.bincount(tf.cast(i, tf.int32), minlength=5, maxlength=5, dtype=tf.int64)

    def ref(i):
        counts.assign_add(count(i))
        return tf.cast(i, tf.float32) * 2.0

    def par(i):
        out = []
        for d, p in zip(dev, tf.split(i, len(dev))):
            with tf.device(d):
                counts.assign_add(count(i if bad else p))  # the whole batch in each tower
                out.append(tf.cast(p, tf.float32) * 2.0)
        return tf.concat(out, 0)

    return dict(parallel=par, reference=ref, inputs={"i": np.arange(12) % 5})


@pair("weight_average", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()
    shadow = tf.Variable(W, trainable=False, name="shadow")

    def ref(x, y):
        v.assign_sub(0.1 * grad(x, y)[1])
        shadow.assign(0.99 * shadow + 0.01 * v)
        return tf.reduce_sum(v)

    def par(x, y):
        v.assign_sub(0.1 * mean_grads(tower_grads(dev, loss, [v], x, y))[0])
        for _i in range(len(dev) if bad else 1):
            shadow.assign(0.99 * shadow + 0.01 * v)
        return tf.reduce_sum(v)

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v, shadow])


@pair("adam_once", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()
    one, other = tf.keras.optimizers.Adam(0.05), tf.keras.optimizers.Adam(0.05)
    one.build([v])
    other.build([v])

    def ref(x, y):
        one.apply([grad(x, y)[1]], [v])
        return tf.reduce_sum(v)

    def par(x, y):
        s = tower_grads(dev, loss, [v], x, y)
        if bad:
            for _, g in s:
                other.apply([g[0] / float(len(dev))], [v])
        else:
            other.apply(mean_grads(s), [v])
        return tf.reduce_sum(v)

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v])


@clean()
def optimizers_of_both_sides_in_one_object(dev):
    """A test class holds both optimizers: each side can reach the other's."""
    v, loss, grad = mse_setup()

    class Sides:
        def __init__(self):
            self.single, self.multi = tf.keras.optimizers.Adam(0.05), tf.keras.optimizers.Adam(0.05)
            self.single.build([v])
            self.multi.build([v])

        def ref(self, x, y):
            self.single.apply([grad(x, y)[1]], [v])
            return tf.reduce_sum(v)

        def par(self, x, y):
            self.multi.apply(mean_grads(tower_grads(dev, loss, [v], x, y)), [v])
            return tf.reduce_sum(v)

    both = Sides()
    return dict(parallel=both.par, reference=both.ref, inputs=XY, variables=[v])


@pair("adamw_decay", "value")
def _(dev, bad):
    """AdamW's decay goes into the gradient (as L2) in the port to several devices."""
    v, loss, grad = mse_setup()
    a, b = (
        tf.keras.optimizers.AdamW(0.05, weight_decay=0.1),
        (tf.keras.optimizers.Adam(0.05) if bad else tf.keras.optimizers.AdamW(0.05, weight_decay=0.1)),
    )
    for o in (a, b):
        o.build([v])

    def ref(x, y):
        a.apply([grad(x, y)[1]], [v])
        return tf.reduce_sum(v)

    def par(x, y):
        g = mean_grads(tower_grads(dev, loss, [v], x, y))[0]
        b.apply([g + 0.1 * v if bad else g], [v])
        return tf.reduce_sum(v)

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v])


@fault("variable-placement", modes=("graph",), n=2)
def slots_built_in_a_graph(dev):
    ws = []
    for i, d in enumerate(dev):
        with tf.device(d):
            ws.append(tf.Variable(rnd(6, 6, seed=i), name=f"layer{i}"))
    lazy, built = tf.keras.optimizers.Adam(0.05), tf.keras.optimizers.Adam(0.05)
    built.build(ws)

    def step(opt, x, scoped):
        with tf.GradientTape() as t:
            h = x
            for d, w in zip(dev, ws):
                with tf.device(d if scoped else dev[0]):
                    h = tf.tanh(tf.matmul(h, w))
            with tf.device(dev[-1] if scoped else dev[0]):
                l = tf.reduce_mean(h**2)
        g = t.gradient(l, ws)
        opt.apply(g, ws)
        return l

    return dict(
        parallel=lambda x: step(lazy, x, True),
        reference=lambda x: step(built, x, False),
        inputs={"x": rnd(8, 6)},
        variables=ws,
        gradients=False,
    )
