"""Where the backward pass runs, by families of ops."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import tensorflow as tf
from case_table import XY, W, clean, each, fault, mse_setup, rnd

import harness


def _family(name, fn_of, inputs, variables=lambda: [], rows=True):
    """fn_of(variables) -> fn: plain towers under the caller's tape are the fault; make_parallel is the clean twin."""

    def wrong(dev):
        vs = variables()
        fn = fn_of(*vs)

        def par(**kw):
            names = list(kw)
            parts = {k: tf.split(v, len(dev)) for k, v in kw.items()}
            out = []
            for i, d in enumerate(dev):
                with tf.device(d):
                    out.append(fn(**{k: parts[k][i] for k in names}))
            return tf.concat(out, 0)

        return dict(parallel=par, reference=fn, inputs=inputs, variables=vs, gradients=True)

    def right(dev):
        vs = variables()
        fn = fn_of(*vs)
        devices = dev.devices
        return dict(
            parallel=harness.make_parallel(fn, devices), reference=fn, inputs=inputs, variables=vs, gradients=True
        )

    fault("gradient-placement", name=f"backward_{name}_on_device_0")(wrong)
    clean(name=f"backward_{name}_in_place")(right)


V = tf.Variable
_family(
    "conv_pool",
    lambda k: (
        lambda x: tf.reduce_mean(tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, k, 1, "SAME")), 2, 2, "SAME"), [1, 2])
    ),
    {"x": rnd(8, 8, 8, 2)},
    lambda: [V(rnd(3, 3, 2, 4, seed=2), name="k")],
)
_family(
    "depthwise_batchnorm",
    lambda k, g: (
        lambda x: tf.nn.batch_normalization(tf.nn.depthwise_conv2d(x, k, [1, 1, 1, 1], "SAME"), 0.1, 1.3, None, g, 1e-3)
    ),
    {"x": rnd(8, 6, 6, 2)},
    lambda: [V(rnd(3, 3, 2, 1, seed=2), name="k"), V(rnd(2, seed=5), name="g")],
)
_family(
    "while_loop",
    lambda w: lambda x: tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.tanh(tf.matmul(a, w))), (0, x))[1],
    {"x": rnd(8, 6)},
    lambda: [V(rnd(6, 6, seed=2) * 0.4, name="w")],
)
_family(
    "cond",
    lambda w: (
        lambda x: tf.cond(tf.reduce_sum(x) > -1e9, lambda: tf.sin(tf.matmul(x, w)), lambda: tf.cos(tf.matmul(x, w)))
    ),
    {"x": rnd(8, 6)},
    lambda: [V(W, name="w")],
)
_family(
    "scan",
    lambda w: (
        lambda x: tf.transpose(
            tf.scan(
                lambda s, t: tf.tanh(tf.matmul(s, w) + t), tf.transpose(x, [1, 0, 2]), tf.zeros([tf.shape(x)[0], 4])
            ),
            [1, 0, 2],
        )
    ),
    {"x": rnd(8, 3, 4)},
    lambda: [V(rnd(4, 4, seed=2) * 0.4, name="w")],
)
_family(
    "einsum_softmax",
    lambda w: lambda x: tf.einsum("bqk,bkd->bqd", tf.nn.softmax(tf.einsum("bqd,de,bke->bqk", x, w, x)), x),
    {"x": rnd(8, 5, 4)},
    lambda: [V(rnd(4, 4, seed=2), name="w")],
)
_family(
    "solve",
    lambda w: (
        lambda x: tf.linalg.solve(
            tf.matmul(x, x, transpose_b=True) + 4.0 * tf.eye(4), tf.broadcast_to(w, [tf.shape(x)[0], 4, 2])
        )
    ),
    {"x": rnd(8, 4, 4)},
    lambda: [V(rnd(4, 2, seed=2), name="w")],
)
_family(
    "cholesky_logdet",
    lambda w: lambda x: tf.linalg.logdet(tf.matmul(x, x, transpose_b=True) + 4.0 * tf.eye(4) * tf.exp(w)),
    {"x": rnd(8, 4, 4)},
    lambda: [V(0.3, name="w")],
)
_family(
    "fft",
    lambda w: lambda x: tf.abs(tf.signal.rfft(x * w)) ** 2,
    {"x": rnd(8, 16)},
    lambda: [V(rnd(16, seed=2), name="w")],
)
_family(
    "resize",
    lambda w: lambda x: tf.tanh(tf.image.resize(x * w, [7, 7])),
    {"x": rnd(8, 4, 4, 2)},
    lambda: [V(rnd(2, seed=2), name="w")],
)
_family(
    "gather_segments",
    lambda w: lambda i: tf.tanh(tf.reduce_sum(tf.gather(tf.identity(w) * 1.5, i), 1)),
    {"i": np.arange(24).reshape(8, 3) % 11},
    lambda: [V(rnd(11, 4, seed=2), name="w")],
)
_family(
    "nested_function",
    lambda w: (lambda f: lambda x: f(x))(tf.function(lambda x: tf.tanh(tf.matmul(x, w)))),
    {"x": rnd(8, 6)},
    lambda: [V(W, name="w")],
)
_family(
    "layer_norm_gelu",
    lambda g, w: (
        lambda x: tf.nn.gelu(
            tf.matmul(
                (x - tf.reduce_mean(x, 1, keepdims=True))
                * tf.math.rsqrt(tf.math.reduce_variance(x, 1, keepdims=True) + 1e-5)
                * g,
                w,
            )
        )
    ),
    {"x": rnd(8, 6)},
    lambda: [V(rnd(6, seed=3), name="g"), V(W, name="w")],
)
_family(
    "recompute",
    lambda w: lambda x: tf.recompute_grad(lambda p: tf.tanh(tf.matmul(p, w)))(x),
    {"x": rnd(8, 6)},
    lambda: [V(W, name="w")],
)
_family(
    "cumulative_sort",
    lambda w: lambda x: tf.cumsum(tf.sort(x, 1) * w, 1),
    {"x": rnd(8, 6)},
    lambda: [V(rnd(6, seed=2), name="w")],
)
_family(
    "crossentropy",
    lambda w: lambda x: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(x[:, :5]), tf.matmul(x, w)),
    {"x": rnd(8, 6)},
    lambda: [V(W, name="w")],
)
_family(
    "half",
    lambda w: lambda x: tf.cast(tf.nn.relu(tf.matmul(tf.cast(x, tf.float16), tf.cast(w, tf.float16))), tf.float32),
    {"x": rnd(8, 64)},
    lambda: [V(rnd(64, 33, seed=2), name="w")],
)
_family(
    "double",
    lambda w: lambda x: tf.math.lgamma(tf.abs(tf.matmul(x, w)) + 1.0),
    {"x": rnd(8, 6, dtype="float64")},
    lambda: [V(rnd(6, 5, seed=2, dtype="float64"), name="w")],
)


