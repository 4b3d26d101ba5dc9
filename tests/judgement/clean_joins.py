"""Right programs: tensors of several devices meet, move and are added up in many places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shard_programs import Program, layers, on_shards

from harness.devices.device import Devices
from harness.faults.samples import integers, sample


def all_gather_then_flatten(devices: Devices) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        hidden = on_shards(devices, first, x)
        copies = []
        for device in devices:
            with tf.device(device.name):
                copies.append(tf.reshape(tf.concat(hidden, 0), [-1]))
        return copies

    return Program(parallel, lambda x: [tf.reshape(first(x), [-1])] * 4, {"x": sample(8, 6)})


def tree_of_sums(devices: Devices) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        a, b, c, d = on_shards(devices, lambda part: tf.reduce_sum(first(part), 0), x)
        with tf.device(devices[1].name):
            left = a + b
        with tf.device(devices[3].name):
            right = tf.add_n([c, d])
            return tf.cast(left + right, tf.float64) / 8.0

    return Program(parallel, lambda x: tf.cast(tf.reduce_sum(first(x), 0), tf.float64) / 8.0, {"x": sample(8, 6)})


def all_to_all(devices: Devices) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        pieces = on_shards(devices, lambda part: tf.split(first(part), [2, 2, 1, 1], axis=1), x)
        columns = []
        for device, own in zip(devices, zip(*pieces, strict=True), strict=True):
            with tf.device(device.name):
                columns.append(tf.concat(own, 0))
        return tf.concat(columns, 1)

    return Program(parallel, first, {"x": sample(8, 6)})


def mirrored_variables(devices: Devices) -> Program:
    import tensorflow as tf

    copies = []
    for device in devices:
        with tf.device(device.name):
            copies.append(tf.Variable(sample(6, 2)))
    single = tf.Variable(sample(6, 2))

    def gradient(weights: Any, part: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.matmul(part, weights)))
        return loss, tape.gradient(loss, weights)

    def parallel(x: Any) -> Any:
        found = []
        for device, weights, part in zip(devices, copies, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                found.append(gradient(weights, part))
        losses, gradients = zip(*found, strict=True)
        for device, weights in zip(devices, copies, strict=True):
            with tf.device(device.name):
                weights.assign_sub(tf.add_n(gradients) * 0.01)
        return tf.add_n(losses), copies[3].read_value()

    def reference(x: Any) -> Any:
        loss, found = gradient(single, x)
        single.assign_sub(found * 0.01)
        return loss, single.read_value()

    return Program(parallel, reference, {"x": sample(8, 6)})


def halo_exchange(devices: Devices) -> Program:
    """A smoothing over rows: each device needs the last row of its neighbour."""
    import tensorflow as tf

    def reference(x: Any) -> Any:
        return tf.tanh(x) + 0.5 * tf.concat([tf.zeros_like(x[:1]), tf.tanh(x)[:-1]], 0)

    def parallel(x: Any) -> Any:
        hidden = on_shards(devices, tf.tanh, x)
        outputs = []
        for number, device in enumerate(devices):
            with tf.device(device.name):
                edge = tf.zeros_like(hidden[0][:1]) if number == 0 else hidden[number - 1][-1:] * 0.5
                rest = hidden[number][:-1] * 0.5
                outputs.append(hidden[number] + tf.concat([edge, rest], 0))
        return tf.concat(outputs, 0)

    return Program(parallel, reference, {"x": sample(12, 6)})


def ring_of_sums(devices: Devices) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        sums = on_shards(devices, lambda part: tf.reduce_sum(first(part), 0), x)
        running = sums[0]
        for device, own in zip(devices[1:], sums[1:], strict=True):
            with tf.device(device.name):
                running = running + own
        results = []
        for device in devices:
            with tf.device(device.name):
                results.append(running * 2.0)
        return results

    return Program(parallel, lambda x: [tf.reduce_sum(first(x), 0) * 2.0] * 4, {"x": sample(8, 6)})


def ring_of_blocks(devices: Devices) -> Program:
    """Attention without a softmax: the keys and values go round."""
    import tensorflow as tf

    first, second, _ = layers()

    def reference(x: Any) -> Any:
        return tf.matmul(tf.matmul(first(x), second(x), transpose_b=True), second(x))

    def parallel(x: Any) -> Any:
        queries, keys = on_shards(devices, first, x), on_shards(devices, second, x)
        outputs = []
        for number, device in enumerate(devices):
            with tf.device(device.name):
                partial = []
                for step in range(4):
                    block = tf.identity(keys[(number + step) % 4])
                    partial.append(tf.matmul(tf.matmul(queries[number], block, transpose_b=True), block))
                outputs.append(tf.add_n(partial))
        return tf.concat(outputs, 0)

    return Program(parallel, reference, {"x": sample(8, 6)})


def statistics_of_the_whole_batch(devices: Devices) -> Program:
    import tensorflow as tf

    first, second, _ = layers()

    def reference(x: Any) -> Any:
        hidden = first(x)
        return second(hidden - tf.reduce_mean(hidden, 0))

    def parallel(x: Any) -> Any:
        hidden = on_shards(devices, first, x)
        mean = tf.add_n([tf.reduce_sum(each, 0) for each in hidden]) / 8.0
        outputs = []
        for device, own in zip(devices, hidden, strict=True):
            with tf.device(device.name):
                outputs.append(second(own - mean))
        return tf.concat(outputs, 0)

    return Program(parallel, reference, {"x": sample(8, 6)})


def running_sum_over_devices(devices: Devices) -> Program:
    import tensorflow as tf

    def parallel(x: Any) -> Any:
        hidden = on_shards(devices, lambda part: tf.cumsum(tf.exp(part)), x)
        outputs = [hidden[0]]
        for number, device in enumerate(devices[1:], start=1):
            with tf.device(device.name):
                outputs.append(hidden[number] + tf.add_n([each[-1] for each in hidden[:number]]))
        return tf.concat(outputs, 0)

    return Program(parallel, lambda x: tf.cumsum(tf.exp(x)), {"x": sample(8, 6)})


def summed_on_one_and_used_by_all(devices: Devices) -> Program:
    import tensorflow as tf

    first, second, _ = layers()

    def parallel(x: Any) -> Any:
        hidden = on_shards(devices, first, x)
        with tf.device(devices[2].name):
            total = tf.add_n([tf.reduce_sum(each, 0, keepdims=True) for each in hidden])
        outputs = []
        for device in devices:
            with tf.device(device.name):
                outputs.append(second(total))
        return outputs

    def reference(x: Any) -> Any:
        return [second(tf.reduce_sum(first(x), 0, keepdims=True))] * 4

    return Program(parallel, reference, {"x": sample(8, 6)})


def gathered_on_the_first(devices: Devices) -> Program:
    """Neither the split nor the join is on the host."""
    import tensorflow as tf

    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        with tf.device(devices[0].name):
            parts = tf.split(x, 3)
        outputs = []
        for device, part in zip(devices[:3], parts, strict=True):
            with tf.device(device.name):
                outputs.append(first(part))
        with tf.device(devices[0].name):
            return tf.concat(outputs, 0)

    return Program(parallel, first, {"x": sample(9, 6)}, devices=3)


def scatter_of_sums(devices: Devices) -> Program:
    """Each device adds up one part of the gradients of all."""
    import tensorflow as tf

    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        whole = on_shards(devices, lambda part: tf.reduce_sum(first(part), 0), x)
        sums = []
        for device, start in zip(devices, (0, 2, 4, 5), strict=True):
            with tf.device(device.name):
                end = {0: 2, 2: 4, 4: 5, 5: 6}[start]
                sums.append(tf.add_n([each[start:end] for each in whole]))
        return tf.concat(sums, 0)

    return Program(parallel, lambda x: tf.reduce_sum(first(x), 0), {"x": sample(8, 6)})


def inputs_exchanged(devices: Devices) -> Program:
    """Each device splits the rows that it was given, and every device gets a part of each."""
    import tensorflow as tf

    first, _, _ = layers()

    def parallel(xs: Any) -> Any:
        pieces = []
        for device, own in zip(devices, xs, strict=True):
            with tf.device(device.name):
                pieces.append(tf.split(own, 4, axis=0))
        outputs = []
        for device, mine in zip(devices, zip(*pieces, strict=True), strict=True):
            with tf.device(device.name):
                outputs.append(first(tf.concat(mine, 0)))
        return tf.concat(outputs, 0)

    def reference(xs: Any) -> Any:
        return first(tf.concat([x[k : k + 1] for k in range(4) for x in xs], 0))

    return Program(parallel, reference, {"xs": [sample(4, 6, seed=k) for k in range(4)]})


def losses_weighted_by_their_rows(devices: Devices) -> Program:
    import tensorflow as tf

    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        total = 0.0
        for device, part in zip(devices, tf.split(x, [3, 3, 2, 2]), strict=True):
            with tf.device(device.name):
                loss = tf.reduce_mean(tf.square(first(part)))
            total += tf.cast(part.shape[0], tf.float32) * loss / 10.0
        return total

    return Program(parallel, lambda x: tf.reduce_mean(tf.square(first(x))), {"x": sample(10, 6)})


def best_row_of_all(devices: Devices) -> Program:
    import tensorflow as tf

    def parallel(x: Any) -> Any:
        best, where, before = [], [], 0
        for device, part in zip(devices, tf.split(x, [3, 3, 2, 2]), strict=True):
            with tf.device(device.name):
                best.append(tf.reduce_max(part, 0))
                index = tf.argmax(part, 0)
            where.append(index + before)
            before += part.shape[0]
        winner = tf.argmax(tf.stack(best), 0)
        return tf.gather(tf.stack(where, 1), winner, batch_dims=1)

    return Program(parallel, lambda x: tf.argmax(x, 0), {"x": sample(10, 6)})


def hits_counted_on_the_host(devices: Devices) -> Program:
    import tensorflow as tf

    _, _, both = layers()

    def parallel(x: Any, y: Any) -> Any:
        hits = 0
        for device, part, labels in zip(devices, tf.split(x, 4), tf.split(y, 4), strict=True):
            with tf.device(device.name):
                best = tf.argmax(both(part), 1)
            hits += tf.math.count_nonzero(tf.equal(best, labels))
        return tf.cast(hits, tf.float32) / 8.0

    def reference(x: Any, y: Any) -> Any:
        return tf.cast(tf.math.count_nonzero(tf.equal(tf.argmax(both(x), 1), y)), tf.float32) / 8.0

    return Program(parallel, reference, {"x": sample(8, 6), "y": integers(6, 8)})


def picked_by_their_values(devices: Devices) -> Program:
    """Each device gets the rows that belong to it. Picking them is no work on them."""
    import tensorflow as tf

    def parallel(x: Any, group: Any) -> Any:
        outputs = []
        for number, device in enumerate(devices):
            picked = tf.boolean_mask(x, tf.equal(group, number))
            with tf.device(device.name):
                outputs.append(tf.square(picked))
        return tf.concat(outputs, 0)

    def reference(x: Any, group: Any) -> Any:
        return tf.concat([tf.square(tf.boolean_mask(x, tf.equal(group, number))) for number in range(4)], 0)

    return Program(parallel, reference, {"x": sample(12, 6), "group": integers(4, 12)})


CLEAN: tuple[Callable[[Devices], Program], ...] = (
    all_gather_then_flatten,
    tree_of_sums,
    all_to_all,
    mirrored_variables,
    halo_exchange,
    ring_of_sums,
    ring_of_blocks,
    statistics_of_the_whole_batch,
    running_sum_over_devices,
    summed_on_one_and_used_by_all,
    gathered_on_the_first,
    scatter_of_sums,
    inputs_exchanged,
    losses_weighted_by_their_rows,
    best_row_of_all,
    hits_counted_on_the_host,
    picked_by_their_values,
)
