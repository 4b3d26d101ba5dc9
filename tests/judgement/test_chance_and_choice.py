"""Causes that one number suggests by chance are not reported, and a gather by wrong indices is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import integers, sample
from harness.judgement.diagnosis.leaves import is_real

pytestmark = pytest.mark.devices(min=2)
LENGTHS = np.array([3, 5, 4, 2, 4, 5, 2, 3], "int32")
WORDS = np.array(["Apple", "pear", "FIG", "kiwi", "Plum", "date", "Lime", "nut"])
Made = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]


def on_both(devices: Devices, work: Callable[..., Any], *arrays: Any) -> list[Any]:
    results = []
    parts = zip(*(tf.split(tf.convert_to_tensor(array), 2) for array in arrays), strict=True)
    for number, (device, part) in enumerate(zip(devices[:2], parts, strict=True)):
        with tf.device(device.name):
            results.append(work(number, *part))
    return results


def indices_beside_a_mask(devices: Devices, wrong: bool) -> Made:
    table = tf.Variable(sample(20, 4))

    def pooled(ids: Any, lengths: Any, *, moved: bool = False) -> Any:
        seen = tf.sequence_mask(lengths, 5, tf.float32)[..., tf.newaxis]
        ids = tf.roll(ids, 1, 1) if moved else ids
        return tf.reduce_sum(tf.gather(table.read_value(), ids) * seen, 1)

    def parallel(ids: Any, lengths: Any) -> Any:
        return tf.concat(on_both(devices, lambda _, own, n: pooled(own, n, moved=wrong), ids, lengths), 0)

    return parallel, pooled, {"ids": integers(20, 8, 5), "lengths": LENGTHS}


def words_of_other_buckets(devices: Devices, wrong: bool) -> Made:
    table = tf.Variable(sample(16, 4))

    def features(words: Any, x: Any, *, lower: bool = True) -> Any:
        words = tf.strings.lower(words) if lower else words
        buckets = tf.strings.to_hash_bucket_fast(words, 16)
        return tf.gather(table.read_value(), buckets) * x

    def parallel(words: Any, x: Any) -> Any:
        return tf.concat(on_both(devices, lambda _, own, rows: features(own, rows, lower=not wrong), words, x), 0)

    return parallel, lambda words, x: features(tf.convert_to_tensor(words), x), {"words": WORDS, "x": sample(8, 4)}


def segments_of_a_shard(devices: Devices, wrong: bool) -> Made:
    """The numbers of rows in a shard's own result begin at 0, and are no fault where other numbers are wrong."""
    table = tf.Variable(sample(12, 4))
    lengths = [1, 3, 2, 0, 4, 2, 1, 3]

    def pooled(ids: Any, *, more: int = 0) -> Any:
        rows = tf.ragged.map_flat_values(tf.nn.embedding_lookup, table.read_value(), (ids + more) % 12)
        return tf.reduce_sum(rows, 1)

    def parallel(ids: Any) -> Any:
        outputs = []
        for number, device in enumerate(devices[:2]):
            with tf.device(device.name):
                outputs.append(pooled(ids[number * 4 : number * 4 + 4], more=int(wrong)))
        return tf.concat(outputs, 0)

    ids = tf.RaggedTensor.from_row_lengths(integers(12, sum(lengths)), lengths)
    return parallel, pooled, {"ids": ids}


def steps_in_another_order(devices: Devices, wrong: bool) -> Made:
    """The state begins with zeros, so that the first step of one order is equal to a product of the other."""
    rows, states = tf.Variable(sample(4, 6)), tf.Variable(sample(6, 6))

    def cells(x: Any, *, backward: bool = False) -> Any:
        x = tf.reverse(x, [1]) if backward else x
        state = tf.zeros([tf.shape(x)[0], 6])
        for step in range(3):
            state = tf.tanh(tf.matmul(x[:, step], rows) + tf.matmul(state, states))
        return state

    def parallel(x: Any) -> Any:
        return tf.concat(on_both(devices, lambda _, own: cells(own, backward=wrong), x), 0)

    return parallel, cells, {"x": sample(8, 3, 4)}


def one_member_twice(devices: Devices, wrong: bool) -> Made:
    """The mean of two equal results is the result."""
    members = [tf.Variable(sample(5, 3, seed=seed)) for seed in range(2)]

    def reference(x: Any) -> Any:
        return tf.add_n([tf.nn.softmax(tf.matmul(x, weights)) for weights in members]) / 2.0

    def parallel(x: Any) -> Any:
        outputs = []
        for number, device in enumerate(devices[:2]):
            with tf.device(device.name):
                outputs.append(tf.nn.softmax(tf.matmul(x, members[0 if wrong else number])))
        return tf.add_n(outputs) / 2.0

    return parallel, reference, {"x": sample(8, 5)}


