"""Programs that leave much of their work to one device, or join a shard's tensors elsewhere, with their clean twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from shard_programs import Program

from harness.devices.device import Devices
from harness.faults.samples import sample


def _variable(*shape: int, seed: int = 0) -> Any:
    import tensorflow as tf

    return tf.Variable(sample(*shape, seed=seed) / 4)


def _network(*weights: Any) -> Callable[[Any], Any]:
    import tensorflow as tf

    def run(rows: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(rows, weights[0])), weights[1])

    return run


def _each(devices: Devices, *wholes: Any) -> Iterator[tuple[Any, ...]]:
    """Each device, and its parts."""
    import tensorflow as tf

    return zip(devices, *(tf.split(whole, len(devices)) for whole in wholes), strict=True)


def real_rows_of_a_discriminator(devices: Devices, wrong: bool) -> Program:
    """The fakes are shared out, and the real rows are not."""
    import tensorflow as tf

    generator = _network(_variable(4, 16, seed=1), _variable(16, 8, seed=2))
    critic = _network(_variable(8, 16, seed=3), _variable(16, 1, seed=4))

    def parallel(real: Any, noise: Any) -> Any:
        losses = []
        if wrong:
            with tf.device(devices[0].name):
                losses.append(tf.reduce_sum(tf.nn.softplus(-critic(real))))
        for device, rows, seeds in _each(devices, real, noise):
            with tf.device(device.name):
                losses.append(tf.reduce_sum(tf.nn.softplus(critic(generator(seeds)))))
                if not wrong:
                    losses.append(tf.reduce_sum(tf.nn.softplus(-critic(rows))))
        return tf.add_n(losses)

    def reference(real: Any, noise: Any) -> Any:
        fakes = tf.nn.softplus(critic(generator(noise)))
        return tf.reduce_sum(fakes) + tf.reduce_sum(tf.nn.softplus(-critic(real)))

    return Program(parallel, reference, {"real": sample(8, 8), "noise": sample(8, 4, seed=1)})


def keys_of_a_momentum_encoder(devices: Devices, wrong: bool) -> Program:
    """All keys are made in the scope of the first device, and each shard reads its own."""
    import tensorflow as tf

    encoder = _network(_variable(8, 16, seed=1), _variable(16, 4, seed=2))
    momentum = _network(_variable(8, 16, seed=3), _variable(16, 4, seed=4))

    def parallel(query: Any, key: Any) -> Any:
        products, made = [], []
        if wrong:
            with tf.device(devices[0].name):
                made = tf.split(momentum(key), len(devices))
        for index, (device, rows, others) in enumerate(_each(devices, query, key)):
            with tf.device(device.name):
                keys = made[index] if wrong else momentum(others)
                products.append(tf.nn.log_softmax(encoder(rows) * keys))
        return tf.concat(products, 0)

    def reference(query: Any, key: Any) -> Any:
        return tf.nn.log_softmax(encoder(query) * momentum(key))

    return Program(parallel, reference, {"query": sample(8, 8), "key": sample(8, 8, seed=1)})


def clients_evaluated_by_one(devices: Devices, wrong: bool) -> Program:
    """The clients' rows for training and for evaluation are alike in shape."""
    import tensorflow as tf

    network = _network(_variable(6, 16, seed=1), _variable(16, 2, seed=2))

    def parallel(train: Any, held: Any) -> Any:
        losses, errors = [], []
        for device, rows, others in zip(devices, train, held, strict=True):
            with tf.device(device.name):
                losses.append(tf.reduce_mean(network(rows) ** 2))
            with tf.device((devices[0] if wrong else device).name):
                errors.append(tf.reduce_mean(tf.abs(network(others))))
        return tf.add_n(losses), tf.stack(errors)

    def reference(train: Any, held: Any) -> Any:
        losses = [tf.reduce_mean(network(rows) ** 2) for rows in train]
        return tf.add_n(losses), tf.stack([tf.reduce_mean(tf.abs(network(rows))) for rows in held])

    rows = [[sample(6, 6, seed=start + seed) for seed in range(len(devices))] for start in (0, 10)]
    return Program(parallel, reference, {"train": rows[0], "held": rows[1]})


