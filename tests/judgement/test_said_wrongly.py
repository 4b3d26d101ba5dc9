"""What was said wrongly of small whole numbers, of masks, and of parts that are joined in more than one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, colocate_gradients, verify
from harness.faults.samples import sample

_ON_CPUS = pytest.mark.devices(kind="logical-cpu")
LABELS = np.array([2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 1, 1])
GUESSES = np.array([1, 2, 1, 2, 0, 2, 1, 0, 1, 2, 1, 0, 0, 2, 0, 0])
LENGTHS = np.array([3, 5, 6, 2, 4, 6, 1, 3], "int32")
MASK = (np.arange(6) < LENGTHS[:, np.newaxis]).astype("float32")


def on_each(devices: Devices, work: Callable[..., Any], *arrays: Any, axis: int = 0) -> list[Any]:
    parts = zip(*(tf.split(array, len(devices), axis) for array in arrays), strict=True)
    results = []
    for number, (device, part) in enumerate(zip(devices, parts, strict=True)):
        with tf.device(device.name):
            results.append(work(number, *part))
    return results


def counts(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    def table(labels: Any, guesses: Any) -> Any:
        return tf.math.confusion_matrix(labels, guesses, 3)

    def parallel(labels: Any, guesses: Any) -> Any:
        def work(_: int, own: Any, guessed: Any) -> Any:
            return table(guessed, own) if wrong else table(own, guessed)

        return tf.add_n(on_each(devices, work, labels, guesses))

    return parallel, table, {"labels": LABELS, "guesses": GUESSES}


def padded(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    def pooled(x: Any, lengths: Any, *, one_more: bool = False) -> Any:
        places = tf.range(6)[tf.newaxis]
        last = lengths[:, tf.newaxis]
        seen = places <= last if one_more else places < last
        return tf.reduce_sum(x * tf.cast(seen, tf.float32), 1)

    def parallel(x: Any, lengths: Any) -> Any:
        return tf.concat(on_each(devices, lambda _, a, b: pooled(a, b, one_more=wrong), x, lengths), 0)

    return parallel, pooled, {"x": sample(8, 6), "lengths": LENGTHS}


def next_word(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    def parallel(x: Any, mask: Any) -> Any:
        def work(_: int, own: Any, seen: Any) -> Any:
            if wrong:
                return tf.reduce_sum(own[:, :-1] * seen[:, :-1])
            return tf.reduce_sum(own[:, :-1] * seen[:, 1:])

        return tf.add_n(on_each(devices, work, x, mask))

    return parallel, lambda x, mask: tf.reduce_sum(x[:, :-1] * mask[:, 1:]), {"x": sample(8, 6), "mask": MASK}


def mask_of_a_neighbour(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    def attention(x: Any, mask: Any) -> Any:
        return tf.nn.softmax(x - 1e9 * (1 - mask))

    def parallel(x: Any, mask: Any) -> Any:
        masks = tf.split(mask, len(devices))
        return tf.concat(on_each(devices, lambda at, own: attention(own, masks[at - 1 if wrong else at]), x), 0)

    return parallel, attention, {"x": sample(8, 6), "mask": MASK}


def best_three(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    def parallel(x: Any) -> Any:
        def work(at: int, own: Any) -> tuple[Any, Any]:
            values, places = tf.math.top_k(own, 3)
            return values, places + at * (3 if wrong else 5)

        values, places = zip(*on_each(devices, work, x, axis=1), strict=True)
        chosen = tf.math.top_k(tf.concat(values, 1), 3)[1]
        return tf.gather(tf.concat(places, 1), chosen, batch_dims=1)

    return parallel, lambda x: tf.math.top_k(x, 3)[1], {"x": sample(6, 5 * len(devices))}


def weights_of_tasks(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    def reference(x: Any) -> Any:
        return 0.8 * tf.reduce_mean(tf.sin(x)) + 0.2 * tf.reduce_mean(tf.cos(x))

    def parallel(x: Any) -> Any:
        def work(at: int, own: Any) -> Any:
            one, other = tf.reduce_mean(tf.sin(own)), tf.reduce_mean(tf.cos(own))
            if wrong and at == 1:
                return 0.2 * one + 0.8 * other
            return 0.8 * one + 0.2 * other

        return tf.add_n(on_each(devices, work, x)) / len(devices)

    return parallel, reference, {"x": sample(8, 3)}


def beams(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    def parallel(states: Any, parents: Any) -> Any:
        def work(_: int, own: Any, chosen: Any) -> Any:
            count = own.shape[0]
            rows = tf.reshape(own, (-1, 3))
            if not wrong:
                chosen += tf.range(count)[:, tf.newaxis] * 4
            return tf.reshape(tf.gather(rows, tf.reshape(chosen, [-1])), (count, 4, 3))

        return tf.concat(on_each(devices, work, states, parents), 0)

    parents = np.random.default_rng(0).integers(0, 4, (8, 4)).astype("int32")
    return (
        parallel,
        lambda states, parents: tf.gather(states, parents, batch_dims=1),
        {
            "states": sample(8, 4, 3),
            "parents": parents,
        },
    )


def teacher(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    def loss(x: Any, *, stopped: bool = True) -> Any:
        wanted = tf.nn.softmax(3.0 * x)
        wanted = tf.stop_gradient(wanted) if stopped else wanted
        return -tf.reduce_sum(wanted * tf.nn.log_softmax(x), 1)

    def parallel(x: Any) -> Any:
        return tf.concat(on_each(devices, lambda _, own: loss(own, stopped=not wrong), x), 0)

    return parallel, loss, {"x": sample(8, 3)}


@tf.custom_gradient  # type: ignore[untyped-decorator]
def signs(x: Any) -> Any:
    return tf.sign(x), lambda upstream: upstream * tf.cast(tf.abs(x) < 1.0, tf.float32)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def signs_everywhere(x: Any) -> Any:
    return tf.sign(x), lambda upstream: upstream


def straight_through(devices: Devices, wrong: bool) -> tuple[Any, Any, dict[str, Any]]:
    weights = tf.constant(sample(3, 3))

    def parallel(x: Any) -> Any:
        taken = signs_everywhere if wrong else signs
        return tf.concat(on_each(devices, lambda _, own: taken(tf.matmul(own, weights)), x), 0)

    return parallel, lambda x: signs(tf.matmul(x, weights)), {"x": 2.0 * sample(8, 3)}


@pytest.mark.cases("next_word", "straight_through", "teacher", "counts")
@pytest.mark.parametrize(
    ("program", "said", "gradients"),
    [
        # The assertions of confusion_matrix have no GPU kernel.
        pytest.param(counts, "Output is transposed: its axes 0 and 1 are exchanged", False, marks=_ON_CPUS),
        (padded, "its inputs equal the reference's; the reference runs Less (", False),
        (next_word, "StridedSlice: it reads the constant [0, 0] where the reference reads [0, 1]", False),
        (mask_of_a_neighbour, "", False),
        (best_three, "is AddV2", False),
        (weights_of_tasks, "it reads the constant 0.2 where the reference reads 0.8", False),
        (beams, "GatherV2: it reads the result of Reshape", False),
        (teacher, "the reference computes no gradient of Softmax there: it stops gradients at ", True),
        (straight_through, "it reads the gradient of the output where the reference reads Mul in the gradient", True),
    ],
)
def test_what_is_said_is_so_and_the_twin_passes(
    devices: Devices, program: Callable[..., tuple[Any, Any, dict[str, Any]]], said: str, gradients: bool
) -> None:
    parallel, reference, inputs = program(devices, True)
    found = verify(parallel, reference, inputs, devices=devices, gradients=gradients)
    assert found.verdict is Verdict.FAIL, found
    assert said in found.reason, found
    parallel, reference, inputs = program(devices, False)
    right = colocate_gradients(parallel) if gradients else parallel
    assert verify(right, reference, inputs, devices=devices, gradients=gradients).verdict is Verdict.PASS


def test_a_gradient_that_is_too_large_is_not_said_to_be_an_update_for_each_shard(devices: Devices) -> None:
    weights = tf.Variable(sample(3, 1))
    count = len(devices)

    def reference(x: Any) -> None:
        weights.assign_sub(tf.matmul(x, tf.matmul(x, weights), transpose_a=True) / 8.0)

    def step(rows: float) -> Callable[[Any], None]:
        def parallel(x: Any) -> None:
            parts = on_each(devices, lambda _, own: tf.matmul(own, tf.matmul(own, weights), transpose_a=True) / rows, x)
            weights.assign_sub(tf.add_n(parts))

        return parallel

    inputs = {"x": sample(8, 3)}
    found = verify(step(8.0 / count), reference, inputs, devices=devices, variables=[weights])
    assert (
        f"changed {count} times as much as in the single-device run: the {count} shards' means were added up"
        in found.reason
    ), found
    assert verify(step(8.0), reference, inputs, devices=devices, variables=[weights]).verdict is Verdict.PASS


@_ON_CPUS
@pytest.mark.parametrize("wrong", [True, False])
def test_positions_that_a_gradient_counts_in_its_shard_lack_no_offset(wrong: bool, devices: Devices) -> None:
    weights = tf.Variable(sample(5, 3))

    def gradient(x: Any, actions: Any, gains: Any) -> Any:
        with tf.GradientTape() as tape:
            chosen = tf.gather(tf.nn.log_softmax(tf.matmul(x, weights)), actions, batch_dims=1)
            loss = -tf.reduce_mean(gains * chosen)
        return tape.gradient(loss, weights)

    def centred(gains: Any) -> Any:
        return gains - tf.reduce_mean(gains)

    def parallel(x: Any, actions: Any, gains: Any) -> Any:
        def work(_: int, own: Any, chosen: Any, gained: Any) -> Any:
            return gradient(own, chosen, centred(gained) if wrong else gained)

        gains = gains if wrong else centred(gains)
        return tf.add_n(on_each(devices, work, x, actions, gains)) / len(devices)

    def reference(x: Any, actions: Any, gains: Any) -> Any:
        return gradient(x, actions, centred(gains))

    actions = np.arange(16, dtype="int32") % 3
    inputs = {"x": sample(16, 5), "actions": actions, "gains": sample(16, 1)[:, 0]}
    found = verify(parallel, reference, inputs, devices=devices, gradients=False, modes=("eager",))
    assert found.verdict is (Verdict.FAIL if wrong else Verdict.PASS), found
    assert "offset" not in str(found), found