def a_task_left_out(devices: Devices, wrong: bool) -> Made:
    """Both devices add up what the reference averages; one of them, of one task alone."""

    def parallel(x: Any) -> Any:
        def work(number: int, own: Any) -> Any:
            one = tf.sin(own)
            return tf.reduce_sum(one if wrong and number else one + tf.square(own))

        return tf.add_n(on_both(devices, work, x)) / 24.0

    return parallel, lambda x: tf.reduce_mean(tf.sin(x) + tf.square(x)), {"x": sample(8, 3)}


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("program", "said", "not_said"),
    [
        (indices_beside_a_mask, "GatherV2: it chooses different rows from the reference's", "sequence_mask"),
        pytest.param(
            words_of_other_buckets,
            "GatherV2: it chooses different rows .* computed by StringToHashBucketFast",
            "are equal",
            marks=pytest.mark.devices(kind="logical-cpu"),  # no kernel on a GPU hashes strings
        ),
        (segments_of_a_shard, "", "lack the shard's offset"),
        (
            steps_in_another_order,
            r"run \d of \d in the reference, but the reference's op reads",
            "its inputs equal the reference's",
        ),
        (one_member_twice, "", "is left out"),
        (a_task_left_out, r"Sum on \wPU:1: its input equals the result of Sin", "the reference runs Mean"),
    ],
)
def test_what_is_said_is_so_and_the_twin_passes(
    devices: Devices, program: Callable[[Devices, bool], Made], said: str, not_said: str
) -> None:
    found = verify(*program(devices, True), devices=devices[:2], gradients=False)
    assert found.verdict is Verdict.FAIL, found
    assert re.search(said, found.reason), found
    assert not_said not in found.reason, found
    assert verify(*program(devices, False), devices=devices[:2], gradients=False).verdict is Verdict.PASS


def test_a_factor_that_one_device_forgets_is_not_laid_on_what_both_do(devices: Devices) -> None:
    """Each device divides its gradient, and one forgets it: until then both have other gradients than the reference."""
    weights = tf.Variable(sample(5, 3))

    def loss(x: Any, y: Any) -> Any:
        return tf.reduce_sum(tf.square(tf.tanh(tf.matmul(x, weights)) - y))

    def reference(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            mean = loss(x, y) / 8.0
        weights.assign_sub(0.1 * tape.gradient(mean, weights))

    def step(wrong: bool) -> Callable[..., None]:
        def parallel(x: Any, y: Any) -> None:
            def work(number: int, own: Any, wanted: Any) -> Any:
                with tf.GradientTape() as tape:
                    total = loss(own, wanted)
                gradient = tape.gradient(total, weights)
                return gradient if wrong and number else gradient / 8.0

            weights.assign_sub(0.1 * tf.add_n(on_both(devices, work, x, y)))

        return parallel

    inputs = {"x": sample(8, 5), "y": sample(8, 3, seed=3)}
    found = verify(step(True), reference, inputs, devices=devices[:2], variables=[weights])
    assert "those of shard 1" in found.reason, found
    assert "8 times as much" in found.reason, found
    assert "first op that differs" not in found.reason, found
    assert verify(step(False), reference, inputs, devices=devices[:2], variables=[weights]).verdict is Verdict.PASS


def test_rows_that_are_worked_on_one_by_one_are_no_shards(devices: Devices) -> None:
    def parallel(x: Any, scales: Any) -> Any:
        def work(_: int, own: Any, scale: Any) -> Any:
            scale = tf.repeat(scale[:1], tf.shape(own)[0])
            return tf.map_fn(lambda row: tf.tanh(row[0] * row[1]), (own, scale), fn_output_signature=tf.float32)

        return tf.concat(on_both(devices, work, x, scales), 0)

    def reference(x: Any, scales: Any) -> Any:
        return tf.tanh(x * scales[:, tf.newaxis])

    inputs = {"x": sample(8, 3), "scales": 1.0 + np.arange(8, dtype="float32") / 8}
    found = verify(parallel, reference, inputs, devices=devices[:2], modes=("eager",))
    assert found.verdict is Verdict.FAIL
    assert not re.search(r"shards 1, 2", found.reason), found


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("threshold", "lost", "said", "not_said"),
    [
        (0.9, False, "", "missing"),
        (0.5, True, "of one shard only", "in every element"),
        (0.5, False, "every op ran where it should", ""),
    ],
)
def test_a_share_of_the_rows_is_that_without_a_shard_by_chance(
    devices: Devices, threshold: float, lost: bool, said: str, not_said: str
) -> None:
    """Of the first shard one row is above 0.9, and of the second one is above 0.5: so the share is its own alone."""
    x = np.array([0.6, 0.7, 0.95, 0.1, 0.8, 0.1, 0.2, 0.3], "float32")

    def hits(x: Any, threshold: float = 0.5) -> Any:
        return tf.reduce_sum(tf.cast(x > threshold, tf.float32))

    def parallel(x: Any) -> Any:
        parts = on_both(devices, lambda _, own: hits(own, threshold), x)
        return tf.add_n(parts[1:] if lost else parts) / 8.0

    found = verify(parallel, lambda x: hits(x) / 8.0, {"x": x}, devices=devices[:2])
    assert said in found.reason, found
    assert not not_said or not_said not in found.reason, found


def test_numbers_of_every_real_type_are_real_and_complex_ones_and_texts_are_not() -> None:
    real = (np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64, tf.bfloat16.as_numpy_dtype)
    assert all(is_real(np.zeros(2, dtype)) for dtype in real)
    assert not any(is_real(np.zeros(2, dtype)) for dtype in (np.complex64, np.complex128, np.bytes_, np.str_, object))
