"""Right programs: shards that split, slice, look up and branch inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from shard_programs import Program, layers, on_shards

from harness.devices.device import Devices
from harness.faults.samples import integers, sample
from harness.parallel.data import make_parallel


def halves_of_the_features(devices: Devices) -> Program:
    import tensorflow as tf

    fn = lambda x: tf.split(x, 2, axis=1)[0] ** 2  # noqa: E731
    return Program(make_parallel(fn, devices), fn, {"x": sample(10, 6)})


def one_feature_of_each(devices: Devices) -> Program:
    import tensorflow as tf

    def fn(x: Any) -> Any:
        first, *_, last = tf.unstack(x, axis=1)
        return tf.exp(first) * last

    return Program(make_parallel(fn, devices), fn, {"x": sample(10, 6)})


def gates(devices: Devices) -> Program:
    import tensorflow as tf

    weights = tf.Variable(sample(6, 12))

    def fn(x: Any) -> Any:
        keep, new, out = tf.split(tf.matmul(x, weights), 3, axis=1)
        return tf.sigmoid(keep) * tf.tanh(new) + tf.sigmoid(out)

    return Program(make_parallel(fn, devices), fn, {"x": sample(10, 6)})


def table_lookup(devices: Devices) -> Program:
    import tensorflow as tf

    keys = tf.constant(np.arange(20, dtype=np.int64))
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys * 3), -1)
    weights = tf.Variable(sample(60, 4))

    def fn(x: Any) -> Any:
        return tf.tanh(tf.gather(weights.read_value(), table.lookup(x)))

    return Program(make_parallel(fn, devices), fn, {"x": integers(20, 10)})


def small_lookup_before_much_work(devices: Devices) -> Program:
    import tensorflow as tf

    with tf.device(devices[0].name):
        table = tf.Variable(sample(20, 32))
    layers = [tf.Variable(sample(32, 32, seed=seed) / 8) for seed in range(3)]

    def fn(x: Any) -> Any:
        hidden = tf.gather(table, x)
        for weights in layers:
            hidden = tf.tanh(tf.matmul(hidden, weights))
        return hidden

    return Program(make_parallel(fn, devices), fn, {"x": integers(20, 10)})


def prepared_on_the_host(devices: Devices) -> Program:
    """Each shard is scaled before it enters its scope."""
    import tensorflow as tf

    first, _, both = layers()

    def prepared(x: Any) -> Any:
        return (tf.cast(x, tf.float32) - 128.0) / 255.0

    def parallel(x: Any) -> Any:
        outputs = []
        for device, part in zip(devices, tf.split(x, 4), strict=True):
            part = prepared(part)
            with tf.device(device.name):
                outputs.append(first(both(part)))
        return tf.concat(outputs, 0)

    return Program(parallel, lambda x: first(both(prepared(x))), {"x": integers(256, 8, 6)})


def looked_up_before_the_scope(devices: Devices) -> Program:
    """Rows of a table on the host are fetched there for each shard, which then does the work."""
    import tensorflow as tf

    with tf.device(devices.host):
        table = tf.Variable(sample(256, 6))
    first, _, both = layers()

    def parallel(x: Any) -> Any:
        outputs = []
        for device, part in zip(devices, tf.split(x, 4), strict=True):
            rows = tf.gather(table, part)
            with tf.device(device.name):
                outputs.append(first(both(rows)))
        return tf.concat(outputs, 0)

    return Program(parallel, lambda x: first(both(tf.gather(table, x))), {"x": integers(256, 8)})


def cells_looked_at_by_python(devices: Devices) -> Program:
    """Python sees values on their way, and gives none back."""
    import tensorflow as tf

    first, second, both = layers()
    seen: list[Any] = []

    def fn(x: Any) -> Any:
        hidden = first(x)
        tf.py_function(lambda value: seen.append(value.shape), [hidden], [])
        return second(hidden)

    return Program(make_parallel(fn, devices), both, {"x": sample(8, 6)})


def cells_counted_by_python(devices: Devices) -> Program:
    """Python counts rows in the scope of a shard, which waits for it, and picks labels after the join."""
    import tensorflow as tf

    first, second, both = layers()

    def fn(x: Any) -> Any:
        hidden = first(x)
        count = tf.py_function(lambda value: tf.size(value, tf.int64), [hidden], tf.int64)
        with tf.control_dependencies([count]):
            return second(hidden)

    def parallel(x: Any) -> Any:
        joined = tf.concat(on_shards(devices, fn, x), 0)
        return tf.py_function(lambda value: tf.argmax(value, 1), [joined], tf.int64)

    return Program(parallel, lambda x: tf.argmax(both(x), 1), {"x": sample(8, 6)})


def branches(devices: Devices) -> Program:
    import tensorflow as tf

    first, second, _ = layers()

    def fn(x: Any) -> Any:
        kind = tf.cast(tf.math.abs(x[0, 0] * 10.0), tf.int32) % 2
        return tf.switch_case(kind, [lambda: first(x), lambda: second(x)])

    def reference(x: Any) -> Any:
        return tf.concat([fn(part) for part in tf.split(x, 4)], 0)

    def parallel(x: Any) -> Any:
        return tf.concat(on_shards(devices, fn, x), 0)

    return Program(parallel, reference, {"x": sample(8, 6)})


def heads_of_attention(devices: Devices) -> Program:
    import tensorflow as tf

    weights = tf.Variable(sample(8, 24))

    def fn(x: Any) -> Any:
        query, key, value = tf.split(tf.matmul(x, weights), 3, axis=-1)
        heads = []
        for q, k, v in zip(*(tf.split(each, 2, axis=-1) for each in (query, key, value)), strict=True):
            heads.append(tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True)), v))
        return tf.concat(heads, -1)

    return Program(make_parallel(fn, devices), fn, {"x": sample(6, 3, 8)})


def slices_of_a_variable_updated_by_their_owners(devices: Devices) -> Program:
    import tensorflow as tf

    weights = [tf.Variable(part) for part in np.split(sample(8, 6), 4)]

    def parallel(x: Any) -> Any:
        results = []
        for device, own, part in zip(devices, weights, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                results.append(own - 0.1 * tf.tanh(part) * own)
        return tf.concat(results, 0)

    return Program(parallel, lambda x: sample(8, 6) - 0.1 * tf.tanh(x) * sample(8, 6), {"x": sample(8, 6, seed=2)})


def steps_of_their_own_then_a_mean(devices: Devices) -> Program:
    """Each device takes a step on its own copy; the copies are then averaged."""
    import tensorflow as tf

    start = sample(6, 2)

    def stepped(part: Any, name: str | None) -> Any:
        with tf.device(name):
            weights = tf.identity(start)
            for _ in range(2):
                with tf.GradientTape() as tape:
                    tape.watch(weights)
                    loss = tf.reduce_mean(tf.square(tf.matmul(part, weights)))
                weights -= 0.1 * tf.clip_by_norm(tape.gradient(loss, weights), 1.0)
            return weights

    def parallel(x: Any) -> Any:
        parts = zip(devices, tf.split(x, 4), strict=True)
        return tf.reduce_mean(tf.stack([stepped(part, device.name) for device, part in parts]), 0)

    def reference(x: Any) -> Any:
        return tf.add_n([stepped(part, None) for part in tf.split(x, 4)]) / 4.0

    return Program(parallel, reference, {"x": sample(8, 6)})


def weights_in_parts_gathered_by_each(devices: Devices) -> Program:
    import tensorflow as tf

    columns = []
    for number, device in enumerate(devices):
        with tf.device(device.name):
            columns.append(tf.Variable(sample(6, 2, seed=number)))

    def model(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, tf.concat([tf.convert_to_tensor(own) for own in columns], 1)))

    def parallel(x: Any) -> Any:
        return tf.concat(on_shards(devices, model, x), 0)

    return Program(parallel, model, {"x": sample(8, 6)})


def jacobian_of_each_row(devices: Devices) -> Program:
    import tensorflow as tf

    weights = tf.Variable(sample(6, 5))

    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(tf.matmul(x, weights))
        return tape.batch_jacobian(y, x)

    return Program(make_parallel(fn, devices), fn, {"x": sample(10, 6)})


def metric_updated_outside_of_the_scopes(devices: Devices) -> Program:
    """Its own arithmetic belongs to its variable, also where TensorFlow leaves an op out, as the sum of one number."""
    import tensorflow as tf

    weights, total = tf.Variable(sample(6)), tf.Variable(0.0)

    def added(predicted: Any) -> None:
        total.assign_add(tf.reduce_sum(tf.reduce_sum(tf.abs(predicted - 1.0))))

    def parallel(x: Any) -> Any:
        total.assign(0.0)
        for device, part in zip(devices, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                predicted = tf.linalg.matvec(part, weights)
            added(predicted)
        return total.read_value()

    def reference(x: Any) -> Any:
        total.assign(0.0)
        added(tf.linalg.matvec(x, weights))
        return total.read_value()

    return Program(parallel, reference, {"x": sample(8, 6)})


def metric_of_each_part_after_the_towers(devices: Devices) -> Program:
    """The parts of a metric that TensorFlow fuses: what is left out belongs to the variable, too."""
    import tensorflow as tf

    weights, total = tf.Variable(sample(6)), tf.Variable(0.0)

    def added(rows: Any, predicted: Any) -> None:
        total.assign_add(tf.reduce_sum(tf.square(predicted - rows[:, 0])))

    def parallel(x: Any) -> Any:
        parts = tf.split(x, 4)
        results = []
        for device, part in zip(devices, parts, strict=True):
            with tf.device(device.name):
                results.append(tf.linalg.matvec(part, weights))
        total.assign(0.0)
        for part, predicted in zip(parts, results, strict=True):
            added(part, predicted)
        return total.read_value()

    def reference(x: Any) -> Any:
        total.assign(0.0)
        added(x, tf.linalg.matvec(x, weights))
        return total.read_value()

    return Program(parallel, reference, {"x": sample(8, 6)})


def numbers_checked_on_the_host(devices: Devices) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def fn(x: Any) -> Any:
        hidden = first(x)
        with tf.device(devices.host):
            tf.debugging.assert_all_finite(hidden, "not finite")
        return tf.exp(hidden)

    return Program(lambda x: tf.concat(on_shards(devices, fn, x), 0), fn, {"x": sample(8, 6)})


CLEAN: tuple[Callable[[Devices], Program], ...] = (
    halves_of_the_features,
    one_feature_of_each,
    gates,
    table_lookup,
    small_lookup_before_much_work,
    prepared_on_the_host,
    cells_counted_by_python,
    cells_looked_at_by_python,
    looked_up_before_the_scope,
    branches,
    heads_of_attention,
    slices_of_a_variable_updated_by_their_owners,
    steps_of_their_own_then_a_mean,
    weights_in_parts_gathered_by_each,
    jacobian_of_each_row,
    metric_updated_outside_of_the_scopes,
    metric_of_each_part_after_the_towers,
    numbers_checked_on_the_host,
)
