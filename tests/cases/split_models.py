"""Models that are split: layers, experts, stages and the states of optimizers."""
# mypy: ignore-errors

from __future__ import annotations

import tensorflow as tf
from case_table import XY, clean, fault, mse_setup, pair, rnd, tower_grads


@pair("tensor_parallel_mlp", "value")
def _(dev, bad):
    a, b = rnd(6, 16, seed=2), rnd(16, 5, seed=3)

    def ref(x):
        return tf.matmul(tf.nn.gelu(tf.matmul(x, a)), b)

    def par(x):
        out = []
        for d, p, q in zip(dev, tf.split(a, len(dev), axis=1), tf.split(b, len(dev), axis=0)):
            with tf.device(d):
                out.append(tf.matmul(tf.nn.gelu(tf.matmul(x, p)), q))
        return tf.add_n(out[:-1] if bad else out)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)


@fault("value")
def gelu_before_the_all_reduce(dev):
    a = rnd(16, 5, seed=2)

    def ref(x):
        return tf.nn.gelu(tf.matmul(x, a))

    def par(x):
        out = []
        for d, p, q in zip(dev, tf.split(x, len(dev), axis=1), tf.split(a, len(dev), axis=0)):
            with tf.device(d):
                out.append(tf.nn.gelu(tf.matmul(p, q)))
        return tf.add_n(out)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 16)}, gradients=False)


@fault("value", n=2)
def fused_qkv_cut_contiguously(dev):
    w = rnd(4, 24, seed=3)

    def ref(x):
        q, k, v = tf.split(tf.matmul(x, w), 3, axis=-1)
        return tf.concat([q * k, v], -1)

    def par(x):
        out = []
        for d, c in zip(dev, tf.split(w, 2, axis=1)):
            with tf.device(d):
                q, k, v = tf.split(tf.matmul(x, c), 3, axis=-1)
                out.append((q * k, v))
        return tf.concat([tf.concat([o[0] for o in out], -1), tf.concat([o[1] for o in out], -1)], -1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 4)}, gradients=False)


@fault("gradient")
def tensor_parallel_input_gradient_not_reduced(dev):
    a = tf.Variable(rnd(6, 16, seed=2))

    def ref(x):
        return tf.tanh(tf.matmul(x, a))

    def par(x):
        out = []
        for i, d in enumerate(dev):
            with tf.device(d):
                own = x if i == 0 else tf.stop_gradient(x)
                out.append(tf.tanh(tf.matmul(own, a[:, i * 4 : i * 4 + 4])))
        return tf.concat(out, 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=True)


@fault("value")
def layer_norm_over_a_share_of_the_features(dev):
    def ref(x):
        m, s = tf.nn.moments(x, 1, keepdims=True)
        return (x - m) * tf.math.rsqrt(s + 1e-5)

    def par(x):
        out = []
        for d, p in zip(dev, tf.split(x, len(dev), axis=1)):
            with tf.device(d):
                out.append(ref(p))
        return tf.concat(out, 1)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(4, 32)})


def _moe(dev, mode):
    n = len(dev)
    experts = [rnd(6, 6, seed=10 + i) for i in range(n)]
    gate = rnd(6, n, seed=3)

    def route(x):
        return tf.argmax(tf.matmul(x, gate), 1)

    def ref(x):
        e = route(x)
        return tf.add_n(
            [tf.tanh(tf.matmul(x, w)) * tf.cast(e == i, tf.float32)[:, None] for i, w in enumerate(experts)]
        )

    def par(x):
        e = route(x)
        out, at = [], []
        for i, (d, w) in enumerate(zip(dev, experts)):
            idx = tf.where(e == i)[:, 0]
            if mode == "capacity":
                idx = idx[:2]
            with tf.device(d):
                out.append(tf.tanh(tf.matmul(tf.gather(x, idx), w)))
            at.append(idx)
        if mode == "order":
            return tf.concat(out, 0)
        return tf.scatter_nd(tf.concat(at, 0)[:, None], tf.concat(out, 0), tf.shape(x, tf.int64))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(12, 6)}, gradients=False)


@clean()
def moe_dispatch(dev):
    return _moe(dev, "right")


@fault("value")
def moe_drops_tokens_over_capacity(dev):
    return _moe(dev, "capacity")


@fault("value")
def moe_results_left_in_expert_order(dev):
    return _moe(dev, "order")


@fault("value", n=2)
def micro_batches_come_back_reversed(dev):
    ws = [rnd(6, 6, seed=2), rnd(6, 5, seed=3)]

    def ref(x):
        return tf.matmul(tf.tanh(tf.matmul(x, ws[0])), ws[1])

    def par(x):
        done = []
        for p in tf.split(x, 4):
            with tf.device(dev[0]):
                h = tf.tanh(tf.matmul(p, ws[0]))
            with tf.device(dev[1]):
                done.insert(0, tf.matmul(h, ws[1]))
        with tf.device(dev[1]):
            return tf.concat(done, 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False, pattern="stages")


