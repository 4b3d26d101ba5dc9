"""Types of numbers: what overflows, cancels or is rounded away."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import tensorflow as tf
from case_table import XY, each, fault, mse_setup, pair, rnd, tower_grads


@pair("loss_scale", "value")
def _(dev, bad):
    v, loss, grad = mse_setup()
    scale = 1024.0

    def ref(x, y):
        return grad(x, y)[1]

    def par(x, y):
        s = tower_grads(dev, lambda p, q: loss(p, q) * scale, [v], x, y)
        g = []
        for i, (d, (_, q)) in enumerate(zip(dev, s)):
            with tf.device(d):
                g.append(q[0] / (scale if not bad or i else scale * 2))  # replica 0 has already grown its scale
        return tf.add_n(g) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs=XY, gradients=False)


@fault("value")
def gradients_reduced_in_bfloat16(dev):
    v, loss, grad = mse_setup()

    def ref(x, y):
        return grad(x, y)[1]

    def par(x, y):
        s = tower_grads(dev, loss, [v], x, y)
        small = [tf.cast(g[0], tf.bfloat16) for _, g in s]
        return tf.cast(tf.add_n(small), tf.float32) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs=XY, gradients=False)


@fault("value")
def gradients_reduced_in_bfloat16_variables_named(dev):
    v, loss, grad = mse_setup()

    def ref(x, y):
        v.assign_sub(0.1 * grad(x, y)[1])
        return tf.reduce_sum(x)

    def par(x, y):
        s = tower_grads(dev, loss, [v], x, y)
        small = [tf.cast(g[0], tf.bfloat16) for _, g in s]
        v.assign_sub(0.1 * tf.cast(tf.add_n(small), tf.float32) / float(len(dev)))
        return tf.reduce_sum(x)

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v])


@fault("value")
def half_overflows_before_the_mean(dev):
    def ref(x):
        return tf.reduce_mean(tf.cast(x, tf.float32) ** 2)

    def par(x):
        s = each(dev, lambda p: tf.reduce_sum(p**2), x)  # float16
        return tf.cast(tf.add_n(s), tf.float32) / float(x.shape[0] * x.shape[1])

    return dict(parallel=par, reference=ref, inputs={"x": (rnd(16, 64) * 20).astype("float16")})


@pair("variance_one_pass", "value")
def _(dev, bad):
    """E[x^2] - E[x]^2 with a large mean cancels; Chan's merge of shard variances does not."""

    def ref(x):
        return tf.math.reduce_variance(x, 0)

    def par(x):
        n = float(x.shape[0])
        if bad:
            s = each(dev, lambda p: (tf.reduce_sum(p, 0), tf.reduce_sum(p * p, 0)), x)
            return tf.add_n([b for _, b in s]) / n - (tf.add_n([a for a, _ in s]) / n) ** 2
        s = each(dev, lambda p: (tf.reduce_mean(p, 0), tf.math.reduce_variance(p, 0)), x)
        m = tf.add_n([a for a, _ in s]) / float(len(dev))
        return (tf.add_n([b for _, b in s]) + tf.add_n([(a - m) ** 2 for a, _ in s])) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs={"x": (1e4 + rnd(64, 3)).astype("float32")}, gradients=False)


@fault("value")
def log_sum_exp_without_maximum(dev):
    def ref(x):
        return tf.reduce_logsumexp(x)

    def par(x):
        return tf.math.log(tf.add_n(each(dev, lambda p: tf.reduce_sum(tf.exp(p)), x)))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 50) * 60})


@fault("value")
def hash_in_int32_on_one_tower(dev):
    def ref(i):
        return (i * 2654435761) % 1000

    def par(i):
        out = []
        for k, (d, p) in enumerate(zip(dev, tf.split(i, len(dev)))):
            with tf.device(d):
                out.append(
                    ref(p)
                    if k != 2
                    else tf.cast(tf.cast(p, tf.int32) * tf.constant(np.int64(2654435761).astype("int32")), tf.int64)
                    % 1000
                )
        return tf.concat(out, 0)

    return dict(parallel=par, reference=ref, inputs={"i": np.arange(1000, 1016)})


@fault("value")
def pixels_added_in_uint8(dev):
    def ref(x):
        return tf.reduce_sum(tf.cast(x, tf.int64))

    def par(x):
        return tf.cast(tf.add_n([tf.cast(s, tf.int64) for s in each(dev, lambda p: tf.reduce_sum(p), x)]), tf.int64)

    return dict(
        parallel=par, reference=ref, inputs={"x": np.random.default_rng(0).integers(0, 255, (8, 9)).astype("uint8")}
    )


@fault("value")
def not_conjugated_on_one_tower(dev):
    def ref(z):
        return tf.matmul(z, z, adjoint_b=True)

    def par(z):
        out = []
        for k, (d, p) in enumerate(zip(dev, tf.split(z, len(dev)))):
            with tf.device(d):
                out.append(ref(p) if k != 1 else tf.matmul(p, p, transpose_b=True))
        return tf.concat(out, 0)

    return dict(
        parallel=par,
        reference=ref,
        inputs={"z": (rnd(8, 4, 4) + 1j * rnd(8, 4, 4, seed=2)).astype("complex64")},
        gradients=False,
    )
