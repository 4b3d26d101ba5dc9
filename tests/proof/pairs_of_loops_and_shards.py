"""More pairs of programs that compute the same: loops, patterns, experts, integers, calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from proof_pairs import PAIRS, Pair, array, pair, sharded, summed, variable

from harness.parallel.data import make_parallel
from harness.parallel.ensemble import ensemble
from harness.parallel.model import pipeline

__all__ = ["PAIRS"]


@pair
def lstm(devices: Any) -> Pair:
    w, u = variable(3, 8), variable(2, 8, seed=1)

    def model(x: Any) -> Any:
        rows = tf.shape(x)[0]

        def turn(t: Any, h: Any, c: Any) -> Any:
            i, f, g, o = tf.split(x[:, t] @ w + h @ u, 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            return t + 1, tf.sigmoid(o) * tf.tanh(c), c

        zeros = tf.zeros([rows, 2])
        _, h, _ = tf.while_loop(lambda t, h, c: t < 4, turn, [0, zeros, zeros])
        return h

    return Pair(sharded(model, devices, [3, 5]), model, {"x": array(8, 4, 3)}, [w, u], True)


@pair
def keras_lstm(devices: Any) -> Pair:
    import keras

    layer = keras.layers.LSTM(3)
    layer.build((None, 4, 2))
    model = lambda x: layer(x)
    return Pair(sharded(model, devices, [3, 5]), model, {"x": array(8, 4, 2)}, list(layer.trainable_variables), True)


@pair
def keras_gru_sequences(devices: Any) -> Pair:
    import keras

    layer = keras.layers.GRU(3, return_sequences=True)
    layer.build((None, 4, 2))
    model = lambda x: layer(x)
    return Pair(make_parallel(model, devices), model, {"x": array(8, 4, 2)})


@pair
def power_iteration(devices: Any) -> Pair:
    w = variable(5, 5)
    model = lambda x: tf.while_loop(lambda t, y: t < 3, lambda t, y: (t + 1, tf.tanh(y @ w)), [0, x])[1]
    return Pair(sharded(model, devices), model, {"x": array(8, 5)}, [w], True)


@pair
def a_loop_that_adds_up(devices: Any) -> Pair:
    w = variable(5, 3)

    def model(x: Any) -> Any:
        zeros = tf.zeros([tf.shape(x)[0], 3])
        return tf.while_loop(lambda t, y: t < 3, lambda t, y: (t + 1, 0.5 * y + tf.tanh(x @ w)), [0, zeros])[1]

    return Pair(sharded(model, devices, [3, 5]), model, {"x": array(8, 5)}, [w])


@pair
def ensemble_of_members(devices: Any) -> Pair:
    weights = [variable(5, 3, seed=seed) for seed in range(4)]
    members = [lambda x, w=w: tf.tanh(x @ w) for w in weights]
    parallel = ensemble(members, devices)
    return Pair(parallel, lambda x: [member(x) for member in members], {"x": array(8, 5)}, weights, True)


@pair
def pipeline_of_stages(devices: Any) -> Pair:
    weights = [variable(5, 5, seed=seed) for seed in range(4)]
    stages = [lambda x, w=w: tf.tanh(x @ w) for w in weights]

    def reference(x: Any) -> Any:
        for stage in stages:
            x = stage(x)
        return x

    return Pair(pipeline(stages, devices, microbatches=3), reference, {"x": array(8, 5)}, weights, True)


@pair
def transformer_block(devices: Any) -> Pair:
    q, k, v, up = (variable(6, 6, seed=seed) for seed in range(4))
    down = variable(6, 6, seed=5)

    def norm(x: Any) -> Any:
        mean = tf.reduce_mean(x, -1, keepdims=True)
        return (x - mean) * tf.math.rsqrt(tf.reduce_mean(tf.square(x - mean), -1, keepdims=True) + 1e-5)

    def model(x: Any) -> Any:
        y = norm(x)
        x += tf.nn.softmax((y @ q) @ tf.transpose(y @ k, [0, 2, 1]) / 3.0) @ (y @ v)
        return x + tf.nn.gelu(norm(x) @ up) @ down

    return Pair(make_parallel(model, devices), model, {"x": array(6, 3, 6)}, [q, k, v, up, down], True)


@pair
def embedding(devices: Any) -> Pair:
    table = variable(7, 3)
    model = lambda x: tf.reduce_sum(tf.gather(table, x), 1)
    inputs = {"x": np.arange(16, dtype="int32").reshape(8, 2) % 7}
    return Pair(sharded(model, devices, [3, 5]), model, inputs, [table], True)


@pair
def masked_mean(devices: Any) -> Pair:
    def loss(x: Any, m: Any) -> Any:
        m = tf.cast(m > 0, tf.float32)
        return tf.reduce_sum(x * m), tf.reduce_sum(m)

    def parallel(x: Any, m: Any) -> Any:
        parts = [loss(a, b) for a, b in zip(tf.split(x, 4), tf.split(m, 4), strict=True)]
        return tf.add_n([a for a, _ in parts]) / tf.add_n([b for _, b in parts])

    def reference(x: Any, m: Any) -> Any:
        a, b = loss(x, m)
        return a / b

    return Pair(parallel, reference, {"x": array(8), "m": array(8, seed=1)}, [], True)


@pair
def largest_over_shards(devices: Any) -> Pair:
    def parallel(x: Any) -> Any:
        return tf.reduce_max(tf.stack([tf.reduce_max(part, 0) for part in tf.split(x, [1, 3, 4])]), 0)

    return Pair(parallel, lambda x: tf.reduce_max(x, 0), {"x": array(8, 5)})


@pair
def log_of_a_sum_of_exponentials(devices: Any) -> Pair:
    def parallel(x: Any) -> Any:
        parts = tf.split(x, 2, 1)
        top = tf.maximum(*[tf.reduce_max(part, 1, keepdims=True) for part in parts])
        total = tf.add_n([tf.reduce_sum(tf.exp(part - top), 1, keepdims=True) for part in parts])
        return tf.math.log(total) + top

    def reference(x: Any) -> Any:
        top = tf.reduce_max(x, 1, keepdims=True)
        return tf.math.log(tf.reduce_sum(tf.exp(x - top), 1, keepdims=True)) + top

    return Pair(parallel, reference, {"x": array(4, 6)})


@pair
def accumulated_gradients(devices: Any) -> Pair:
    w = variable(5, 3)

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ w)))
        return tape.gradient(loss, w)

    def parallel(x: Any) -> Any:
        total = tf.zeros_like(w)
        for part in tf.split(x, 4):
            total += reference(part) / 4.0
        return total

    return Pair(parallel, reference, {"x": array(8, 5)}, [w])


@pair
def copies_of_the_weights(devices: Any) -> Pair:
    a, b = variable(5, 3, name="a"), variable(5, 3, name="b")
    parallel = lambda x: tf.concat([x[:4] @ a, x[4:] @ b], 0)
    return Pair(parallel, lambda x: x @ a, {"x": array(8, 5)}, [], False, [(a, b)])


@pair
def stateless_dropout_drawn_once(devices: Any) -> Pair:
    def mask(x: Any) -> Any:
        return tf.cast(tf.random.stateless_uniform(x.shape, (1, 2)) > 0.5, tf.float32)

    def parallel(x: Any) -> Any:
        return tf.concat([a * m for a, m in zip(tf.split(x, 2), tf.split(mask(x), 2), strict=True)], 0)

    return Pair(parallel, lambda x: x * mask(x), {"x": array(8, 5)}, [], True)


@pair
def read_after_an_update(devices: Any) -> Pair:
    w = variable(5, 3)

    def model(x: Any, parts: int) -> Any:
        w.assign_add(tf.ones_like(w))
        y = tf.concat([part @ w for part in tf.split(x, parts)], 0)
        w.assign_sub(tf.ones_like(w))
        return y

    def parallel(x: Any) -> Any:
        return model(x, 4)

    return Pair(parallel, lambda x: model(x, 1), {"x": array(8, 5)}, [w])


@pair
def integers(devices: Any) -> Pair:
    model = lambda x: (x * 3 + 1) * x

    def parallel(x: Any) -> Any:
        parts = [model(part) for part in tf.split(x, [3, 5])]
        return tf.concat(parts, 0), tf.add_n([tf.reduce_sum(part) for part in parts])

    return Pair(parallel, lambda x: (model(x), tf.reduce_sum(model(x))), {"x": np.arange(8, dtype="int32")})


@pair
def nested_functions(devices: Any) -> Pair:
    w = variable(5, 3)

    @tf.function
    def inner(x: Any) -> Any:
        return tf.tanh(x @ w)

    model = lambda x: inner(inner(x) @ tf.transpose(w))
    return Pair(sharded(model, devices), model, {"x": array(8, 5)}, [w], True)


@pair
def a_custom_gradient(devices: Any) -> Pair:
    @tf.custom_gradient
    def custom(x: Any) -> Any:
        return tf.tanh(x), lambda g: g * 0.5 * x

    model = lambda x: custom(x)  # TensorFlow gives a custom gradient no arguments by name
    return Pair(sharded(model, devices), model, {"x": array(8, 5)}, [], True)


@pair
def a_branch_on_a_variable(devices: Any) -> Pair:
    step = tf.Variable(0, name="step")

    def model(x: Any) -> Any:
        return tf.cond(step > 3, lambda: x * 2.0, lambda: x + 1.0)

    return Pair(sharded(model, devices), model, {"x": array(8, 5)})


@pair
def gradients_through_a_branch(devices: Any) -> Pair:
    w, b, flag = variable(5, 3), variable(3, seed=1, name="b"), tf.Variable(1.0, name="flag")

    def model(x: Any) -> Any:
        return tf.cond(flag > 0, lambda: tf.tanh(x @ w) * b, lambda: tf.nn.relu(x @ w) + b)

    return Pair(sharded(model, devices), model, {"x": array(8, 5)}, [w, b], True)


@pair
def a_loss_of_one_of_two_kinds(devices: Any) -> Pair:
    w, flag = variable(5, 3), tf.Variable(1.0, name="flag")

    def loss(x: Any) -> Any:
        y = x @ w
        return tf.cond(flag > 0, lambda: tf.reduce_sum(y * y), lambda: tf.reduce_sum(tf.abs(y)) / 2.0)

    return Pair(summed(loss, devices), loss, {"x": array(8, 5)}, [w], True)


@pair
def expert_choice_by_mask(devices: Any) -> Pair:
    experts = [variable(5, 3, seed=seed) for seed in range(2)]
    gate = variable(5, 2, seed=3)

    def model(x: Any) -> Any:
        chosen = tf.one_hot(tf.argmax(x @ gate, 1), 2)
        return tf.add_n([chosen[:, i : i + 1] * (x @ w) for i, w in enumerate(experts)])

    return Pair(sharded(model, devices), model, {"x": array(8, 5)}, experts)


@pair
def ring_of_partial_sums(devices: Any) -> Pair:
    def parallel(x: Any) -> Any:
        total: Any = None
        for part in reversed(tf.split(x, [1, 2, 5])):
            own = tf.reduce_sum(tf.square(part), 0)
            total = own if total is None else own + total
        return total / 8.0

    return Pair(parallel, lambda x: tf.reduce_mean(tf.square(x), 0), {"x": array(8, 5)}, [], True)


@pair
def rows_and_columns(devices: Any) -> Pair:
    w = variable(6, 4)

    def parallel(x: Any) -> Any:
        return tf.concat(
            [tf.concat([part @ columns for columns in tf.split(w, 2, 1)], 1) for part in tf.split(x, 2)], 0
        )

    return Pair(parallel, lambda x: x @ w, {"x": array(8, 6)}, [w], True)


@pair
def einsum_over_shards(devices: Any) -> Pair:
    w = variable(5, 3, 2)
    model = lambda x: tf.einsum("bi,ijk->bjk", x, w)
    return Pair(sharded(model, devices, [2, 6]), model, {"x": array(8, 5)}, [w], True)


@pair
def depthwise_and_bias(devices: Any) -> Pair:
    k, b = variable(2, 2, 3, 2), variable(6)
    model = lambda x: tf.nn.bias_add(tf.nn.depthwise_conv2d(x, k, [1, 1, 1, 1], "SAME"), b)
    return Pair(sharded(model, devices), model, {"x": array(4, 3, 3, 3)}, [k, b], True)


@pair
def batch_norm_in_inference(devices: Any) -> Pair:
    scale, offset = variable(3), variable(3, seed=1)
    mean, variance = tf.constant(array(3)), tf.constant(array(3, low=0.1))

    def model(x: Any) -> Any:
        return tf.compat.v1.nn.fused_batch_norm(x, scale, offset, mean, variance, is_training=False)[0]

    return Pair(sharded(model, devices), model, {"x": array(4, 3, 3, 3)}, [scale, offset])


@pair
def mapped_rows(devices: Any) -> Pair:
    model = lambda x: tf.transpose(tf.map_fn(lambda column: tf.tanh(column) * 2.0, tf.transpose(x)))
    return Pair(sharded(model, devices), model, {"x": array(8, 5)})


@pair
def lookups_in_each_row(devices: Any) -> Pair:
    w = variable(5, 6)

    def model(x: Any, ids: Any) -> Any:
        return tf.gather(x @ w, ids, batch_dims=1) * 2.0

    ids = np.random.default_rng(1).integers(0, 6, (8, 3)).astype("int32")
    return Pair(sharded(model, devices, [3, 1, 3, 1]), model, {"x": array(8, 5), "ids": ids}, [w], True)


@pair
def shards_of_one_row(devices: Any) -> Pair:
    w, gain, bias = variable(5, 3), variable(3, seed=1), variable(3, seed=2)

    def model(x: Any) -> Any:
        return tf.tanh(tf.tanh(x @ w) * gain + bias)

    return Pair(sharded(model, devices), model, {"x": array(4, 2, 5)}, [w, gain, bias], True)


@pair
def a_shard_of_no_rows(devices: Any) -> Pair:
    w = variable(5, 3)

    def model(x: Any) -> Any:
        return tf.nn.softmax(tf.reshape(x @ w, [-1, 3]))

    return Pair(sharded(model, devices, [3, 0, 2, 0]), model, {"x": array(5, 1, 5)}, [w], True)


@pair
def every_fourth_row(devices: Any) -> Pair:
    w = variable(5, 5)
    loss = lambda x: tf.reduce_sum(tf.tanh(x @ w) ** 2) / 10
    return Pair(lambda x: tf.add_n([loss(x[i::4]) for i in range(4)]), loss, {"x": array(10, 5)}, [w], True)


@pair
def every_fourth_row_put_back(devices: Any) -> Pair:
    w = variable(5, 5)
    model = lambda x: tf.nn.softmax(x @ w)

    def parallel(x: Any) -> Any:
        made = [model(x[i::4]) for i in range(4)]
        return tf.reshape(tf.stack(made, 1), [-1, 5]), tf.gather(tf.concat(made, 0), [0, 2, 4, 6, 1, 3, 5, 7])

    return Pair(parallel, lambda x: (model(x), model(x)), {"x": array(8, 5)}, [w])
