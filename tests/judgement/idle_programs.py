"""Programs of which a device does none of the common work, or keeps what is another one's, where ``wrong``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shard_programs import Program, layers

from harness.devices.device import Devices
from harness.faults.samples import sample
from harness.lazy import tf

ROWS = {"x": sample(8, 6)}
BOTH = {"x": sample(8, 6), "y": sample(8, 6, seed=3)}
_Work = Callable[..., Any]


def _shards(devices: Devices, work: _Work, *wholes: Any, on: Callable[[int], int] = lambda shard: shard) -> list[Any]:
    """``work`` of the parts of each shard, in the scope of a device."""
    found = []
    for shard, parts in enumerate(zip(*(tf.split(whole, len(devices)) for whole in wholes), strict=True)):
        with tf.device(devices[on(shard)].name):
            found.append(work(*parts))
    return found


def loss_on_the_first(devices: Devices, wrong: bool) -> Program:
    """All towers are on the last device, and the loss is on the first."""
    _, _, both = layers()

    def loss(hidden: Any) -> Any:
        return tf.reduce_mean(tf.square(hidden))

    def parallel(x: Any) -> Any:
        on = (lambda _: -1) if wrong else (lambda shard: shard)
        return loss(tf.concat(_shards(devices, both, x, on=on), 0))

    return Program(parallel, lambda x: loss(both(x)), ROWS)


def two_of_four(devices: Devices, wrong: bool) -> Program:
    """The towers are on two devices, and the others only add up losses."""
    _, _, both = layers()

    def loss(x: Any) -> Any:
        return tf.reduce_mean(tf.square(both(x)))

    def parallel(x: Any) -> Any:
        losses = _shards(devices, loss, x, on=lambda shard: shard % 2 + 2 if wrong else shard)
        with tf.device(devices[0].name):
            half = losses[0] * 0.25 + losses[1] * 0.25
        with tf.device(devices[1].name):
            return tf.sqrt(half + losses[2] * 0.25 + losses[3] * 0.25)

    return Program(parallel, lambda x: tf.sqrt(loss(x)), ROWS)


def _in_the_scope(prepare: Callable[[Any], Any]) -> Callable[[Devices, bool], Program]:
    def make(devices: Devices, wrong: bool) -> Program:
        _, _, both = layers()

        def parallel(x: Any) -> Any:
            found = []
            for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
                with tf.device(device.name):
                    part = prepare(part)
                    if not wrong:
                        part = both(part)
                found.append(both(part) if wrong else part)
            return tf.concat(found, 0)

        return Program(parallel, both, ROWS)

    return make


def _one_member_shares(devices: Devices, wrong: bool) -> Program:
    """The last member is on the first device, and its own device adds up the results."""
    members = [layers()[2], *(_member(seed) for seed in range(3))]

    def parallel(x: Any) -> Any:
        found = []
        for number, (device, member) in enumerate(zip(devices, members, strict=True)):
            with tf.device(devices[0].name if wrong and number == 3 else device.name):
                found.append(tf.nn.softmax(member(x)))
        with tf.device(devices[3].name):
            return tf.add_n(found) / 4.0

    return Program(parallel, lambda x: tf.add_n([tf.nn.softmax(member(x)) for member in members]) / 4.0, ROWS)


def _member(seed: int, device: str | None = None) -> _Work:
    with tf.device(device):
        one, two = tf.Variable(sample(6, 6, seed=seed)), tf.Variable(sample(6, 6, seed=seed + 9))
    return lambda x: tf.nn.softplus(tf.matmul(tf.tanh(tf.matmul(x, one)), two))


def teacher_outside(devices: Devices, wrong: bool) -> Program:
    """The second input of a shard is worked on in no scope, and only joined in the shard's."""
    student, _, _ = layers()
    teacher = _member(5)

    def parallel(x: Any, y: Any) -> Any:
        found = []
        for device, rows, goals in zip(devices, tf.split(x, 4), tf.split(y, 4), strict=True):
            goal = teacher(goals) if wrong else None
            with tf.device(device.name):
                found.append(tf.concat([student(rows), teacher(goals) if goal is None else goal], 1))
        return tf.concat(found, 0)

    return Program(parallel, lambda x, y: tf.concat([student(x), teacher(y)], 1), BOTH)


