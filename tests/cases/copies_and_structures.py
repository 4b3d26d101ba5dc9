"""Copies of weights that differ, and results of another type, structure or place."""
# mypy: ignore-errors

from __future__ import annotations

import tensorflow as tf
from case_table import W, each, fault, rnd


@fault("value")
def replica_weights_out_of_sync(dev):
    v = tf.Variable(W)
    copies = []
    for i, d in enumerate(dev):
        with tf.device(d):
            copies.append(tf.Variable(W + (1e-3 if i == 2 else 0.0)))

    def par(x):
        return tf.concat(_per(dev, x, copies), 0)

    return dict(parallel=par, reference=lambda x: tf.matmul(x, v), inputs={"x": rnd(8, 6)})


def _per(dev, x, weights):
    out = []
    for d, p, w in zip(dev, tf.split(x, len(dev)), weights):
        with tf.device(d):
            out.append(tf.matmul(p, w))
    return out


@fault("dtype")
def indices_in_another_integer(dev):
    def par(x):
        return tf.concat(each(dev, lambda p: tf.argmax(p, 1, output_type=tf.int32), x), 0)

    return dict(parallel=par, reference=lambda x: tf.argmax(x, 1), inputs={"x": rnd(8, 6)})


@fault("structure", "value")
def tuple_for_a_dict(dev):
    def ref(x):
        return {"mean": tf.reduce_mean(x, 1), "best": tf.reduce_max(x, 1)}

    def par(x):
        s = each(dev, lambda p: (tf.reduce_mean(p, 1), tf.reduce_max(p, 1)), x)
        return {"mean": tf.concat([b for _, b in s], 0), "best": tf.concat([a for a, _ in s], 0)}

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)})


@fault("op-placement", "error", modes=("eager",))
def generator_leaks_its_scope(dev):
    def shards(x):
        for d, p in zip(dev, tf.split(x, len(dev))):
            with tf.device(d):
                yield tf.tanh(tf.matmul(p, W))

    def par(x):
        g = shards(x)
        out = [next(g) for _ in dev]  # never finished: the scope of the last device stays open
        y = tf.concat(out, 0)
        g.close()
        return y

    return dict(parallel=par, reference=lambda x: tf.tanh(tf.matmul(x, W)), inputs={"x": rnd(8, 6)})


@fault("variable-placement", modes=("eager",))
def keras_layer_built_by_the_first_tower(dev):
    layer, own = tf.keras.layers.Dense(5), tf.keras.layers.Dense(5)
    own.build((None, 6))

    def ref(x):
        if layer.built:
            own.set_weights(layer.get_weights()) if tf.executing_eagerly() else None
        return own(x)

    def par(x):
        return tf.concat(each(dev, layer, x), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)
