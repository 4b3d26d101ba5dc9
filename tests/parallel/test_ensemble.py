"""``ensemble``: several models, each on a device of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.checks.ensembles import FEATURES, OUTPUTS, ROWS, training_step


def members(devices: harness.Devices) -> tuple[list[Any], list[Any]]:
    random = np.random.default_rng(0)
    weights = []
    for device in devices:
        with tf.device(device.name):
            weights.append(tf.Variable(random.normal(size=(FEATURES, OUTPUTS)).astype(np.float32)))
    return [lambda x, w=w: tf.tanh(tf.matmul(x, w)) for w in weights], weights


def data(seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=(ROWS, FEATURES)).astype(np.float32)


def test_an_ensemble_equals_its_models_one_after_the_other(devices: harness.Devices) -> None:
    models, weights = members(devices)
    found = harness.verify(
        harness.ensemble(models, devices),
        lambda x: [model(x) for model in models],
        {"x": data()},
        devices=devices,
        variables=weights,
    )
    assert found.verdict is harness.Verdict.PASS, found
    assert found.exercised.devices == devices.names
    assert found.exercised.gradients >= 2 * len(weights) * FEATURES * OUTPUTS


def test_each_model_can_have_inputs_of_its_own(devices: harness.Devices) -> None:
    models, weights = members(devices)
    found = harness.verify(
        harness.ensemble(models, devices, each=("x",)),
        lambda x: [model(own) for model, own in zip(models, x, strict=True)],
        {"x": [data(seed) for seed in range(len(models))]},
        devices=devices,
        variables=weights,
    )
    assert found.verdict is harness.Verdict.PASS, found


def test_training_steps_stay_on_their_devices(devices: harness.Devices) -> None:
    random = np.random.default_rng(2)
    made = [training_step(device.name, random) for device in devices]
    found = harness.verify(
        harness.ensemble([step for step, _ in made], devices),
        lambda **inputs: [step(**inputs) for step, _ in made],
        {"x": data(), "wanted": np.zeros((ROWS, OUTPUTS), np.float32)},
        devices=devices,
        variables=[variable for _, variables in made for variable in variables],
    )
    assert found.verdict is harness.Verdict.PASS, found
    assert found.exercised.gradient_ops > 0
    for trace in found.traces.values():
        updates = [op for op in trace.ops if op.role == "update" and "float32" in op.dtypes]
        assert {str(op.device) for op in updates} <= set(devices.names)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"models": []}, r"models=\[\] is empty"),
        ({"models": [abs, 3]}, r"models\[1\]=3 is not callable"),
        ({"models": [abs] * 9}, r"found 9 models and \d devices?"),
        ({"each": "x"}, r"accepted: a sequence of names, such as \('x',\)"),
        ({"each": 3}, "each=3; accepted: a sequence of names"),
        ({"models": abs}, "models=.*abs.*; accepted: a sequence of functions or models"),
        ({"devices": "cpu:2"}, "devices='cpu:2'; accepted: what harness.configure returned"),
    ],
)
def test_bad_input_is_refused(devices: harness.Devices, change: dict[str, Any], why: str) -> None:
    with pytest.raises(harness.EnsembleError, match=why):
        harness.ensemble(**{"models": [abs], "devices": devices, **change})


def test_bad_calls_are_refused(devices: harness.Devices) -> None:
    models, _ = members(devices)
    run = harness.ensemble(models, devices, each=("x",))
    for given, said in (({"x": [data()]}, "has 1 value"), ({"x": data()}, "is of type ndarray"), ({}, "is missing")):
        with pytest.raises(
            harness.EnsembleError, match=rf"argument x {said}; accepted: a list of {len(models)} values"
        ):
            run(**given)


def test_what_a_model_raises_says_where(devices: harness.Devices) -> None:
    def broken(x: Any) -> Any:
        raise KeyError("gone")

    with pytest.raises(KeyError) as raised:
        harness.ensemble([lambda x: x, broken], devices)(x=tf.constant(1.0))
    notes = raised.value.__notes__  # type: ignore[attr-defined]
    assert notes == [f"in model 1 of 2, on {devices[1].name}"]
