"""A shard that is computed in another way than the others is named, also in half precision, and what all do is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample

pytestmark = pytest.mark.devices(min=2)
Made = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], list[Any]]


def gradient_of_a_scaled_loss(devices: Devices, wrong: bool, dtype: tf.DType) -> Made:
    weights = tf.Variable(sample(8, 4))

    def gradient(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            rows = tf.cast(tf.cast(x, dtype) @ tf.cast(weights, dtype), tf.float32)
            loss = 500.0 * tf.reduce_sum((rows - y) ** 2) / 16.0
        return tape.gradient(loss, weights)

    def reference(x: Any, y: Any) -> None:
        weights.assign_sub(0.1 * (gradient(x, y) / 500.0))

    def step(x: Any, y: Any) -> None:
        found = []
        parts = zip(devices[:2], tf.split(x, 2), tf.split(y, 2), strict=True)
        for number, (device, rows, labels) in enumerate(parts):
            with tf.device(device.name):
                own = gradient(rows, labels)
                found.append(own if wrong and number else own / 500.0)
        weights.assign_sub(0.1 * tf.add_n(found))

    return step, reference, {"x": sample(16, 8), "y": sample(16, 4)}, [weights]


def gradient_in_half_precision(devices: Devices, wrong: bool) -> Made:
    return gradient_of_a_scaled_loss(devices, wrong, tf.float16)


def gradient_in_bfloat16(devices: Devices, wrong: bool) -> Made:
    return gradient_of_a_scaled_loss(devices, wrong, tf.bfloat16)


def product_with_a_conjugate(devices: Devices, wrong: bool) -> Made:
    """All devices read one of the reference's operands, and one of them another second operand."""

    def turned(w: Any) -> Any:
        return tf.cast(w, tf.complex64) * tf.exp(tf.constant(0.5j, tf.complex64))

    def reference(s: Any, w: Any) -> Any:
        right = tf.math.conj(turned(w))
        return tf.abs(tf.matmul(tf.cast(s, tf.complex64), right, transpose_b=True)) ** 2

    def parallel(s: Any, w: Any) -> Any:
        parts = zip(devices[:2], tf.split(s, 2, 1), tf.split(turned(w), 2, 1), strict=True)
        products = []
        for number, (device, left, own) in enumerate(parts):
            with tf.device(device.name):
                right = own if wrong and number else tf.math.conj(own)
                products.append(tf.matmul(tf.cast(left, tf.complex64), right, transpose_b=True))
        return tf.abs(tf.add_n(products)) ** 2

    return parallel, reference, {"s": sample(6, 8), "w": sample(3, 8)}, []


def loop_that_ends_early(devices: Devices, wrong: bool) -> Made:
    def total(x: Any, steps: int = 4) -> Any:
        result = tf.zeros_like(x[:, 0])
        for number in range(steps):
            result = result + tf.sin(x[:, number])
        return result

    def parallel(x: Any) -> Any:
        results = []
        for number, (device, rows) in enumerate(zip(devices[:2], tf.split(x, 2), strict=True)):
            with tf.device(device.name):
                results.append(total(rows, 3 if wrong and number else 4))
        return tf.concat(results, 0)

    return parallel, total, {"x": sample(8, 4)}, []


def times_of_another_shard(devices: Devices, wrong: bool) -> Made:
    def noise(x: Any, times: Any) -> Any:
        return tf.sin(x) * tf.cast(times, tf.float32)[:, tf.newaxis]

    def drawn() -> Any:
        return tf.random.stateless_uniform([8], (1, 2), 0, 1000, tf.int32)

    def parallel(x: Any) -> Any:
        times, results = tf.split(drawn(), 2), []
        for number, (device, rows) in enumerate(zip(devices[:2], tf.split(x, 2), strict=True)):
            with tf.device(device.name):
                results.append(tf.reduce_sum(noise(rows, times[0 if wrong else number])))
        return tf.add_n(results)

    return parallel, lambda x: tf.reduce_sum(noise(x, drawn())), {"x": sample(8, 4)}, []


