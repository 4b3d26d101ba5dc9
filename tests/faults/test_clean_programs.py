"""Programs that are right although they look as if a rule might catch them: no finding, and a PASS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import harness
from harness.faults.samples import integers, sample, shares
from harness.faults.slips import Towers
from harness.judgement.runs import soft_placement
from harness.records import Verdict

pytest_plugins = ["four_devices"]

_ROWS = 10


def _assert_clean(verification: harness.Verification) -> None:
    assert verification.findings == (), verification
    assert verification.verdict is Verdict.PASS, verification
    assert verification.exercised.values > 0
    assert verification.exercised.ops > 0


def _towers(devices: harness.Devices, fn: Callable[[Any], Any], x: Any) -> list[Any]:
    import tensorflow as tf

    results = []
    for device, part in zip(devices, tf.split(x, shares(x.shape[0], len(devices))), strict=True):
        with tf.device(device.name):
            results.append(fn(part))
    return results


def _run_up(means: list[Any], weights: list[float]) -> Any:
    total = 0.0
    for mean, weight in zip(means, weights, strict=True):
        total += mean * weight
    return total


def _sum_backwards(means: list[Any], weights: list[float]) -> Any:
    return sum(mean * weight for mean, weight in list(zip(means, weights, strict=True))[::-1])


def _added_up(means: list[Any], weights: list[float]) -> Any:
    import tensorflow as tf

    return tf.add_n([mean * weight for mean, weight in zip(means, weights, strict=True)])


def _stacked(means: list[Any], weights: list[float]) -> Any:
    import tensorflow as tf

    return tf.reduce_sum(tf.stack([mean * weight for mean, weight in zip(means, weights, strict=True)]))


def _weighted_later(means: list[Any], weights: list[float]) -> Any:
    import tensorflow as tf

    return tf.tensordot(tf.stack(means), tf.constant(weights), axes=1)


@pytest.mark.parametrize("combine", [_run_up, _sum_backwards, _added_up, _stacked, _weighted_later])
def test_a_weighted_mean_is_the_work_of_the_host(
    combine: Callable[[list[Any], list[float]], Any], four_cpus: harness.Devices
) -> None:
    import tensorflow as tf

    per_row = Towers(four_cpus).losses
    weights = [size / _ROWS for size in shares(_ROWS, 4)]

    def mean(x: Any) -> Any:
        return tf.reduce_mean(per_row(x))

    def parallel(x: Any) -> Any:
        return combine(_towers(four_cpus, mean, x), weights)

    _assert_clean(harness.verify(parallel, mean, {"x": sample(_ROWS, 3)}, devices=four_cpus))


def test_work_before_the_split_and_after_the_join_is_the_work_of_the_host(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    model = Towers(four_cpus).model

    def normalised(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, axes=[0])
        return (x - mean) / tf.sqrt(variance + 1e-3)

    def reference(x: Any) -> Any:
        return normalised(model(normalised(x)))

    def parallel(x: Any) -> Any:
        return normalised(tf.concat(_towers(four_cpus, model, normalised(x)), axis=0))

    _assert_clean(harness.verify(parallel, reference, {"x": sample(_ROWS, 3)}, devices=four_cpus))


def test_stages_on_one_device_after_the_other_are_in_their_place(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    steps = [tf.tanh, tf.exp, tf.nn.softmax, tf.nn.softplus]

    def reference(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    def parallel(x: Any) -> Any:
        for device, step in zip(four_cpus, steps, strict=True):
            with tf.device(device.name):
                x = step(x)
        return x

    _assert_clean(harness.verify(parallel, reference, {"x": sample(_ROWS, 3)}, devices=four_cpus))


def test_branches_that_a_third_device_joins_and_uses_are_in_their_place(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    def reference(x: Any) -> Any:
        return tf.nn.softmax(tf.concat([tf.tanh(x), tf.exp(x)], axis=1))

    def parallel(x: Any) -> Any:
        with tf.device(four_cpus[1].name):
            left = tf.tanh(x)
        with tf.device(four_cpus[2].name):
            right = tf.exp(x)
        with tf.device(four_cpus[3].name):
            return tf.nn.softmax(tf.concat([left, right], axis=1))

    _assert_clean(harness.verify(parallel, reference, {"x": sample(_ROWS, 3)}, devices=four_cpus[1:]))


def test_rows_looked_up_on_the_host_before_the_split_are_in_their_place(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    table = tf.Variable(sample(20, 4))

    def reference(x: Any) -> Any:
        return tf.tanh(tf.nn.embedding_lookup(table, x))

    def parallel(x: Any) -> Any:
        return tf.concat(_towers(four_cpus, tf.tanh, tf.nn.embedding_lookup(table, x)), axis=0)

    _assert_clean(harness.verify(parallel, reference, {"x": integers(20, _ROWS)}, devices=four_cpus))


def test_a_device_whose_work_tensorflow_found_needless_is_not_unused(four_cpus: harness.Devices) -> None:
    """A mask that is a constant 1 for one shard: the graph's optimizer leaves the multiplication out."""
    import tensorflow as tf

    mask = np.concatenate([np.full((6, 3), 0.5, np.float32), np.ones((2, 3), np.float32)])

    def reference(x: Any) -> Any:
        return x * tf.constant(mask)

    def parallel(x: Any) -> Any:
        outputs = []
        for device, part, own in zip(four_cpus, tf.split(x, 4), tf.split(tf.constant(mask), 4), strict=True):
            with tf.device(device.name):
                outputs.append(part * own)
        return tf.concat(outputs, axis=0)

    _assert_clean(harness.verify(parallel, reference, {"x": sample(8, 3)}, devices=four_cpus))