def clients_updated_by_the_next(devices: Devices, wrong: bool) -> Program:
    """Each client has weights on its device, and computes its gradient there."""
    clients = []
    for device in devices:
        with tf.device(device.name):
            clients.append(tf.Variable(sample(6, 6, seed=1)))

    def parallel(x: Any, y: Any, scopes: bool = True) -> Any:
        losses = []
        for number, (weights, rows, goals) in enumerate(zip(clients, tf.split(x, 4), tf.split(y, 4), strict=True)):
            own, other = devices[number].name, devices[(number + 1) % 4].name
            with tf.device(own if scopes else None), tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(rows, weights) - goals))
            with tf.device(own if scopes else None):
                gradient = tape.gradient(loss, weights)
            with tf.device((other if wrong else own) if scopes else None):
                weights.assign_sub(0.1 * gradient)
            losses.append(loss)
        return losses

    return Program(parallel, lambda x, y: parallel(x, y, scopes=False), BOTH)


def a_stage_elsewhere(devices: Devices, wrong: bool) -> Program:
    """The weights of the third stage are on the device of the fourth."""
    stages = []
    for number in range(4):
        with tf.device(devices[3 if wrong and number == 2 else number].name):
            stages.append(tf.Variable(sample(6, 6, seed=number)))

    def reference(x: Any) -> Any:
        for weights in stages:
            x = tf.tanh(tf.matmul(x, weights))
        return x

    def parallel(x: Any) -> Any:
        for device, weights in zip(devices, stages, strict=True):
            with tf.device(device.name):
                x = tf.tanh(tf.matmul(x, weights))
        return x

    return Program(parallel, reference, ROWS)


def copies_on_the_first(devices: Devices, wrong: bool) -> Program:
    """Each shard is run with a copy of the weights of its own."""
    with tf.device(devices[0].name):
        weights = tf.Variable(sample(6, 6))

    def parallel(x: Any) -> Any:
        copies = []
        for device in devices:
            with tf.device(devices[0].name if wrong else device.name):
                copies.append(tf.identity(weights))
        numbers = iter(copies)
        return tf.concat(_shards(devices, lambda rows: tf.tanh(tf.matmul(rows, next(numbers))), x), 0)

    return Program(parallel, lambda x: tf.tanh(tf.matmul(x, weights)), ROWS)


def neighbour_in_a_map(devices: Devices, wrong: bool) -> Program:
    """The body of a map stands in the scope of another device."""
    _, _, both = layers()

    def parallel(x: Any) -> Any:
        found = []
        for number, (device, part) in enumerate(zip(devices, tf.split(x, 4), strict=True)):

            def row(each: Any, name: str = devices[2].name if wrong and number == 1 else device.name) -> Any:
                with tf.device(name):
                    return both(each[None])[0]

            with tf.device(device.name):
                found.append(tf.map_fn(row, part))
        return tf.concat(found, 0)

    return Program(parallel, both, ROWS)


def numpy_in_the_scopes(devices: Devices, wrong: bool) -> Program:
    """Python takes the shards' values out of TensorFlow, and brings back the results."""
    _, _, both = layers()

    def work(rows: Any) -> Any:
        return tf.constant(rows.numpy() * 2.0) * 1.0 if wrong else both(rows)

    def parallel(x: Any) -> Any:
        return tf.concat(_shards(devices, work, x), 0)

    return Program(parallel, (lambda x: x * 2.0) if wrong else both, ROWS, modes=("eager",))


#: With each, the kind of finding.
PAIRS: dict[str, tuple[Callable[[Devices, bool], Program], str]] = {
    "loss_on_the_first": (loss_on_the_first, "unused-device"),
    "two_of_four": (two_of_four, "unused-device"),
    "folded_scope": (_in_the_scope(lambda part: part / 1.0 + 0.0), "unused-device"),
    "there_and_back": (
        _in_the_scope(lambda part: tf.reshape(tf.transpose(tf.transpose(part)), [-1, 6])),
        "unused-device",
    ),
    "one_member_shares": (_one_member_shares, "unused-device"),
    "teacher_outside": (teacher_outside, "op-placement"),
    "clients_updated_by_the_next": (clients_updated_by_the_next, "op-placement"),
    "a_stage_elsewhere": (a_stage_elsewhere, "variable-placement"),
    "copies_on_the_first": (copies_on_the_first, "op-placement"),
    "neighbour_in_a_map": (neighbour_in_a_map, "unused-device"),
    "numpy_in_the_scopes": (numpy_in_the_scopes, "op-placement"),
}
