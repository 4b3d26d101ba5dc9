"""Right programs that gather, add up and exchange; and inputs and results of many kinds."""
# mypy: ignore-errors

from __future__ import annotations

import collections

import tensorflow as tf
from case_table import W, clean, each, rnd

import harness


@clean()
def all_gather_then_reshape(dev):
    """Every device gathers what all made, merges heads, and goes on: the usual tensor parallel attention output."""
    w = rnd(12, 12, seed=2)

    def ref(x):
        return tf.matmul(tf.reshape(tf.tanh(x), [4, 12]), w)

    def par(x):
        parts = each(dev, tf.tanh, tf.transpose(x, [1, 0, 2]))
        out = []
        for d, c in zip(dev, tf.split(w, len(dev), axis=1)):
            with tf.device(d):
                whole = tf.transpose(tf.concat(parts, 0), [1, 0, 2])
                out.append(tf.matmul(tf.reshape(whole, [4, 12]), c))
        return tf.concat(out, 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(4, 4, 3)}, gradients=False)


@clean()
def all_gather_then_flatten(dev):
    w = rnd(24, 12, seed=2)

    def ref(x):
        return tf.matmul(tf.reshape(tf.tanh(x), [1, 24]), w)

    def par(x):
        parts = each(dev, tf.tanh, x)
        out = []
        for d, c in zip(dev, tf.split(w, len(dev), axis=1)):
            with tf.device(d):
                out.append(tf.matmul(tf.reshape(tf.concat(parts, 0), [1, 24]), c))
        return tf.concat(out, 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 3)}, gradients=False)


@clean()
def tree_of_sums(dev):
    """A tree all-reduce with add_n: pairs on devices 1 and 3, then on the host."""

    def ref(x):
        return tf.reduce_sum(tf.exp(x), 0)

    def par(x):
        s = each(dev, lambda p: tf.reduce_sum(tf.exp(p), 0), x)
        with tf.device(dev[1]):
            a = tf.add_n(s[:2])
        with tf.device(dev[3]):
            b = tf.add_n(s[2:])
        return tf.add_n([a, b])

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)


@clean()
def all_to_all_experts(dev):
    """Tokens go to experts and back: each device joins what all others send it."""
    n = len(dev)
    ws = [rnd(6, 6, seed=i) for i in range(n)]

    def ref(x):
        y = tf.reshape(tf.tanh(x), [n, n, -1, 6])  # [source, expert, tokens, 6]
        return tf.reshape(tf.stack([tf.matmul(y[:, e], ws[e]) for e in range(n)], 1), [-1, 6])

    def par(x):
        sent = each(dev, lambda p: tf.split(tf.tanh(p), n), x)
        made = []
        for e, d in enumerate(dev):
            with tf.device(d):
                made.append(tf.split(tf.matmul(tf.concat([s[e] for s in sent], 0), ws[e]), n))
        back = []
        for s, d in enumerate(dev):
            with tf.device(d):
                back.append(tf.concat([made[e][s] for e in range(n)], 0))
        return tf.concat(back, 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(32, 6)}, gradients=False)


@clean()
def ragged_input(dev):
    r = tf.ragged.constant([[1.0, 2.0], [3.0], [], [4.0, 5.0, 6.0], [7.1], [8.3, 9.0], [1.0], [0.3, 0.4]])

    def fn(r):
        return tf.reduce_sum(tf.tanh(r * 1.7), 1)

    def par(r):
        out = []
        for i, d in enumerate(dev):
            with tf.device(d):
                out.append(fn(r[2 * i : 2 * i + 2]))
        return tf.concat(out, 0)

    return dict(parallel=par, reference=fn, inputs={"r": r}, gradients=False)


@clean()
def ragged_input_reduced(dev):
    r = tf.ragged.constant([[float(j + 0.1 * i) for j in range(i % 5)] for i in range(40)])

    def ref(r):
        return tf.reduce_sum(tf.exp(r * 0.31))

    def par(r):
        out = []
        for i, d in enumerate(dev):
            with tf.device(d):
                out.append(tf.reduce_sum(tf.exp(r[10 * i : 10 * i + 10] * 0.31)))
        return tf.add_n(out)

    return dict(parallel=par, reference=ref, inputs={"r": r}, gradients=False)


@clean()
def sparse_input(dev):
    s = tf.sparse.from_dense(rnd(40, 300) * (rnd(40, 300, seed=4) > 0))
    w = rnd(300, 4, seed=2)

    def ref(s):
        return tf.reduce_sum(tf.sparse.sparse_dense_matmul(s, w), 0)

    def par(s):
        out = []
        for i, d in enumerate(dev):
            with tf.device(d):
                out.append(
                    tf.reduce_sum(tf.sparse.sparse_dense_matmul(tf.sparse.slice(s, [10 * i, 0], [10, 300]), w), 0)
                )
        return tf.add_n(out)

    return dict(parallel=par, reference=ref, inputs={"s": s}, gradients=False)


@clean()
def ragged_output(dev):
    def fn(x):
        return tf.ragged.boolean_mask(x * 2.0, x > 0)

    return dict(
        parallel=lambda x: tf.concat(each(dev, fn, x), 0), reference=fn, inputs={"x": rnd(8, 6)}, gradients=False
    )


@clean()
def nested_inputs_and_settings(dev):
    def ref(batch, scale, name, flag):
        x, y = batch["x"], batch["more"][0]
        return {"out": tf.tanh(x) * scale + (y if flag else 0.0), "none": None, name: tf.reduce_max(x, 1)}

    def par(batch, scale, name, flag):
        s = each(dev, lambda p, q: ref({"x": p, "more": [q]}, scale, name, flag), batch["x"], batch["more"][0])
        return {k: None if s[0][k] is None else tf.concat([t[k] for t in s], 0) for k in s[0]}

    return dict(
        parallel=par,
        reference=ref,
        inputs={"batch": {"x": rnd(8, 6), "more": [rnd(8, 6, seed=2)]}, "scale": 3, "name": "best", "flag": True},
        gradients=False,
    )


@clean()
def named_tuple_out(dev):
    Out = collections.namedtuple("Out", "logits labels")

    def fn(x):
        return Out(tf.matmul(x, W), tf.argmax(x, 1))

    return dict(
        parallel=lambda x: Out(*(tf.concat(t, 0) for t in zip(*each(dev, fn, x)))),
        reference=fn,
        inputs={"x": rnd(8, 6)},
        gradients=False,
    )


@clean()
def gradient_none_in_both(dev):
    used, unused = tf.Variable(W, name="used"), tf.Variable(W, name="unused")
    fn = lambda x: tf.matmul(x, used)
    return dict(
        parallel=harness.make_parallel(fn, dev.devices), reference=fn, inputs={"x": rnd(8, 6)}, variables=[used, unused]
    )


@clean()
def gradient_penalty(dev):
    w = tf.Variable(W, name="w")

    def fn(x):
        with tf.GradientTape() as t:
            t.watch(x)
            y = tf.reduce_sum(tf.tanh(tf.matmul(x, w)), 1)
        return tf.norm(t.gradient(y, x), axis=1)

    return dict(
        parallel=harness.make_parallel(fn, dev.devices),
        reference=fn,
        inputs={"x": rnd(8, 6)},
        variables=[w],
        gradients=True,
    )
