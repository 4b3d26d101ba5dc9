"""Programs whose devices exchange parts, look rows up or return texts: right ones pass, and wrong values are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from shard_programs import Program, layers, on_shards

from harness import Devices, Verdict, make_parallel, verify
from harness.faults.samples import integers, sample


def all_to_all(devices: Devices, wrong: bool) -> Program:
    """A device gives its neighbour the columns of another one."""
    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        pieces = on_shards(devices, lambda part: tf.split(first(part), [2, 2, 1, 1], axis=1), x)
        if wrong:
            pieces[1][2], pieces[1][3] = pieces[1][3], pieces[1][2]
        columns = []
        for device, own in zip(devices, zip(*pieces, strict=True), strict=True):
            with tf.device(device.name):
                columns.append(tf.concat(own, 0))
        return tf.concat(columns, 1)

    return Program(parallel, lambda x: first(x), {"x": sample(8, 6)})


def all_gather_then_flatten(devices: Devices, wrong: bool) -> Program:
    """The last copy is flattened column by column."""
    first, _, _ = layers()

    def parallel(x: Any) -> Any:
        hidden = on_shards(devices, first, x)
        copies = []
        for number, device in enumerate(devices):
            with tf.device(device.name):
                whole = tf.concat(hidden, 0)
                copies.append(tf.reshape(tf.transpose(whole) if wrong and number == 3 else whole, [-1]))
        return copies

    return Program(parallel, lambda x: [tf.reshape(first(x), [-1])] * 4, {"x": sample(8, 6)})


def joined_by_an_assignment(devices: Devices, wrong: bool) -> Program:
    """A variable collects the parts, one device after the other; a part is written to the place of another one."""
    first, _, _ = layers()
    whole = tf.Variable(tf.zeros([8, 6]), name="whole")

    def parallel(x: Any) -> Any:
        for number, part in enumerate(on_shards(devices, first, x)):
            start = 2 * ((number ^ 1) if wrong else number)
            whole[start : start + 2].assign(part)
        return whole.read_value()

    def reference(x: Any) -> Any:
        whole.assign(first(x))
        return whole.read_value()

    return Program(parallel, reference, {"x": sample(8, 6)})


def added_up_by_assignments(devices: Devices, wrong: bool) -> Program:
    """A variable adds the parts up; one is added twice."""
    first, _, _ = layers()
    total = tf.Variable(tf.zeros([6]), name="total")

    def parallel(x: Any) -> Any:
        total.assign(tf.zeros([6]))
        for number, part in enumerate(on_shards(devices, lambda part: tf.reduce_sum(first(part), 0), x)):
            total.assign_add(part * 2.0 if wrong and number == 2 else part)
        return total.read_value()

    def reference(x: Any) -> Any:
        total.assign(tf.reduce_sum(first(x), 0))
        return total.read_value()

    return Program(parallel, reference, {"x": sample(8, 6)})


def mirrored_variables(devices: Devices, wrong: bool) -> Program:
    """One replica is updated by its own gradient alone."""
    copies = []
    for device in devices:
        with tf.device(device.name):
            copies.append(tf.Variable(sample(6, 2)))
    single = tf.Variable(sample(6, 2))

    def gradient(weights: Any, part: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.matmul(part, weights)))
        return tape.gradient(loss, weights)

    def parallel(x: Any) -> Any:
        found = []
        for device, weights, part in zip(devices, copies, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                found.append(gradient(weights, part))
        for number, (device, weights) in enumerate(zip(devices, copies, strict=True)):
            with tf.device(device.name):
                weights.assign_sub((found[3] if wrong and number == 3 else tf.add_n(found)) * 0.01)
        return [weights.read_value() for weights in copies]

    def reference(x: Any) -> Any:
        single.assign_sub(gradient(single, x) * 0.01)
        return [single.read_value()] * 4

    return Program(parallel, reference, {"x": sample(8, 6)})


def one_feature_of_each(devices: Devices, wrong: bool) -> Program:
    def fn(x: Any, wrong: bool = False) -> Any:
        first, second, *_, last = tf.unstack(x, axis=1)
        return tf.exp(second if wrong else first) * last

    return Program(make_parallel(lambda x: fn(x, wrong), devices), lambda x: fn(x), {"x": sample(10, 6)})


def halves_of_the_features(devices: Devices, wrong: bool) -> Program:
    def fn(x: Any, wrong: bool = False) -> Any:
        return tf.split(x, 2, axis=1)[1 if wrong else 0] ** 2

    return Program(make_parallel(lambda x: fn(x, wrong), devices), lambda x: fn(x), {"x": sample(10, 6)})


def table_lookup(devices: Devices, wrong: bool) -> Program:
    """The tables differ in one entry."""
    keys = np.arange(20, dtype=np.int64)

    def table_of(values: Any) -> Any:
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)

    right, other = table_of(keys * 3), table_of(keys * 3 + (keys == 13))
    weights = tf.Variable(sample(60, 4))

    def fn(x: Any, table: Any) -> Any:
        return tf.tanh(tf.gather(weights.read_value(), table.lookup(x)))

    parallel = make_parallel(lambda x: fn(x, other if wrong else right), devices)
    return Program(parallel, lambda x: fn(x, right), {"x": integers(20, 30)})


def _texts(devices: Devices, wrong_text: bool, wrong_score: bool) -> Program:
    def fn(x: Any, wrong_text: bool = False, wrong_score: bool = False) -> Any:
        scores = tf.nn.softmax(x)
        names = tf.gather(tf.constant(["a", "b", "c"]), tf.argmin(x, 1) if wrong_text else tf.argmax(x, 1))
        return {"name": names, "score": scores * 1.001 if wrong_score else scores}

    parallel = make_parallel(lambda x: fn(x, wrong_text, wrong_score), devices)
    return Program(parallel, lambda x: fn(x), {"x": sample(10, 3)})


def a_text_beside_scores(devices: Devices, wrong: bool) -> Program:
    return _texts(devices, wrong, False)


def scores_beside_a_text(devices: Devices, wrong: bool) -> Program:
    return _texts(devices, False, wrong)


PAIRS = (
    all_to_all,
    all_gather_then_flatten,
    joined_by_an_assignment,
    added_up_by_assignments,
    mirrored_variables,
    one_feature_of_each,
    halves_of_the_features,
    pytest.param(table_lookup, marks=pytest.mark.devices(kind="logical-cpu")),
    pytest.param(a_text_beside_scores, marks=pytest.mark.devices(kind="logical-cpu")),
    pytest.param(scores_beside_a_text, marks=pytest.mark.devices(kind="logical-cpu")),
)


@pytest.mark.cases("added_up_by_assignments", "a_text_beside_scores", "one_feature_of_each")
@pytest.mark.parametrize("make", PAIRS)
def test_wrong_values_are_found_and_the_clean_twin_passes(
    devices: Devices, make: Callable[[Devices, bool], Program]
) -> None:
    for wrong in (True, False):
        program = make(devices, wrong)
        found = verify(program.parallel, program.reference, program.inputs, devices=devices)
        seen = {(each.kind, each.mode) for each in found.findings}
        assert seen == ({("value", "eager, graph")} if wrong else set()), found
        assert found.verdict is (Verdict.FAIL if wrong else Verdict.PASS), found


@pytest.mark.cases(1)
@pytest.mark.parametrize("make", [PAIRS[-1]])
@pytest.mark.parametrize("wrong", [True, False])
def test_gradients_go_past_a_text(devices: Devices, make: Callable[[Devices, bool], Program], wrong: bool) -> None:
    program = make(devices, wrong)
    found = verify(program.parallel, program.reference, program.inputs, devices=devices, gradients=True)
    kinds = {each.kind for each in found.findings}
    assert kinds == ({"value"} if wrong else set()), found
    compared = {each.where for each in found.comparisons}
    assert {"output['name']", "output['score']", "gradient for input x"} <= compared


def test_the_number_of_bits_of_an_index_is_not_taken_for_the_first_difference(devices: Devices) -> None:
    table = sample(6, 3)

    def towers(x: Any, table: Any) -> Any:
        parts = []
        for device, part in zip(devices, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                best = tf.argmax(part, 1, output_type=tf.int32)
                parts.append(tf.tanh(tf.gather(table, best)))
        return tf.concat(parts, 0)

    def reference(x: Any) -> Any:
        return tf.tanh(tf.gather(table, tf.argmax(x, 1)))

    assert verify(lambda x: towers(x, table), reference, {"x": sample(8, 6)}, devices=devices).passed
    found = verify(lambda x: towers(x, table + np.float32(0.5)), reference, {"x": sample(8, 6)}, devices=devices)
    assert "ArgMax" not in found.reason, found.reason
    assert "GatherV2: it reads the constant array of shape [6, 3] with " in found.reason, found.reason