def features_exchanged(devices: Devices, wrong: bool) -> Program:
    """Each device looks up a feature of all rows; one device works on all rows of the joined ones."""
    import tensorflow as tf

    tables = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            tables.append(_variable(9, 8, seed=index))
    network = _network(_variable(8 * len(devices), 32, seed=8), _variable(32, 4, seed=9))

    def parallel(ids: Any) -> Any:
        parts, results = [], []
        for index, device in enumerate(devices):
            with tf.device(device.name):
                parts.append(tf.split(tf.gather(tables[index], ids[:, index]), len(devices)))
        for device, features in zip(devices, zip(*parts, strict=True), strict=True):
            with tf.device((devices[0] if wrong else device).name):
                results.append(network(tf.concat(features, 1)))
        return tf.concat(results, 0)

    def reference(ids: Any) -> Any:
        return network(tf.concat([tf.gather(table, ids[:, index]) for index, table in enumerate(tables)], 1))

    ids = np.random.default_rng(0).integers(0, 9, size=(16, len(devices))).astype("int32")
    return Program(parallel, reference, {"ids": ids})


def _with_cache(devices: Devices, wrong: bool, join: Callable[[Any, Any], Any]) -> Program:
    import tensorflow as tf

    query, key = _variable(8, 8, seed=1), _variable(8, 8, seed=2)

    def attended(rows: Any, cache: Any, home: str | None, beside: str | None) -> Any:
        with tf.device(home):
            asked, new = tf.matmul(rows, query), tf.matmul(rows, key)
        with tf.device(beside):
            keys = join(cache, new)
        with tf.device(home):
            return tf.matmul(tf.nn.softmax(tf.matmul(asked, keys, transpose_b=True)), keys), keys

    def parallel(x: Any, cache: Any) -> Any:
        names = [device.name for device in devices]
        beside = names[1:] + names[:1] if wrong else names
        made = [
            attended(part[1], part[2], home, there)
            for part, home, there in zip(_each(devices, x, cache), names, beside, strict=True)
        ]
        return [tf.concat(results, 0) for results in zip(*made, strict=True)]

    def reference(x: Any, cache: Any) -> Any:
        return list(attended(x, cache, None, None))

    return Program(parallel, reference, {"x": sample(8, 1, 8), "cache": sample(8, 5, 8, seed=1)})


def cache_joined_on_a_neighbour(devices: Devices, wrong: bool) -> Program:
    """A cache of keys grows by one position."""
    import tensorflow as tf

    return _with_cache(devices, wrong, lambda cache, new: tf.concat([cache, new], 1))


def heads_of_few_rows(devices: Devices, wrong: bool) -> Program:
    """The heads are shared out, one to a device: that there are fewer rows than devices does not matter."""
    import tensorflow as tf

    weights = _variable(6, 4 * len(devices))

    def parallel(x: Any) -> Any:
        heads = []
        for index, part in enumerate(tf.split(weights, len(devices), axis=1)):
            with tf.device(devices[0 if wrong and index == 3 else index].name):
                heads.append(tf.nn.softmax(tf.matmul(x, part)))
        return tf.concat(heads, 1)

    def reference(x: Any) -> Any:
        parts = tf.split(weights, len(devices), axis=1)
        return tf.concat([tf.nn.softmax(tf.matmul(x, part)) for part in parts], 1)

    return Program(parallel, reference, {"x": sample(2, 6)})


def teacher_in_numpy(devices: Devices, wrong: bool) -> Program:
    """NumPy makes the soft labels from parts of the second argument."""
    import tensorflow as tf

    student, hidden, out = _variable(8, 4), _variable(8, 16, seed=1), _variable(16, 4, seed=2)
    teacher = _network(hidden, out)

    def in_numpy(rows: Any) -> Any:
        return tf.constant(np.maximum(rows.numpy() @ hidden.numpy(), 0) @ out.numpy())

    def parallel(x: Any, clean: Any) -> Any:
        losses = []
        for device, rows, others in _each(devices, x, clean):
            with tf.device(device.name):
                wanted = in_numpy(others) if wrong else teacher(others)
                losses.append(tf.reduce_sum((tf.matmul(rows, student) - wanted) ** 2))
        return tf.add_n(losses)

    def reference(x: Any, clean: Any) -> Any:
        return tf.reduce_sum((tf.matmul(x, student) - teacher(clean)) ** 2)

    return Program(parallel, reference, {"x": sample(8, 8), "clean": sample(8, 8, seed=1)}, modes=("eager",))


PAIRS: dict[str, Callable[[Devices, bool], Program]] = {
    make.__name__: make
    for make in (
        real_rows_of_a_discriminator,
        keys_of_a_momentum_encoder,
        clients_evaluated_by_one,
        features_exchanged,
        cache_joined_on_a_neighbour,
        heads_of_few_rows,
        teacher_in_numpy,
    )
}


