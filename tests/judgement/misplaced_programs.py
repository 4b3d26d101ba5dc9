"""Programs that share out a batch, with work on another shard's device where ``wrong``; else their clean twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from shard_programs import CUTS, Program, by_slices, by_split, cut_by, layers

from harness.devices.device import Devices
from harness.faults.samples import sample, shares

ROWS = 10


def towers(devices: Devices, work: Callable[[Any, str, int], Any]) -> Callable[..., Any]:
    import tensorflow as tf

    def parallel(x: Any) -> Any:
        parts = tf.split(x, shares(x.shape[0], len(devices)))
        names = [device.name for device in devices]
        results = [work(part, name, shard) for shard, (part, name) in enumerate(zip(parts, names, strict=True))]
        return tf.nest.map_structure(lambda *each: tf.concat(each, 0), *results)

    return parallel


def neighbours_index(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second, both = layers()

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            hidden = first(part)
        with tf.device(devices[2].name if wrong and shard == 3 else name):
            return second(hidden)

    return Program(towers(devices, work), both, {"x": sample(ROWS, 6)})


def middle_layer_on_the_last(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second, both = layers()

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            hidden = first(part)
            with tf.device(devices[3].name if wrong else name):
                hidden = second(hidden)
            return first(hidden)

    return Program(towers(devices, work), lambda x: first(both(x)), {"x": sample(ROWS, 6)})


def first_layer_hard_coded(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second, both = layers()

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(devices[1].name if wrong else name):
            hidden = first(part)
        with tf.device(name):
            return second(hidden)

    return Program(towers(devices, work), both, {"x": sample(ROWS, 6)})


def branch_taken_by_one(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second, _ = layers()
    x = sample(ROWS, 6)
    x[4] = 9.0

    def usual(part: Any) -> Any:
        return first(part)

    def rare(part: Any, name: str) -> Any:
        with tf.device(name):
            return tf.exp(-second(first(part)))

    def reference(x: Any) -> Any:
        return tf.concat([model(part, None) for part in tf.split(x, shares(ROWS, 4))], 0)

    def model(part: Any, name: str | None) -> Any:
        hidden = first(part)
        return tf.cond(
            tf.reduce_max(part) > 8.0,
            lambda: rare(hidden, devices[0].name if wrong and name is not None else name or devices[0].name),
            lambda: usual(hidden),
        )

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            return model(part, name)

    return Program(towers(devices, work), reference, {"x": x})


def heavy_on_the_first(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    _, _, both = layers()

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(devices[0].name if wrong else name):
            hidden = both(part)
        with tf.device(name):
            return hidden * 0.5

    return Program(towers(devices, work), lambda x: both(x) * 0.5, {"x": sample(ROWS, 6)})


def heavy_without_a_scope(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    _, _, both = layers()

    def work(part: Any, name: str, shard: int) -> Any:
        hidden = both(part) if wrong else None
        with tf.device(name):
            return (both(part) if hidden is None else hidden) * 0.5

    return Program(towers(devices, work), lambda x: both(x) * 0.5, {"x": sample(ROWS, 6)})


def half_of_the_features(devices: Devices, wrong: bool) -> Program:
    """Each device cuts its own result in two, and one half is worked on elsewhere."""
    import tensorflow as tf

    first, _, _ = layers()

    def halves(part: Any, name: str | None) -> Any:
        left, right = tf.split(first(part), 2, axis=1)
        with tf.device(devices[0].name if wrong and name else name):
            return tf.concat([tf.exp(left), tf.sin(tf.exp(right))], 1)

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            return halves(part, name)

    return Program(towers(devices, work), lambda x: halves(x, None), {"x": sample(ROWS, 6)})


def numpy_function(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def reference(x: Any) -> Any:
        return tf.math.cos(first(x))

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            hidden = first(part)
            return tf.numpy_function(np.cos, [hidden], tf.float32) if wrong else tf.math.cos(hidden)

    # In eager code TensorFlow calls the function itself, without an op.
    return Program(towers(devices, work), reference, {"x": sample(ROWS, 6)}, ("graph",))


def py_function(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second, both = layers()

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            hidden = first(part)
            return tf.py_function(second, [hidden], tf.float32) if wrong else second(hidden)

    return Program(towers(devices, work), both, {"x": sample(ROWS, 6)})


def py_function_with_labels(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def labels(hidden: Any) -> Any:
        return tf.argmax(hidden, 1)

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            hidden = first(part)
            return tf.py_function(labels, [hidden], tf.int64) if wrong else labels(hidden)

    return Program(towers(devices, work), lambda x: labels(first(x)), {"x": sample(ROWS, 6)})


def numpy_function_with_texts(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def named(hidden: Any) -> Any:
        return np.where(hidden[:, 0] > hidden[:, 1], b"left", b"right").astype(object)

    def reference(x: Any) -> Any:
        hidden = first(x)
        return tf.where(hidden[:, 0] > hidden[:, 1], "left", "right")

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            hidden = first(part)
            if wrong:
                return tf.numpy_function(named, [hidden], tf.string)
        return tf.where(hidden[:, 0] > hidden[:, 1], "left", "right")

    return Program(towers(devices, work), reference, {"x": sample(ROWS, 6)}, ("graph",))


def inside_make_parallel(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    from harness.parallel.data import make_parallel

    first, second, both = layers()

    def model(x: Any) -> Any:
        hidden = first(x)
        if not wrong:
            return second(hidden)
        with tf.device(devices[0].name):
            return second(hidden)

    return Program(make_parallel(model, devices), both, {"x": sample(ROWS, 6)})


def loop_body(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def reference(x: Any) -> Any:
        return tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, first(h)), [0, x])[1]

    def work(part: Any, name: str, shard: int) -> Any:
        def body(step: Any, hidden: Any) -> Any:
            with tf.device(devices[0].name if wrong else name):
                return step + 1, first(hidden)

        with tf.device(name):
            return tf.math.abs(tf.while_loop(lambda i, h: i < 3, body, [0, tf.sin(part)])[1])

    return Program(towers(devices, work), lambda x: tf.math.abs(reference(tf.sin(x))), {"x": sample(ROWS, 6)})


def mapped(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    weights = tf.Variable(sample(6, 6))

    def row(value: Any) -> Any:
        return tf.tanh(tf.linalg.matvec(weights, value))

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            part = tf.sin(part)
            with tf.device(devices[1].name if wrong else name):
                return tf.map_fn(row, part)

    return Program(towers(devices, work), lambda x: tf.map_fn(row, tf.sin(x)), {"x": sample(8, 6)})


def nested_function(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second, both = layers()
    inner = tf.function(second)

    @tf.function  # type: ignore[untyped-decorator]
    def outer(x: Any, name: str) -> Any:
        hidden = first(x)
        with tf.device(name):
            return inner(hidden)

    def work(part: Any, name: str, shard: int) -> Any:
        with tf.device(name):
            return outer(part, devices[0].name if wrong else name)

    return Program(towers(devices, work), both, {"x": sample(ROWS, 6)})


def given_in_parts(devices: Devices, wrong: bool) -> Program:
    """The shards are arguments of the program."""
    import tensorflow as tf

    first, second, both = layers()

    def parallel(xs: Any) -> Any:
        outputs = []
        for device, part in zip(devices, xs, strict=True):
            with tf.device(device.name):
                hidden = first(part)
            with tf.device(devices[0].name if wrong else device.name):
                outputs.append(second(hidden))
        return tf.concat(outputs, 0)

    return Program(parallel, lambda xs: both(tf.concat(xs, 0)), {"xs": [sample(3, 6, seed=k) for k in range(4)]})


def batches_of_a_dataset(devices: Devices, wrong: bool) -> Program:
    import tensorflow as tf

    first, second, both = layers()
    data = tf.data.Dataset.from_tensor_slices(sample(8, 6)).batch(2)

    def parallel(scale: Any) -> Any:
        outputs = []
        for device, part in zip(devices, data, strict=True):
            with tf.device(device.name):
                hidden = first(part)
            with tf.device(devices[0].name if wrong else device.name):
                outputs.append(second(hidden) * scale)
        return tf.concat(outputs, 0)

    return Program(parallel, lambda scale: both(sample(8, 6)) * scale, {"scale": np.float32(2.0)}, ("eager",))


def micro_batches(devices: Devices, wrong: bool) -> Program:
    """Gradients of eight micro-batches, two on each device, added up on the host."""
    import tensorflow as tf

    one, two = tf.Variable(sample(6, 6, seed=1)), tf.Variable(sample(6, 6, seed=2))

    def gradients(part: Any, name: str | None, other: str | None) -> Any:
        with tf.device(name), tf.GradientTape() as tape:
            hidden = tf.tanh(tf.matmul(part, one))
            with tf.device(other):
                loss = tf.reduce_sum(tf.nn.softplus(tf.matmul(hidden, two)))
        with tf.device(name):
            return tape.gradient(loss, [one, two])

    def parallel(x: Any) -> Any:
        totals = []
        for number, part in enumerate(tf.split(x, 8)):
            name = devices[number % 4].name
            totals.append(gradients(part, name, devices[0].name if wrong else name))
        return [tf.add_n(list(each)) / 8.0 for each in zip(*totals, strict=True)]

    def reference(x: Any) -> Any:
        return [total / 8.0 for total in gradients(x, None, None)]

    return Program(parallel, reference, {"x": sample(16, 6)})


PAIRS: dict[str, Callable[[Devices, bool], Program]] = {
    **{cut.__name__: cut_by(cut, [2, 2, 2, 2]) for cut in CUTS},
    "uneven split": cut_by(by_split, [1, 5, 2, 2]),
    "uneven slices": cut_by(by_slices, [1, 2, 5, 2]),
    **{
        make.__name__: make
        for make in (
            neighbours_index,
            middle_layer_on_the_last,
            first_layer_hard_coded,
            branch_taken_by_one,
            heavy_on_the_first,
            heavy_without_a_scope,
            half_of_the_features,
            numpy_function,
            numpy_function_with_texts,
            py_function,
            py_function_with_labels,
            inside_make_parallel,
            loop_body,
            mapped,
            nested_function,
            given_in_parts,
            batches_of_a_dataset,
            micro_batches,
        )
    },
}