def test_two_rows_need_two_devices_whatever_the_size_of_a_table_beside_them(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    model = Towers(four_cpus).model

    def reference(x: Any, table: Any) -> Any:
        return model(x) + tf.reduce_mean(table)

    def parallel(x: Any, table: Any) -> Any:
        used = four_cpus[: x.shape[0]]
        return tf.concat(_towers(used, lambda part: reference(part, table), x), axis=0)

    inputs = {"x": sample(2, 3), "table": sample(50, 3)}
    _assert_clean(harness.verify(parallel, reference, inputs, devices=four_cpus))


def test_texts_alone_are_in_their_place(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    def reference(x: Any) -> Any:
        return tf.strings.join([tf.strings.as_string(x), "!"])

    def parallel(x: Any) -> Any:
        return tf.concat(_towers(four_cpus, reference, x), axis=0)

    with soft_placement():
        _assert_clean(harness.verify(parallel, reference, {"x": tf.range(8)}, devices=four_cpus))


def test_results_of_other_types_are_compared_as_what_they_are(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    model = Towers(four_cpus).model

    def reference(x: Any) -> Any:
        hidden = model(x)
        return {
            "spectrum": tf.signal.fft(tf.cast(hidden, tf.complex64)),
            "positive": (hidden > 0, tf.cast(tf.argmax(hidden, axis=1), tf.int8)),
            "half": [tf.cast(hidden, tf.bfloat16) * 2],
        }

    def parallel(x: Any) -> Any:
        towers = _towers(four_cpus, reference, x)
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *towers)

    _assert_clean(harness.verify(parallel, reference, {"x": sample(_ROWS, 3)}, devices=four_cpus))


def test_symbolic_gradients_inside_a_function_are_in_their_place(four_cpus: harness.Devices) -> None:
    """``tf.gradients`` still puts backward ops beside their forward ops, as TensorFlow 1 did."""
    import tensorflow as tf

    towers = Towers(four_cpus)
    per_row, variables = towers.losses, [towers.w, towers.b]

    def loss(x: Any) -> Any:
        return tf.reduce_sum(per_row(x))

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(x)
        return value, tape.gradient(value, variables)

    @tf.function  # type: ignore[untyped-decorator]
    def parallel(x: Any) -> Any:
        value = tf.add_n(_towers(four_cpus, loss, x))
        return value, tf.gradients(value, variables)

    verification = harness.verify(parallel, reference, {"x": sample(_ROWS, 3)}, devices=four_cpus)
    _assert_clean(verification)
    assert verification.exercised.gradient_ops > 0


def test_a_function_traced_for_any_batch_before_has_the_reference_s_gradients(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    towers = Towers(four_cpus)
    model, variables = towers.model, [towers.w, towers.b]
    on_all = harness.make_parallel(model, four_cpus)
    parallel = tf.function(lambda x: on_all(x=x), input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    parallel(sample(4, 3))
    verification = harness.verify(parallel, model, {"x": sample(_ROWS, 3)}, devices=four_cpus, variables=variables)
    _assert_clean(verification)
    assert verification.exercised.gradients > 0


@contextmanager
def _mixed_precision() -> Iterator[None]:
    import tensorflow as tf

    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)


def test_mixed_precision_is_held_to_float16_though_its_variables_are_float32(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    with _mixed_precision():
        hidden = tf.keras.layers.Dense(4, activation="relu")
        hidden.build((None, 3))
    last = tf.keras.layers.Dense(2, dtype="float32")
    last.build((None, 4))

    def model(x: Any) -> Any:
        return last(hidden(x))

    variables = [*hidden.trainable_variables, *last.trainable_variables]
    parallel = harness.make_parallel(model, four_cpus)
    inputs = {"x": sample(_ROWS, 3)}
    _assert_clean(harness.verify(parallel, model, inputs, devices=four_cpus, variables=variables))

    def off(x: Any) -> Any:
        return parallel(x=x) * 1.1

    assert "value" in {f.kind for f in harness.verify(off, model, inputs, devices=four_cpus).findings}


def test_a_gradient_that_is_nothing_but_rounding_proves_nothing_and_spoils_nothing(four_cpus: harness.Devices) -> None:
    """A bias before a softmax over the same axis has no effect: its gradient is 0, give or take the last place."""
    import tensorflow as tf

    weights = tf.Variable(sample(3, 5))
    shift = tf.Variable(0.3)

    def model(x: Any) -> Any:
        return tf.nn.softmax(tf.matmul(x, weights) + shift)

    parallel = harness.make_parallel(model, four_cpus)
    verification = harness.verify(
        parallel, model, {"x": sample(_ROWS, 3)}, devices=four_cpus, variables=[weights, shift]
    )
    _assert_clean(verification)


def test_threads_that_are_older_than_the_verification_are_watched_too(four_cpus: harness.Devices) -> None:
    import tensorflow as tf

    model = Towers(four_cpus).model
    compiled = tf.function(model)
    started = Barrier(4)

    def warm(_: int) -> Any:
        started.wait()
        return tf.tanh(1.0)

    def in_scope(name: str, part: Any) -> Any:
        with tf.device(name):
            return compiled(part)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(warm, range(4)))

        def parallel(x: Any) -> Any:
            return tf.concat(list(pool.map(in_scope, four_cpus.names, tf.split(x, shares(_ROWS, 4)))), axis=0)

        def without_scope(x: Any) -> Any:
            return tf.concat(list(pool.map(compiled, tf.split(x, shares(_ROWS, 4)))), axis=0)

        inputs = {"x": sample(_ROWS, 3)}
        _assert_clean(harness.verify(parallel, model, inputs, devices=four_cpus, modes=("eager",)))
        found = harness.verify(without_scope, model, inputs, devices=four_cpus, modes=("eager",))
    assert {finding.kind for finding in found.findings} == {"unused-device"}