def pairs_of_all_rows(devices: Devices, wrong: bool) -> Made:
    """Each row meets all others, so that rows of another shard are in their place."""

    def forces(one: Any, other: Any) -> Any:
        way = other[tf.newaxis] - one[:, tf.newaxis]
        return tf.reduce_sum(way / (tf.reduce_sum(way * way, -1, keepdims=True) + 0.1), 1)

    def parallel(x: Any) -> Any:
        parts, results = tf.split(x, 2), []
        for number, device in enumerate(devices[:2]):
            with tf.device(device.name):
                met = [parts[(number + step) % 2] for step in range(1 if wrong else 0, 2)]
                results.append(tf.add_n([forces(parts[number], other) for other in met]))
        return tf.concat(results, 0)

    return parallel, lambda x: forces(x, x), {"x": sample(8, 3)}, []


def words_in_other_buckets(devices: Devices, wrong: bool) -> Made:
    """The numbers of rows in a shard begin at 0 on each device, and are no fault."""
    table = tf.Variable(sample(20, 4))

    def features(words: Any, buckets: int = 20) -> Any:
        parts = tf.strings.split(words, " ")
        numbers = tf.strings.to_hash_bucket_fast(parts.values, buckets)
        rows = tf.gather(table.read_value(), numbers)
        return tf.math.unsorted_segment_mean(rows, parts.value_rowids(), tf.shape(words)[0])

    def parallel(words: Any) -> Any:
        results = []
        for number, (device, own) in enumerate(zip(devices[:2], tf.split(words, 2), strict=True)):
            with tf.device(device.name):
                results.append(features(own, 19 if wrong and number else 20))
        return tf.concat(results, 0)

    words = tf.constant(
        ["hello world", "a b c", "the cat sat", "on mat", "x", "one two", "three four", "five six seven"]
    )
    return parallel, features, {"words": words}, []


_ODD = "the results of the other shards are those of RealDiv"
CASES = [
    (gradient_in_half_precision, _ODD, "the rows of its own shard"),
    (gradient_in_bfloat16, _ODD, "the rows of its own shard"),
    (product_with_a_conjugate, "PU:1: its input equals the result of Mul", "the rows of its own shard"),
    (
        loop_that_ends_early,
        "run 3 of 4, but the results of the other shards are those of",
        "no op reads",
    ),
    (times_of_another_shard, "rows 0 to 3 of StatelessRandomUniformIntV2", "KeyCounter"),
    (pairs_of_all_rows, "called at", "it pairs"),
    (words_in_other_buckets, "GatherV2", "StringSplit"),
]


#: Ops on texts have no kernel on a GPU.
_ON_CPUS = {words_in_other_buckets: [pytest.mark.devices(kind="logical-cpu", min=2)]}


@pytest.mark.cases("product_with_a_conjugate", "pairs_of_all_rows", "times_of_another_shard", "gradient_in_bfloat16")
@pytest.mark.parametrize(
    ("make", "said", "unsaid"),
    [pytest.param(*case, id=case[0].__name__, marks=_ON_CPUS.get(case[0], [])) for case in CASES],
)
def test_what_one_shard_does_otherwise_is_named_and_what_all_do_is_not(
    devices: Devices, make: Callable[[Devices, bool], Made], said: str, unsaid: str
) -> None:
    parallel, reference, inputs, variables = make(devices, True)
    wrong = verify(parallel, reference, inputs, devices=devices[:2], variables=variables)
    parallel, reference, inputs, variables = make(devices, False)
    right = verify(parallel, reference, inputs, devices=devices[:2], variables=variables)

    assert wrong.verdict is Verdict.FAIL
    assert said in wrong.reason
    assert unsaid not in wrong.reason
    assert right.verdict is Verdict.PASS, right.reason