@fault("gradient-placement")
def one_tape_closed_outside(dev):
    v, loss, grad = mse_setup()

    def par(x, y):
        gs = []
        for i, (d, p, q) in enumerate(zip(dev, tf.split(x, len(dev)), tf.split(y, len(dev)))):
            with tf.device(d), tf.GradientTape() as t:
                l = loss(p, q)
                if i != 3:
                    pass
            if i == 3:
                gs.append(t.gradient(l, v))
            else:
                with tf.device(d):
                    gs.append(t.gradient(l, v))
        return tf.add_n(gs) / float(len(dev))

    return dict(parallel=par, reference=lambda x, y: grad(x, y)[1], inputs=XY, gradients=False)


@fault("gradient-placement")
def backward_on_the_mirrored_device(dev):
    v, loss, grad = mse_setup()

    def par(x, y):
        tapes = []
        for d, p, q in zip(dev, tf.split(x, len(dev)), tf.split(y, len(dev))):
            with tf.device(d), tf.GradientTape() as t:
                tapes.append((t, loss(p, q)))
        gs = []
        for d, (t, l) in zip(dev, reversed(tapes)):  # backward in reverse order, devices not
            with tf.device(d):
                gs.append(t.gradient(l, v))
        return tf.add_n(gs) / float(len(dev))

    return dict(parallel=par, reference=lambda x, y: grad(x, y)[1], inputs=XY, gradients=False)


@fault("gradient-placement")
def keras_model_towers_one_backward(dev):
    m = tf.keras.Sequential(
        [
            tf.keras.Input((6,)),
            tf.keras.layers.Dense(8, activation="relu"),
            tf.keras.layers.LayerNormalization(),
            tf.keras.layers.Dense(3),
        ]
    )
    vs = [w.value for w in m.trainable_weights]

    def ref(x):
        with tf.GradientTape() as t:
            l = tf.reduce_mean(m(x) ** 2)
        return l, t.gradient(l, vs)

    def par(x):
        with tf.GradientTape() as t:
            l = tf.add_n(each(dev, lambda p: tf.reduce_mean(m(p) ** 2), x)) / float(len(dev))
        return l, t.gradient(l, vs)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)
