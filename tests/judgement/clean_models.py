"""Right programs: pipelines, ensembles and models in parts, which are no shards of one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shard_programs import Program, layers

from harness.devices.device import Devices
from harness.faults.samples import integers, sample


def pipeline_of_micro_batches(devices: Devices) -> Program:
    import tensorflow as tf

    first, second, _ = layers()
    stages = [first, second, tf.square, tf.nn.softmax]

    def reference(x: Any) -> Any:
        for stage in stages:
            x = stage(x)
        return x

    def parallel(x: Any) -> Any:
        outputs = []
        for part in tf.split(x, [3, 3, 3, 1]):
            for device, stage in zip(devices, stages, strict=True):
                with tf.device(device.name):
                    part = stage(part)
            outputs.append(part)
        return tf.concat(outputs, 0)

    return Program(parallel, reference, {"x": sample(10, 6)})


def two_pipelines(devices: Devices) -> Program:
    import tensorflow as tf

    first, second, both = layers()

    def parallel(x: Any) -> Any:
        outputs = []
        for number, part in enumerate(tf.split(x, 4)):
            with tf.device(devices[number % 2 * 2].name):
                hidden = first(part)
            with tf.device(devices[number % 2 * 2 + 1].name):
                outputs.append(second(hidden))
        return tf.concat(outputs, 0)

    return Program(parallel, both, {"x": sample(8, 6)})


def towers_before_a_device_of_their_own(devices: Devices) -> Program:
    import tensorflow as tf

    first, second, both = layers()

    def parallel(x: Any) -> Any:
        outputs = []
        for device, part in zip(devices[1:], tf.split(x, 3), strict=True):
            with tf.device(device.name):
                hidden = first(part)
            with tf.device(devices[0].name):
                outputs.append(second(hidden))
        return tf.concat(outputs, 0)

    return Program(parallel, both, {"x": sample(9, 6)})


def ensemble(devices: Devices) -> Program:
    import tensorflow as tf

    models = [layers()[2] for _ in range(4)]

    def parallel(x: Any) -> Any:
        votes = []
        for device, model in zip(devices, models, strict=True):
            with tf.device(device.name):
                votes.append(model(x))
        with tf.device(devices[3].name):
            return tf.reduce_mean(tf.stack(votes), 0)

    return Program(parallel, lambda x: tf.add_n([model(x) for model in models]) / 4.0, {"x": sample(8, 6)})


def wide_and_deep(devices: Devices) -> Program:
    import tensorflow as tf

    first, second, _ = layers()

    def model(x: Any, one: str | None, other: str | None) -> Any:
        wide, deep = tf.split(x, 2, axis=1)
        with tf.device(one):
            hidden = first(deep)
        with tf.device(other):
            return second(hidden) + second(wide)

    def parallel(x: Any) -> Any:
        return model(x, devices[0].name, devices[1].name)

    return Program(parallel, lambda x: model(x, None, None), {"x": sample(8, 12)}, devices=2)


def query_and_document(devices: Devices) -> Program:
    """Two towers on two devices; the second one also compares what they made."""
    import tensorflow as tf

    first, _, _ = layers()

    def model(query: Any, document: Any, one: str | None, other: str | None) -> Any:
        with tf.device(one):
            left = first(query)
        with tf.device(other):
            right = first(document)
            return tf.reduce_sum(tf.nn.l2_normalize(left, 1) * tf.nn.l2_normalize(right, 1), 1)

    def parallel(query: Any, document: Any) -> Any:
        return model(query, document, devices[0].name, devices[1].name)

    inputs = {"query": sample(8, 6), "document": sample(8, 6, seed=4)}
    return Program(parallel, lambda query, document: model(query, document, None, None), inputs, devices=2)


def rows_sent_to_experts(devices: Devices) -> Program:
    import tensorflow as tf

    experts = [layers()[2] for _ in range(4)]

    def mixed(x: Any, names: list[str | None]) -> Any:
        owners = tf.cast(tf.math.argmax(x[:, :4], 1), tf.int32)
        rows = tf.dynamic_partition(tf.range(tf.shape(x)[0]), owners, 4)
        parts = tf.dynamic_partition(x, owners, 4)
        outputs = []
        for name, expert, part in zip(names, experts, parts, strict=True):
            with tf.device(name):
                outputs.append(expert(part))
        return tf.dynamic_stitch(rows, outputs)

    names: list[str | None] = [device.name for device in devices]
    return Program(lambda x: mixed(x, names), lambda x: mixed(x, [None] * 4), {"x": sample(16, 6)})


def unrolled_network_of_two_layers(devices: Devices) -> Program:
    import tensorflow as tf

    first, second, _ = layers()

    def model(x: Any, one: str | None, other: str | None) -> Any:
        low = high = tf.zeros([4, 6])
        for step in tf.unstack(x, axis=1):
            with tf.device(one):
                low = first(tf.sin(step) + low)
            with tf.device(other):
                high = second(low + high)
        return high

    def parallel(x: Any) -> Any:
        return model(x, devices[0].name, devices[1].name)

    return Program(parallel, lambda x: model(x, None, None), {"x": sample(4, 3, 6)}, devices=2)


def groups_of_groups(devices: Devices) -> Program:
    """Two groups of two devices: each group works on its half on its first device, then in two parts."""
    import tensorflow as tf

    first, second, both = layers()

    def parallel(x: Any) -> Any:
        outputs = []
        for half, group in zip(tf.split(x, 2), (devices[:2], devices[2:]), strict=True):
            with tf.device(group[0].name):
                hidden = first(half)
            for device, part in zip(group, tf.split(hidden, 2), strict=True):
                with tf.device(device.name):
                    outputs.append(second(part))
        return tf.concat(outputs, 0)

    return Program(parallel, both, {"x": sample(8, 6)})


def members_on_each_part(devices: Devices) -> Program:
    """Every device has a model, and every model sees every part."""
    import tensorflow as tf

    models = [layers()[2] for _ in range(4)]

    def reference(x: Any) -> Any:
        return tf.add_n([model(x) for model in models]) / 4.0

    def parallel(x: Any) -> Any:
        outputs = []
        for part in tf.split(x, 4):
            votes = []
            for device, model in zip(devices, models, strict=True):
                with tf.device(device.name):
                    votes.append(model(part))
            outputs.append(tf.add_n(votes) / 4.0)
        return tf.concat(outputs, 0)

    return Program(parallel, reference, {"x": sample(8, 6)})


def members_on_rows_of_their_own(devices: Devices) -> Program:
    """Each model has drawn its rows; the first device weighs what they say, and goes on with it."""
    import tensorflow as tf

    models = [layers()[2] for _ in range(4)]
    drawn = integers(8, 4, 5)

    def votes(x: Any, places: list[str | None], last: str | None) -> Any:
        outputs = []
        for place, model, rows in zip(places, models, drawn, strict=True):
            with tf.device(place):
                outputs.append(model(tf.gather(x, rows)))
        with tf.device(last):
            return tf.reduce_mean(tf.stack([tf.sigmoid(output) for output in outputs]), 0)

    def parallel(x: Any) -> Any:
        return votes(x, [device.name for device in devices], devices[0].name)

    return Program(parallel, lambda x: votes(x, [None] * 4, None), {"x": sample(8, 6)})


CLEAN: tuple[Callable[[Devices], Program], ...] = (
    pipeline_of_micro_batches,
    two_pipelines,
    towers_before_a_device_of_their_own,
    ensemble,
    wide_and_deep,
    query_and_document,
    rows_sent_to_experts,
    unrolled_network_of_two_layers,
    groups_of_groups,
    members_on_each_part,
    members_on_rows_of_their_own,
)