@fault("value", n=2)
def pipeline_without_weight_stashing(dev):
    with tf.device(dev[0]):
        a = tf.Variable(rnd(6, 6, seed=2))
    with tf.device(dev[1]):
        b = tf.Variable(rnd(6, 5, seed=3))

    def step(xs, stash):
        grads = []
        for x in xs:
            with tf.GradientTape() as t:
                with tf.device(dev[0]):
                    h = tf.tanh(tf.matmul(x, a))
                with tf.device(dev[1]):
                    l = tf.reduce_mean(tf.matmul(h, b) ** 2)
            ga, gb = t.gradient(l, [a, b])
            grads.append((ga, gb))
            if not stash:
                b.assign_sub(0.1 * gb / len(xs))
        a.assign_sub(0.1 * tf.add_n([g for g, _ in grads]) / len(xs))
        if stash:
            b.assign_sub(0.1 * tf.add_n([g for _, g in grads]) / len(xs))
        return tf.reduce_sum(a)

    return dict(
        parallel=lambda x: step(tf.split(x, 4), False),
        reference=lambda x: step(tf.split(x, 4), True),
        inputs={"x": rnd(8, 6)},
        variables=[a, b],
        gradients=False,
    )


@pair("zero_sharded_sgd", "value")
def _(dev, bad):
    n = len(dev)
    flat = tf.Variable(rnd(30), name="flat")
    shards = []
    for i, d in enumerate(dev):
        with tf.device(d):
            shards.append(tf.Variable(tf.zeros([8]), name=f"shard{i}"))

    def loss(w, p, q):
        return tf.reduce_mean((tf.matmul(p, tf.reshape(w, [6, 5])) - q) ** 2)

    def ref(x, y):
        with tf.GradientTape() as t:
            l = loss(flat, x, y)
        flat.assign_sub(0.1 * t.gradient(l, flat))
        return l

    def par(x, y):
        s = tower_grads(dev, lambda p, q: loss(flat, p, q), [flat], x, y)
        gs = [tf.pad(g[0], [[0, 2]]) for _, g in s]
        w = tf.pad(flat, [[0, 2]])
        for i, d in enumerate(dev):
            with tf.device(d):
                k = 7 if bad else 8  # 30 // 4, not the padded 32 // 4
                mine = tf.add_n([g[i * k : i * k + 8] for g in gs]) / float(n)
                shards[i].assign(w[i * k : i * k + 8] - 0.1 * mine)
        flat.assign(tf.concat([v.read_value() for v in shards], 0)[:30])
        return tf.add_n([l for l, _ in s]) / float(n)

    return dict(parallel=par, reference=ref, inputs=XY, variables=[flat], gradients=False)


@pair("reduce_scatter_all_gather", "value")
def _(dev, bad):
    """An all-reduce by hand: each device adds up its chunk, the chunks are joined."""
    v, loss, grad = mse_setup()

    def ref(x, y):
        return grad(x, y)[1]

    def par(x, y):
        n = len(dev)
        gs = [tf.split(tf.pad(tf.reshape(g[0], [-1]), [[0, 2]]), n) for _, g in tower_grads(dev, loss, [v], x, y)]
        chunks = []
        for i, d in enumerate(dev):
            with tf.device(d):
                parts = [g[i] for g in gs]
                chunks.append(tf.add_n(parts[1:] + parts[1:2] if bad and i == n - 1 else parts) / float(n))
        return tf.reshape(tf.concat(chunks, 0)[:30], [6, 5])

    return dict(parallel=par, reference=ref, inputs=XY, gradients=False)


@fault("value")
def bucket_unpacked_in_another_order(dev):
    vs = [tf.Variable(rnd(5, 5, seed=i), name=f"v{i}") for i in range(3)]

    def loss(p):
        for v in vs:
            p = tf.tanh(tf.matmul(p, v))
        return tf.reduce_mean(p**2)

    def ref(x):
        with tf.GradientTape() as t:
            l = loss(x)
        for v, g in zip(vs, t.gradient(l, vs)):
            v.assign_sub(g)
        return l

    def par(x):
        s = tower_grads(dev, loss, vs, x)
        flat = tf.add_n([tf.concat([tf.reshape(t, [-1]) for t in reversed(g)], 0) for _, g in s]) / float(len(dev))
        for v, g in zip(vs, tf.split(flat, 3)):
            v.assign_sub(tf.reshape(g, [5, 5]))
        return tf.add_n([l for l, _ in s]) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 5)}, variables=vs)
