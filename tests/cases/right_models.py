"""Right programs with modules, data sets, weights of each device, and work on the host."""
# mypy: ignore-errors

from __future__ import annotations

import tensorflow as tf
from case_table import XY, W, clean, each, mean_grads, rnd, tower_grads

import harness


@clean()
def module_with_nested_functions(dev):
    class Block(tf.Module):
        def __init__(self, k):
            super().__init__()
            self.w = tf.Variable(rnd(6, 6, seed=k) * 0.5, name=f"w{k}")

        @tf.function
        def __call__(self, x):
            return tf.nn.silu(tf.matmul(x, self.w)) + x

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.blocks = [Block(k) for k in range(3)]

        @tf.function
        def __call__(self, x):
            for b in self.blocks:
                x = b(x)
            return x

    net = Net()
    fn = lambda x: net(x)
    return dict(
        parallel=harness.make_parallel(fn, dev.devices),
        reference=fn,
        inputs={"x": rnd(9, 6)},
        variables=list(net.trainable_variables),
    )


@clean()
def generator_in_the_program(dev):
    """Noise of one tf.random.Generator, drawn once on the host and split."""
    g = tf.random.Generator.from_seed(5)

    def ref(x):
        return tf.tanh(x + g.normal(x.shape))

    def par(x):
        return tf.concat(each(dev, lambda p, e: tf.tanh(p + e), x, g.normal(x.shape)), 0)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)


@clean()
def dataset_inside(dev):
    data = rnd(16, 6)

    def ref(x):
        return tf.data.Dataset.from_tensor_slices(data).map(tf.exp).batch(4).reduce(
            tf.zeros([6]), lambda a, b: a + tf.reduce_sum(b, 0)
        ) + tf.reduce_sum(x, 0)

    def par(x):
        out = []
        for i, d in enumerate(dev):
            s = (
                tf.data.Dataset.from_tensor_slices(data)
                .shard(len(dev), i)
                .map(tf.exp)
                .batch(4)
                .reduce(tf.zeros([6]), lambda a, b: a + tf.reduce_sum(b, 0))
            )
            with tf.device(d):
                out.append(s + tf.reduce_sum(x[2 * i : 2 * i + 2], 0))
        return tf.add_n(out)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)


@clean()
def printed_and_checked(dev):
    """tf.print, assertions and check_numerics inside of the towers."""

    def fn(x):
        tf.debugging.assert_less(tf.abs(x), 100.0)
        y = tf.debugging.check_numerics(tf.tanh(x), "bad")
        tf.print("rows", tf.shape(x)[0], output_stream="file:///dev/null")
        return y

    return dict(
        parallel=lambda x: tf.concat(each(dev, fn, x), 0), reference=fn, inputs={"x": rnd(8, 6)}, gradients=False
    )


@clean()
def weights_copied_to_each_device(dev):
    """Variables on the host, a copy for each tower inside of the step, gradients by the towers' own tapes."""
    v = tf.Variable(W)

    def loss(w, p, q):
        return tf.reduce_mean((tf.matmul(p, w) - q) ** 2)

    def ref(x, y):
        with tf.GradientTape() as t:
            l = loss(v, x, y)
        g = t.gradient(l, v)
        v.assign_sub(0.1 * g)
        return l

    def par(x, y):
        def one(p, q):
            w = tf.identity(v)
            with tf.GradientTape() as t:
                t.watch(w)
                l = loss(w, p, q)
            return l, [t.gradient(l, w)]

        s = each(dev, one, x, y)
        v.assign_sub(0.1 * mean_grads(s)[0])
        return tf.add_n([l for l, _ in s]) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs=XY, variables=[v])


@clean()
def mirrored_variables_updated_on_each_device(dev):
    """A copy of the weights on each device, all updated with the same mean gradient."""
    v = tf.Variable(W)
    copies = []
    for d in dev:
        with tf.device(d):
            copies.append(tf.Variable(W))

    def ref(x, y):
        with tf.GradientTape() as t:
            l = tf.reduce_mean((tf.matmul(x, v) - y) ** 2)
        v.assign_sub(0.1 * t.gradient(l, v))
        return l

    def par(x, y):
        ls, gs = [], []
        for d, c, p, q in zip(dev, copies, tf.split(x, len(dev)), tf.split(y, len(dev))):
            with tf.device(d):
                with tf.GradientTape() as t:
                    l = tf.reduce_mean((tf.matmul(p, c) - q) ** 2)
                ls.append(l)
                gs.append(t.gradient(l, c))
        for d, c in zip(dev, copies):
            with tf.device(d):
                c.assign_sub(0.1 * tf.add_n(gs) / float(len(dev)))
        return tf.add_n(ls) / float(len(dev))

    return dict(parallel=par, reference=ref, inputs=XY, gradients=False)


@clean()
def global_norm_on_the_host(dev):
    vs = [tf.Variable(rnd(6, 6, seed=i) * 0.4, name=f"v{i}") for i in range(2)]

    def loss(p):
        for v in vs:
            p = tf.tanh(tf.matmul(p, v))
        return tf.reduce_mean(p**2)

    def ref(x):
        with tf.GradientTape() as t:
            l = loss(x)
        g, norm = tf.clip_by_global_norm(t.gradient(l, vs), 0.05)
        return g, norm

    def par(x):
        return tf.clip_by_global_norm(mean_grads(tower_grads(dev, loss, vs, x)), 0.05)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)


@clean(n=2)
def early_exit_chosen_on_the_host(dev):
    """Two heads on two devices; the host takes the surer one for each row."""
    a, b = rnd(6, 5, seed=2), rnd(6, 5, seed=3)

    def sure(p):
        return tf.reduce_max(p, 1, keepdims=True)

    def ref(x):
        p, q = tf.nn.softmax(tf.matmul(x, a)), tf.nn.softmax(tf.matmul(x, b))
        return tf.where(sure(p) > sure(q), p, q)

    def par(x):
        with tf.device(dev[0]):
            p = tf.nn.softmax(tf.matmul(x, a))
            sp = sure(p)
        with tf.device(dev[1]):
            q = tf.nn.softmax(tf.matmul(x, b))
            sq = sure(q)
        return tf.where(sp > sq, p, q)

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)


@clean(n=2)
def model_on_two_devices_by_hand(dev):
    """Two stages by hand, loss and backward in the scope of the last; each variable beside its work."""
    with tf.device(dev[0]):
        a = tf.Variable(rnd(6, 6, seed=2), name="a")
    with tf.device(dev[1]):
        b = tf.Variable(rnd(6, 5, seed=3), name="b")

    def ref(x):
        return tf.nn.softmax(tf.matmul(tf.tanh(tf.matmul(x, a)), b))

    def par(x):
        with tf.device(dev[0]):
            h = tf.tanh(tf.matmul(x, a))
        with tf.device(dev[1]):
            return tf.nn.softmax(tf.matmul(h, b))

    return dict(parallel=par, reference=ref, inputs={"x": rnd(8, 6)}, gradients=False)
