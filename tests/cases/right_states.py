"""Right programs whose state is in classes, globals and data classes."""
# mypy: ignore-errors

from __future__ import annotations

import dataclasses

import tensorflow as tf
from case_table import XY, W, clean, each, mean_grads, tower_grads


@dataclasses.dataclass(slots=True)
class TrainState:
    w: object
    step: object


@clean()
def state_in_a_slots_dataclass(dev):
    s = TrainState(tf.Variable(W), tf.Variable(0, dtype=tf.int64, trainable=False))

    def loss(p, q):
        return tf.reduce_mean((tf.matmul(p, s.w) - q) ** 2)

    def update(g):
        s.w.assign_sub(0.1 * g)
        s.step.assign_add(1)
        return tf.reduce_sum(s.w) + tf.cast(s.step, tf.float32)

    def ref(x, y):
        with tf.GradientTape() as t:
            l = loss(x, y)
        return update(t.gradient(l, s.w))

    return dict(
        parallel=lambda x, y: update(mean_grads(tower_grads(dev, loss, [s.w], x, y))[0]),
        reference=ref,
        inputs=XY,
        gradients=False,
    )


@clean()
def state_in_a_class(dev):
    class Config:
        w = tf.Variable(W)

    def loss(p, q):
        return tf.reduce_mean((tf.matmul(p, Config.w) - q) ** 2)

    def ref(x, y):
        with tf.GradientTape() as t:
            l = loss(x, y)
        Config.w.assign_sub(0.1 * t.gradient(l, Config.w))
        return tf.reduce_sum(Config.w)

    def par(x, y):
        Config.w.assign_sub(0.1 * mean_grads(tower_grads(dev, loss, [Config.w], x, y))[0])
        return tf.reduce_sum(Config.w)

    return dict(parallel=par, reference=ref, inputs=XY, gradients=False)


@clean()
def global_state_in_an_inner_function(dev):
    """As in a script: a global variable that only an inner function names."""
    space = {"tf": tf, "W": W, "dev": dev, "each": each, "tower_grads": tower_grads, "mean_grads": mean_grads}
    exec(
        """
GLOBAL_W = tf.Variable(W)
def loss(p, q):
    return tf.reduce_mean((tf.matmul(p, GLOBAL_W) - q) ** 2)
def ref(x, y):
    def step():
        with tf.GradientTape() as t:
            l = tf.reduce_mean((tf.matmul(x, GLOBAL_W) - y) ** 2)
        GLOBAL_W.assign_sub(0.1 * t.gradient(l, GLOBAL_W))
        return tf.reduce_sum(GLOBAL_W)
    return step()
def par(x, y):
    def step():
        GLOBAL_W.assign_sub(0.1 * mean_grads(tower_grads(dev, lambda p, q: tf.reduce_mean((tf.matmul(p, GLOBAL_W) - q) ** 2), [GLOBAL_W], x, y))[0])
        return tf.reduce_sum(GLOBAL_W)
    return step()
""",
        space,
    )
    return dict(parallel=space["par"], reference=space["ref"], inputs=XY, gradients=False)
