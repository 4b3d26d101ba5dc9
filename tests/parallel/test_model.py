"""``pipeline``: stages of one model, each on a device of its own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.parallel.model import Pipeline

ROWS, UNITS = 10, 6


def dense_stages(devices: harness.Devices) -> tuple[list[Any], list[Any]]:
    random = np.random.default_rng(0)
    weights = []
    for device in devices:
        with tf.device(device.name):
            weights.append(tf.Variable(random.normal(size=(UNITS, UNITS)).astype(np.float32) / 2))
    return [lambda x, w=w: tf.tanh(tf.matmul(x, w)) for w in weights], weights


def unsplit(stages: list[Any]) -> Any:
    def program(x: Any) -> Any:
        for stage in stages:
            x = stage(x)
        return x

    return program


def data(rows: int = ROWS) -> Any:
    return np.random.default_rng(1).normal(size=(rows, UNITS)).astype(np.float32)


@pytest.mark.cases(1)
@pytest.mark.parametrize("microbatches", [1, 3, ROWS])
def test_a_pipeline_equals_the_unsplit_model_with_each_op_in_its_place(
    devices: harness.Devices, microbatches: int
) -> None:
    stages, weights = dense_stages(devices)
    found = harness.verify(
        harness.pipeline(stages, devices, microbatches=microbatches),
        unsplit(stages),
        {"x": data()},
        devices=devices,
        variables=weights,
        modes=("eager", "graph", "dynamic"),
    )
    assert found.verdict is harness.Verdict.PASS, found
    assert found.findings == ()
    assert found.exercised.programs == 3
    assert found.exercised.gradients >= 3 * len(weights) * UNITS * UNITS
    # The host splits the batch: it is one of the CPUs, and none of the GPUs.
    assert set(devices.names) <= set(found.exercised.devices) <= {*devices.names, devices.host}


def test_a_variables_gradients_are_added_up_on_its_device(devices: harness.Devices) -> None:
    stages, weights = dense_stages(devices)
    pipe = harness.pipeline(stages, devices, microbatches=4)

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            result = pipe(x=x)
        return tape.gradient(result, weights)

    made = harness.trace(step, tf.constant(data()))
    sums = [op for op in made.ops if op.type == "AddN" and op.device is not None]
    assert sorted({str(op.device) for op in sums}) == sorted(devices.names)


def test_transfers_are_the_activations_between_neighbours(devices: harness.Devices) -> None:
    stages, _ = dense_stages(devices)
    pipe = harness.pipeline(stages, devices)
    made = harness.trace(tf.function(lambda x: pipe(x=x)), tf.constant(data()))
    moved = {
        (transfer.source, transfer.destination): transfer.size_bytes
        for transfer in made.transfers
        # What a tf.function returns goes by the default device, wherever it was made and is read.
        if "Identity" not in transfer.tensor and transfer.destination != devices[0].parsed
    }
    neighbours = itertools.pairwise(devices)
    assert moved == {(one.parsed, other.parsed): ROWS * UNITS * 4 for one, other in neighbours}


def test_second_derivatives_are_those_of_the_unsplit_model(devices: harness.Devices) -> None:
    stages, weights = dense_stages(devices)
    x = tf.constant(data(5).astype(np.float32))

    def second(program: Any) -> list[Any]:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                value = tf.reduce_sum(tf.square(program(x=x)))
            first = inner.gradient(value, weights)
            total = tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in first])
        return list(outer.gradient(total, weights))

    expected = second(unsplit(stages))
    for microbatches in (1, 2):
        pipe = harness.pipeline(stages, devices, microbatches=microbatches)
        for found in (second(pipe), tf.function(second)(pipe)):
            for want, have in zip(expected, found, strict=True):
                np.testing.assert_allclose(have, want, rtol=2e-4, atol=1e-5)


def test_keras_layers_are_built_on_the_devices_of_their_stages(devices: harness.Devices) -> None:
    def eager(pipe: Pipeline) -> None:
        pipe(data())

    def traced(pipe: Pipeline) -> None:
        tf.function(lambda x: pipe(inputs=x))(data())

    for build in (eager, traced):
        layers = [tf.keras.layers.Dense(UNITS, activation="tanh") for _ in devices]
        pipe = harness.pipeline(layers, devices)
        build(pipe)
        places = [[str(harness.DeviceName.parse(v.value.device)) for v in layer.weights] for layer in layers]
        assert places == [[device.name] * 2 for device in devices]


def test_stages_hand_on_nests_and_take_arguments_that_are_no_batch(devices: harness.Devices) -> None:
    def first(x: Any, table: Any) -> Any:
        return {"sum": tf.matmul(x, table), "x": x}

    def middle(values: Any) -> Any:
        return {**values, "sum": values["sum"] * 2.0}

    def last(values: Any) -> Any:
        return values["sum"] + values["x"], values["x"]

    stages: list[Any] = [first, *[middle] * (len(devices) - 2), last]

    def reference(x: Any, table: Any) -> Any:
        values = first(x, table)
        for stage in stages[1:]:
            values = stage(values)
        return values

    table = np.eye(UNITS, dtype=np.float32) * 0.3
    for microbatches in (1, 3):
        found = harness.verify(
            harness.pipeline(stages, devices, microbatches=microbatches, broadcast=("table",)),
            reference,
            {"x": data(), "table": table},
            devices=devices,
            gradients=True,
        )
        assert found.verdict is harness.Verdict.PASS, found


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_more_microbatches_than_rows_are_refused_where_the_rows_are_known(devices: harness.Devices, rows: int) -> None:
    stages, _ = dense_stages(devices)
    pipe = harness.pipeline(stages, devices, microbatches=4)
    for run in (pipe, tf.function(pipe)):
        with pytest.raises(harness.StageError, match=f"microbatches=4, but the batch has {rows} row"):
            run(x=tf.constant(data(rows)))
    unknown = tf.function(lambda x: pipe(x=x), input_signature=[tf.TensorSpec([None, UNITS], tf.float32)])
    np.testing.assert_allclose(unknown(data(rows)), unsplit(stages)(data(rows)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pipe(x=data(4)), unsplit(stages)(data(4)), rtol=1e-5, atol=1e-6)


def test_an_argument_that_the_first_stage_does_not_have_is_refused(devices: harness.Devices) -> None:
    stages, _ = dense_stages(devices)
    layer = tf.keras.layers.Dense(UNITS)
    for first, call, accepted in (
        (lambda x: x * 2.0, {"y": data()}, r"missing a required argument: 'x'.*accepted: .*\(x\)"),
        (lambda x: x * 2.0, {"x": data(), "z": data()}, "unexpected keyword argument 'z'"),
        (layer, {"x": data()}, "missing a required argument: 'inputs'"),
    ):
        for microbatches in (1, 2):
            with pytest.raises(harness.StageError, match=accepted):
                harness.pipeline([first, *stages[1:]], devices, microbatches=microbatches)(**call)
    made = harness.pipeline([layer, *stages[1:]], devices, microbatches=2, broadcast=("training",))
    assert made(inputs=data(), training=False).shape == (ROWS, UNITS)


def test_a_stage_that_does_not_fit_is_named(devices: harness.Devices) -> None:
    stages, _ = dense_stages(devices)
    stages[1] = lambda x: tf.matmul(x, tf.ones((3, 3)))
    for run in (harness.pipeline(stages, devices), tf.function(lambda x: harness.pipeline(stages, devices)(x=x))):
        with pytest.raises(
            harness.StageError, match=r"stage 1 of \d .* does not accept the result of stage 0 .*\(10, 6\)"
        ):
            run(x=tf.constant(data()))


def test_what_a_stage_raises_says_where(devices: harness.Devices) -> None:
    def broken(x: Any) -> Any:
        raise KeyError("gone")

    stages, _ = dense_stages(devices)
    stages[1] = broken
    with pytest.raises(KeyError) as raised:
        harness.pipeline(stages, devices)(x=data())
    assert f"stage 1 of {len(devices)} (broken), on {devices[1].name}" in raised.value.__notes__[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"stages": []}, r"stages=\[\] is empty"),
        ({"stages": [abs, 3]}, r"stages\[1\]=3 is not callable"),
        ({"stages": [abs] * 9}, r"found 9 stages and \d devices?"),
        ({"microbatches": 0}, "microbatches=0; accepted: an integer, 1 or more"),
        ({"microbatches": True}, "microbatches=True"),
        ({"broadcast": "x"}, r"accepted: a sequence of names, such as \('x',\)"),
        ({"stages": abs}, "stages=.*abs.*; accepted: a sequence of functions or layers"),
        ({"devices": ["CPU:0", "CPU:1"]}, r"devices=\['CPU:0', 'CPU:1'\]; accepted: what harness.configure returned"),
    ],
)
def test_bad_input_is_refused(devices: harness.Devices, change: dict[str, Any], why: str) -> None:
    given = {"stages": [abs], "devices": devices, "microbatches": 2, **change}
    with pytest.raises(harness.StageError, match=why):
        Pipeline(**given)


def test_bad_calls_are_refused(devices: harness.Devices) -> None:
    stages, _ = dense_stages(devices)
    with pytest.raises(harness.StageError, match="found 1 positional argument;"):
        harness.pipeline(stages, devices, microbatches=2)(data())
    with pytest.raises(harness.StageError, match=r"broadcast=\('table',\): the call has no argument 'table', only 'x'"):
        harness.pipeline(stages, devices, microbatches=2, broadcast=("table",))(x=data())
    stages[-1] = tf.reduce_sum
    with pytest.raises(harness.StageError, match="the last stage returns a scalar per micro-batch"):
        harness.pipeline(stages, devices, microbatches=2)(x=data())
