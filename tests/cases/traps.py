"""Traps of TensorFlow and Python."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import tensorflow as tf
from case_table import W, each, fault, mean_grads, pair, rnd


@fault("value")
def python_value_frozen_in_a_graph(dev):
    class Model:
        scale = 1.0

        @tf.function
        def __call__(self, p):
            return tf.tanh(p) * self.scale

    m = Model()
    m(tf.zeros([2, 6]))
    m.scale = 2.0

    def ref(x):
        return tf.tanh(x) * m.scale

    def par(x):
        return tf.concat(each(dev, lambda p: m(p), x), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)})


@fault("unused-device", "op-placement")
def one_trace_serves_all_devices(dev):
    """The device is a Python value of the traced function: the first trace is used for every tower."""
    current = {}

    @tf.function
    def tower(p):
        with tf.device(current["d"]):
            return tf.tanh(tf.matmul(p, W))

    def par(x):
        out = []
        for d, p in zip(dev, tf.split(x, len(dev))):
            current["d"] = d
            out.append(tower(p))
        return tf.concat(out, 0)

    return dict(parallel=par, reference=lambda x: tf.tanh(tf.matmul(x, W)), inputs={"x": rnd(8, 6)})


@fault("unused-device", "op-placement", modes=("graph",))
def map_fn_over_the_devices(dev):
    def par(x):
        it = iter(dev)

        def one(p):
            with tf.device(next(it)):
                return tf.tanh(tf.matmul(p, W))

        y = tf.map_fn(one, tf.stack(tf.split(x, len(dev))), parallel_iterations=len(dev))
        return tf.reshape(y, [-1, 5])

    return dict(parallel=par, reference=lambda x: tf.tanh(tf.matmul(x, W)), inputs={"x": rnd(8, 6)})


@fault("unused-device", "op-placement")
def numpy_does_the_work(dev):
    def par(x):
        def one(p):
            y = tf.numpy_function(lambda a: np.tanh(a @ W), [p], tf.float32)
            return tf.ensure_shape(y, [2, 5])

        return tf.concat(each(dev, one, x), 0)

    return dict(parallel=par, reference=lambda x: tf.tanh(tf.matmul(x, W)), inputs={"x": rnd(8, 6)}, gradients=False)


@fault("unused-device", "op-placement", modes=("graph",))
def py_function_leaves_the_scope(dev):
    def par(x):
        def one(p):
            y = tf.py_function(lambda a: tf.tanh(tf.matmul(a, W)), [p], tf.float32)
            return tf.ensure_shape(y, [2, 5])

        return tf.concat(each(dev, one, x), 0)

    return dict(parallel=par, reference=lambda x: tf.tanh(tf.matmul(x, W)), inputs={"x": rnd(8, 6)}, gradients=False)


@fault("op-placement")
def second_layer_has_a_hard_coded_device(dev):
    u = rnd(5, 5, seed=9)

    def model(x):
        h = tf.tanh(tf.matmul(x, W))
        with tf.device(dev[0]):
            return tf.nn.softmax(tf.matmul(h, u))

    def par(x):
        return tf.concat(each(dev, model, x), 0)

    return dict(parallel=par, reference=model, inputs={"x": rnd(8, 6)})


@fault("op-placement")
def one_tower_has_its_neighbours_index(dev):
    u = rnd(5, 5, seed=9)

    def par(x):
        hs = each(dev, lambda p: tf.tanh(tf.matmul(p, W)), x)
        out = []
        for i, h in enumerate(hs):
            with tf.device(dev[i] if i != 3 else dev[2]):  # copied and not changed
                out.append(tf.nn.softmax(tf.matmul(h, u)))
        return tf.concat(out, 0)

    return dict(
        parallel=par, reference=lambda x: tf.nn.softmax(tf.matmul(tf.tanh(tf.matmul(x, W)), u)), inputs={"x": rnd(8, 6)}
    )


@fault("op-placement")
def rare_branch_on_device_0(dev):
    def model(x):
        def rare():
            with tf.device(dev[0]):
                return tf.nn.softplus(x)

        h = tf.tanh(x)
        return tf.cond(tf.reduce_max(h) > 0.0, rare, lambda: h)

    def par(x):
        return tf.concat(each(dev, model, x), 0)

    return dict(parallel=par, reference=model, inputs={"x": rnd(8, 6)}, gradients=False)


@fault("op-placement")
def last_layer_of_one_tower_unscoped(dev):
    u = rnd(5, 5, seed=9)

    def par(x):
        hs = each(dev, lambda p: tf.tanh(tf.matmul(p, W)), x)
        out = []
        for i, (d, h) in enumerate(zip(dev, hs)):
            if i == 3:
                out.append(tf.nn.softmax(tf.matmul(h, u)))
            else:
                with tf.device(d):
                    out.append(tf.nn.softmax(tf.matmul(h, u)))
        return tf.concat(out, 0)

    return dict(
        parallel=par, reference=lambda x: tf.nn.softmax(tf.matmul(tf.tanh(tf.matmul(x, W)), u)), inputs={"x": rnd(8, 6)}
    )


@fault("op-placement")
def heavy_work_on_device_0_light_work_elsewhere(dev):
    """Only the scaling of the input stands in the scope; the layer is called after it."""

    def par(x):
        scaled = each(dev, lambda p: p / 255.0, x)
        with tf.device(dev[0]):
            out = [tf.tanh(tf.matmul(p, W)) for p in scaled]
        return tf.concat(out, 0)

    return dict(parallel=par, reference=lambda x: tf.tanh(tf.matmul(x / 255.0, W)), inputs={"x": rnd(8, 6)})


@fault("value", "nondeterminism")
def read_before_the_assignment(dev):
    v = tf.Variable(tf.ones([6]), trainable=False)

    def ref(x):
        v.assign(tf.reduce_max(x, 0))
        return x / v

    def par(x):
        held = tf.identity(v)  # a tensor: what v was
        v.assign(tf.reduce_max(tf.stack(each(dev, lambda p: tf.reduce_max(p, 0), x)), 0))
        return tf.concat(each(dev, lambda p: p / held, x), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)


@fault("value")
def recompute_runs_the_update_twice(dev):
    w = tf.Variable(W)
    seen = tf.Variable(0.0, trainable=False, name="seen")

    def layer(p):
        seen.assign_add(1.0 / 4)
        return tf.tanh(tf.matmul(p, w))

    def ref(x):
        seen.assign_add(1.0)
        with tf.GradientTape() as t:
            l = tf.reduce_mean(tf.tanh(tf.matmul(x, w)))
        return t.gradient(l, w)

    def par(x):
        def one(p):
            with tf.GradientTape() as t:
                l = tf.reduce_mean(tf.recompute_grad(layer)(p))
            return l, [t.gradient(l, w)]

        return mean_grads(each(dev, one, x))[0]

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, variables=[w], gradients=False)


@fault("gradient", "missing-gradient")
def numpy_function_in_one_tower(dev):
    w = tf.Variable(W)

    def ref(x):
        return tf.tanh(tf.matmul(x, w))

    def par(x):
        out = []
        for i, (d, p) in enumerate(zip(dev, tf.split(x, len(dev)))):
            with tf.device(d):
                y = tf.matmul(p, w)
                out.append(
                    tf.tanh(y) if i != 1 else tf.ensure_shape(tf.numpy_function(np.tanh, [y], tf.float32), [2, 5])
                )
        return tf.concat(out, 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, variables=[w])


@fault("gradient")
def tied_weights_lose_one_use(dev):
    w = tf.Variable(rnd(6, 6, seed=4))

    def ref(x):
        return tf.matmul(tf.tanh(tf.matmul(x, w)), w, transpose_b=True)

    def par(x):
        copies = []
        for d in dev:
            with tf.device(d):
                copies.append(tf.stop_gradient(tf.identity(w)))
        out = []
        for d, p, c in zip(dev, tf.split(x, len(dev)), copies):
            with tf.device(d):
                out.append(tf.matmul(tf.tanh(tf.matmul(p, w)), c, transpose_b=True))
        return tf.concat(out, 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, variables=[w])


@fault("gradient", n=2)
def custom_gradient_averages(dev):
    """A hand-made all-reduce whose backward pass divides, although its forward pass does not."""
    w = tf.Variable(W)
    n = len(dev)

    @tf.custom_gradient
    def all_reduce(*ts):
        return tf.add_n(ts), lambda up: [up / n for _t in ts]

    def ref(x):
        return tf.matmul(x, w)

    def par(x):
        out = []
        for d, p, q in zip(dev, tf.split(x, 2, axis=1), (w[:3], w[3:])):
            with tf.device(d):
                out.append(tf.matmul(p, q))
        return all_reduce(*out)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, variables=[w])


@fault("value", "shape")
def ragged_values_cut_evenly(dev):
    def ref(x, r):
        return tf.reduce_sum(tf.RaggedTensor.from_row_lengths(x, r), 1)

    def par(x, r):
        out = []
        for d, v, l in zip(dev, tf.split(x, len(dev)), tf.split(r, len(dev))):
            with tf.device(d):  # as many values for each device, whatever the rows are
                out.append(tf.math.segment_sum(v, tf.minimum(tf.range(tf.shape(v)[0]) // 2, 1)))
        return tf.concat(out, 0)

    return dict(
        parallel=par, reference=ref, inputs={"x": rnd(16), "r": np.array([1, 3, 2, 2, 4, 1, 2, 1])}, gradients=False
    )


@pair("sparse_rows", "value", "shape")
def _(dev, bad):
    at = np.array([[0, 1], [1, 0], [2, 2], [3, 0], [4, 1], [5, 5], [6, 3], [7, 0]])

    def ref(v):
        return tf.sparse.SparseTensor(at, v * 2.0, [8, 6])

    def par(v):
        out = []
        for k, (d, p, i) in enumerate(zip(dev, tf.split(v, len(dev)), tf.split(at, len(dev)))):
            with tf.device(d):
                s = tf.sparse.SparseTensor(i - np.array([[2 * k, 0]]), p * 2.0, [2, 6])
                out.append(s)
        if bad:  # only the values and indices are joined: rows of the shards
            return tf.sparse.SparseTensor(
                tf.concat([s.indices for s in out], 0), tf.concat([s.values for s in out], 0), [8, 6]
            )
        return tf.sparse.concat(0, out)

    return dict(parallel=par, reference=ref, inputs={"v": rnd(8)}, gradients=False)


@pair("dataset_shard", "value")
def _(dev, bad):
    data = rnd(16, 6)

    def total(ds):
        return ds.reduce(tf.zeros([6]), lambda a, b: a + b)

    def ref(x):
        return total(tf.data.Dataset.from_tensor_slices(data)) + tf.reduce_sum(x)

    def par(x):
        out = []
        for i, d in enumerate(dev):
            ds = tf.data.Dataset.from_tensor_slices(data).shard(len(dev), 0 if bad else i)
            s = total(ds)
            with tf.device(d):
                out.append(s * 1.5)
        return tf.add_n(out) / 1.5 + tf.reduce_sum(x)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(3)}, gradients=False)
