"""Stages of a pipeline, and members of an ensemble."""
# mypy: ignore-errors

from __future__ import annotations

import tensorflow as tf
from case_table import CLEAN, W, clean, fault, rnd

import harness

L = tf.keras.layers


def _pipe(dev, microbatches, stages):
    return harness.pipeline(stages, dev.devices, microbatches=microbatches)


@clean(n=3)
def pipeline_of_three_keras_stages(dev):
    stages = [L.Dense(8, activation="tanh"), tf.keras.Sequential([L.Dense(8), L.LayerNormalization()]), L.Dense(3)]
    pipe = _pipe(dev, 3, stages)
    x = rnd(10, 6)
    pipe(inputs=x)
    ws = [w.value for s in stages for w in s.trainable_weights]

    def ref(inputs):
        for s in stages:
            inputs = s(inputs)
        return inputs

    return dict(parallel=pipe, reference=ref, inputs={"inputs": x}, variables=ws)


@fault("value", n=2)
def batch_norm_in_micro_batches(dev):
    stages = [lambda x: tf.matmul(x, W), lambda h: tf.nn.batch_normalization(h, *tf.nn.moments(h, 0), None, None, 1e-3)]
    pipe = _pipe(dev, 4, stages)
    return dict(parallel=pipe, reference=lambda x: stages[1](stages[0](x)), inputs={"x": rnd(12, 6)}, gradients=False)


@fault("transfer", n=3)
def skip_connection_over_a_stage(dev):
    ws = []
    for i, d in enumerate(dev):
        with tf.device(d):
            ws.append(tf.Variable(rnd(6, 6, seed=i)))

    def run(x, scopes):
        with tf.device(scopes[0]):
            h0 = tf.tanh(tf.matmul(x, ws[0]))
        with tf.device(scopes[1]):
            h1 = tf.tanh(tf.matmul(h0, ws[1]))
        with tf.device(scopes[2]):
            return tf.matmul(h1 + h0, ws[2])

    return dict(
        parallel=lambda x: run(x, dev),
        reference=lambda x: run(x, [dev[0]] * 3),
        inputs={"x": rnd(8, 6)},
        gradients=False,
        pattern="stages",
    )


@fault("variable-placement", "transfer", n=2)
def second_stage_has_its_weights_on_device_0(dev):
    with tf.device(dev[0]):
        ws = [tf.Variable(rnd(6, 6, seed=i)) for i in range(2)]

    def run(x, scopes):
        for d, w in zip(scopes, ws):
            with tf.device(d):
                x = tf.tanh(tf.matmul(x, w))
        return x

    return dict(
        parallel=lambda x: run(x, dev),
        reference=lambda x: run(x, [dev[0]] * 2),
        inputs={"x": rnd(8, 6)},
        gradients=False,
        pattern="stages",
    )


def _members(dev, mode):
    ws = []
    for i, d in enumerate(dev):
        with tf.device(d):
            ws.append(tf.Variable(rnd(6, 5, seed=i if mode != "seed" else 0), name=f"member{i}"))
    slots = []
    for i, d in enumerate(dev):
        with tf.device(dev[0] if mode == "slots" else d):
            slots.append(tf.Variable(tf.zeros([6, 5]), trainable=False, name=f"momentum{i}"))
    truth = [rnd(6, 5, seed=i) for i in range(len(dev))]

    def train(w, m, x):
        with tf.GradientTape() as t:
            l = tf.reduce_mean(tf.matmul(x, w) ** 2)
        m.assign(0.9 * m + t.gradient(l, w))
        w.assign_sub(0.1 * m)
        return l

    def ref(x):
        out = []
        for i, (w, m) in enumerate(zip(ws, slots)):
            if mode == "seed":
                out.append(tf.reduce_mean(tf.matmul(x, truth[i]) ** 2))
            else:
                out.append(train(w, m, x))
        return out

    def par(x):
        out = []
        for d, w, m in zip(dev, ws, slots):
            with tf.device(d):
                out.append(tf.reduce_mean(tf.matmul(x, w) ** 2) if mode == "seed" else train(w, m, x))
        return out

    return dict(
        parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, variables=ws + slots, gradients=False, pattern="members"
    )


@clean()
def members_trained_with_momentum(dev):
    return _members(dev, "right")


@fault("variable-placement", "transfer", "op-placement")
def momentum_of_all_members_on_device_0(dev):
    return _members(dev, "slots")


@fault("value")
def members_start_from_one_seed(dev):
    return _members(dev, "seed")


@fault("value")
def ensemble_averages_logits(dev):
    ws = [rnd(6, 5, seed=i) * 2 for i in range(4)]

    def ref(x):
        return tf.add_n([tf.nn.softmax(tf.matmul(x, w)) for w in ws]) / 4.0

    def par(x):
        out = []
        for d, w in zip(dev, ws):
            with tf.device(d):
                out.append(tf.matmul(x, w))
        return tf.nn.softmax(tf.add_n(out) / 4.0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)


@clean()
def ensemble_of_probabilities(dev):
    ws = [rnd(6, 5, seed=i) * 2 for i in range(4)]
    models = [lambda x, w=w: tf.nn.softmax(tf.matmul(x, w)) for w in ws]
    both = harness.ensemble(models, dev.devices)
    return dict(
        parallel=lambda x: tf.add_n(both(x=x)) / 4.0,
        reference=lambda x: tf.add_n([m(x) for m in models]) / 4.0,
        inputs={"x": rnd(8, 6)},
        gradients=False,
    )


@fault("value")
def ragged_input_first_shards_only(dev):
    case = CLEAN["ragged_input_reduced"].build(dev)
    return dict(
        case,
        parallel=lambda r: tf.add_n([_exp_sum(d, r[10 * i : 10 * i + 10]) for i, d in enumerate(dev)][:3]),
    )


def _exp_sum(d, r):
    with tf.device(d):
        return tf.reduce_sum(tf.exp(r * 0.31))


@fault("value")
def sparse_input_counted_twice(dev):
    case = CLEAN["sparse_input"].build(dev)
    return dict(case, parallel=lambda s: 2.0 * case["parallel"](s))