def controls_on_the_host(devices: Devices) -> Program:
    """A server on the host keeps a control variate of each client, which it updates with the client's result."""
    import tensorflow as tf

    centre = _variable(6, 6)
    controls = [_variable(6, 6, seed=index) for index, _ in enumerate(devices)]

    def program(x: Any, places: list[str | None], host: str | None) -> Any:
        changes = []
        for place, rows in zip(places, tf.split(x, len(places)), strict=True):
            with tf.device(place):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((tf.matmul(rows, centre) - rows) ** 2)
                changes.append(-0.1 * tape.gradient(loss, centre))
        with tf.device(host):
            for control, change in zip(controls, changes, strict=True):
                control.assign(control * 0.5 + tf.clip_by_norm(change, 0.05))
            centre.assign_add(tf.add_n([tf.convert_to_tensor(control) for control in controls]))

    def parallel(x: Any) -> Any:
        return program(x, [device.name for device in devices], "CPU:0")

    return Program(parallel, lambda x: program(x, [None] * len(devices), None), {"x": sample(8, 6)})


def controls_of_results_on_the_host(devices: Devices) -> Program:
    """The same, where each control is made of the weights that the client has arrived at, and returned."""
    import tensorflow as tf

    centre = _variable(6, 6)

    def program(x: Any, controls: Any, places: list[str | None], host: str | None) -> Any:
        changed = []
        for place, rows, control in zip(places, x, controls, strict=True):
            with tf.device(place):
                own = tf.identity(centre)
                with tf.GradientTape() as tape:
                    tape.watch(own)
                    loss = tf.reduce_mean((tf.matmul(rows, own) - rows) ** 2)
                own = own - 0.1 * (tape.gradient(loss, own) - control)
            with tf.device(host):
                changed.append(control + (centre - own) / 0.1)
        return changed

    def parallel(x: Any, controls: Any) -> Any:
        return program(x, controls, [device.name for device in devices], "CPU:0")

    def reference(x: Any, controls: Any) -> Any:
        return program(x, controls, [None] * len(devices), None)

    rows = [[sample(6, 6, seed=start + seed) for seed in range(len(devices))] for start in (0, 10)]
    return Program(parallel, reference, {"x": rows[0], "controls": rows[1]})


def a_document_for_all_queries(devices: Devices) -> Program:
    """The first device encodes a document, no rows of the batch, which every shard of the queries reads."""
    import tensorflow as tf

    query, key = _variable(8, 8, seed=1), _variable(8, 8, seed=2)

    def parallel(document: Any, queries: Any) -> Any:
        with tf.device(devices[0].name):
            keys = tf.matmul(document, key)
        results = []
        for device, rows in _each(devices, queries):
            with tf.device(device.name):
                results.append(tf.nn.softmax(tf.matmul(tf.matmul(rows, query), keys, transpose_b=True)))
        return tf.concat(results, 0)

    def reference(document: Any, queries: Any) -> Any:
        return tf.nn.softmax(tf.matmul(tf.matmul(queries, query), tf.matmul(document, key), transpose_b=True))

    return Program(parallel, reference, {"document": sample(6, 8), "queries": sample(8, 8, seed=1)})


def a_few_rows_on_one_device(devices: Devices) -> Program:
    """An actor on the host chooses for a few rows with the network that the learners train."""
    import tensorflow as tf

    network = _network(_variable(6, 16, seed=1), _variable(16, 3, seed=2))

    def parallel(observed: Any, replayed: Any) -> Any:
        with tf.device(devices[0].name):
            chosen = tf.argmax(network(observed), -1)
        losses = []
        for device, rows in _each(devices, replayed):
            with tf.device(device.name):
                losses.append(tf.reduce_sum(network(rows) ** 2))
        return chosen, tf.add_n(losses)

    def reference(observed: Any, replayed: Any) -> Any:
        return tf.argmax(network(observed), -1), tf.reduce_sum(network(replayed) ** 2)

    return Program(parallel, reference, {"observed": sample(4, 6), "replayed": sample(16, 6, seed=1)})


CLEAN: tuple[Callable[[Devices], Program], ...] = (
    controls_on_the_host,
    controls_of_results_on_the_host,
    a_document_for_all_queries,
    a_few_rows_on_one_device,
)
