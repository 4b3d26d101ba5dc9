"""State that both programs can reach: compared where both use it, and each side's own affair where one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, Verification, verify
from harness.errors import UsageError

X = np.random.default_rng(5).normal(size=(8, 3)).astype(np.float32)
Side = Callable[[str], Callable[..., Any]]


def _gradient(devices: Devices, weights: Any, x: Any, *, towers: bool) -> Any:
    def of(part: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(part @ weights))
        return tape.gradient(loss, weights)

    if not towers:
        return of(x)
    gradients = []
    for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
        with tf.device(device.name):
            gradients.append(of(part))
    return tf.add_n(gradients) / 2.0


class Trainer:
    """Weights that both sides train, and around them whatever one of the sides keeps for itself."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.weights = tf.Variable(X[:3], name="weights")
        self.optimizers = {side: tf.keras.optimizers.Adam(0.1, name=side) for side in ("single", "multi")}
        for optimizer in self.optimizers.values():
            optimizer.build([self.weights])
        self.calls = {side: tf.Variable(0, name=f"calls_of_{side}") for side in ("single", "multi")}
        self.loss = {side: tf.keras.metrics.Mean(name=f"loss_of_{side}") for side in ("single", "multi")}
        self.average = {side: tf.Variable(X[:3], name=f"average_of_{side}") for side in ("single", "multi")}
        self.target, self.steps = tf.Variable(X[:3], name="target"), tf.Variable(0, name="steps")

    def step(self, x: Any, side: str, keep: str = "", forget: str = "") -> Any:
        gradient = _gradient(self.devices, self.weights, x, towers=side == "multi")
        self.optimizers[side].apply([gradient], [self.weights])
        if keep == "everything":
            self.calls[side].assign_add(1)
            self.loss[side].update_state(tf.reduce_sum(x))
            self.average[side].assign(0.9 * self.average[side] + 0.1 * self.weights)
        elif keep == "a counter of the reference" and side == "single":
            self.calls[side].assign_add(1)
        distance = tf.reduce_sum(self.weights - self.target)
        if keep == "target" and forget != side:
            self.target.assign(self.weights)
        return distance


def _sides(trainer: Trainer, **how: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    class Bound:
        """Both sides in one object, so that each can reach what the other one keeps."""

        def __init__(self) -> None:
            self.trainer = trainer

        def single(self, x: Any) -> Any:
            return self.trainer.step(x, "single", **how)

        def multi(self, x: Any) -> Any:
            return self.trainer.step(x, "multi", **how)

    both = Bound()
    return both.multi, both.single


def _verified(devices: Devices, **how: Any) -> Verification:
    trainer = Trainer(devices)
    modes = ("eager",) if how.get("keep") else ("eager", "graph")
    return verify(*_sides(trainer, **how), {"x": X}, devices=devices[:2], variables=[trainer.weights], modes=modes)


@pytest.mark.parametrize("keep", ["", "everything", "a counter of the reference", "target"])
def test_what_each_side_keeps_for_itself_is_its_own_affair(devices: Devices, keep: str) -> None:
    found = _verified(devices, keep=keep)
    assert found.verdict is Verdict.PASS, found
    assert "Not compared, as only the reference uses them: variable " in found.reason
    assert "give variables=[...]" in found.reason


@pytest.mark.parametrize("forget", ["multi", "single"])
def test_what_both_use_and_one_updates_is_found(devices: Devices, forget: str) -> None:
    found = _verified(devices, keep="target", forget=forget)
    assert [finding.kind for finding in found.findings] == ["value"], found
    assert "ariable target is " in found.reason, found


def test_a_trained_and_a_frozen_copy_of_a_model_pass_and_its_statistics_are_found(devices: Devices) -> None:
    """The layer's weights are used by both; its moving statistics belong to them, and one side leaves them alone."""
    models = {side: tf.keras.Sequential([tf.keras.layers.BatchNormalization(name="norm")]) for side in ("one", "other")}
    for model in models.values():
        model.build((None, 3))

    def program(side: str) -> Callable[..., Any]:
        return lambda x: models[side](x, training=True)

    def by_hand(x: Any) -> Any:
        norm = models["one"].layers[0]
        mean, variance = tf.nn.moments(x, 0)
        return tf.nn.batch_normalization(x, mean, variance, norm.beta, norm.gamma, norm.epsilon)

    own = verify(program("one"), program("other"), {"x": X}, devices=devices[:1], modes=("eager",))
    assert own.verdict is Verdict.PASS, own
    found = verify(by_hand, program("one"), {"x": X}, devices=devices[:1], modes=("eager",))
    assert "norm/moving_mean and variable sequential" in found.reason, found
    assert "norm/moving_variance are not updated" in found.reason, found


def test_a_generator_function_is_refused(devices: Devices) -> None:
    def later(x: Any) -> Any:
        yield x

    for parallel, reference in ((later, tf.tanh), (tf.tanh, later)):
        with pytest.raises(UsageError, match="is a generator or async function"):
            verify(parallel, reference, {"x": X}, devices=devices[:1])


def _layers(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    made = [random.normal(size=(3, 4)), np.zeros(4), random.normal(size=(4, 4)), np.zeros(4)]
    return [tf.Variable(each.astype(np.float32)) for each in made]


def _trained(weights: list[Any], step_size: list[float], devices: Devices | None) -> Callable[..., Any]:
    def loss_of(x: Any) -> Any:
        hidden = tf.tanh(x @ weights[0] + weights[1])
        return tf.reduce_sum(tf.square(hidden @ weights[2] + weights[3])) / len(X)

    def step(x: Any) -> Any:
        if devices is None:
            with tf.GradientTape() as tape:
                loss = loss_of(x)
            slopes = tape.gradient(loss, weights)
        else:
            found = []
            for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
                with tf.device(device.name), tf.GradientTape() as tape:
                    loss = loss_of(part)
                    found.append((loss, tape.gradient(loss, weights)))
            loss = tf.add_n([each for each, _ in found])
            slopes = [tf.add_n(parts) for parts in zip(*(each for _, each in found), strict=True)]
        for weight, size, slope in zip(weights, step_size, slopes, strict=False):
            weight.assign_sub(size * slope)
        return loss

    return step


@pytest.mark.cases("right", "forgotten")
@pytest.mark.parametrize("fault", ["right", "kernel", "bias", "forgotten"])
def test_two_copies_of_a_model_are_compared(fault: str, devices: Devices) -> None:
    """Nothing but the loss before the update is returned, and neither program can reach the other one's weights."""
    sizes = [0.1, 0.1, 0.2 if fault == "kernel" else 0.1, 0.2 if fault == "bias" else 0.1]
    sizes = sizes if fault != "forgotten" else []
    parallel, reference = _trained(_layers(1), sizes, devices), _trained(_layers(1), [0.1] * 4, None)
    found = verify(parallel, reference, {"x": X}, devices=devices[:2])
    if fault == "right":
        assert found.passed, found
        assert found.proof is not None
        assert found.proof.proved, found.proof
        assert any("start equal" in each for each in found.proof.assumed), found.proof
    else:
        assert found.verdict is Verdict.FAIL, found
        assert {finding.kind for finding in found.findings} == {"value"}, found


def test_models_that_start_otherwise_are_each_programs_own_affair(devices: Devices) -> None:
    def of(weights: list[Any], scale: float) -> Callable[..., Any]:
        def step(x: Any) -> Any:
            for weight in weights:
                weight.assign(weight * scale)
            parts = zip(devices[:2], tf.split(x, 2), strict=True)
            if scale == 0.5:
                return x * 2.0
            made = []
            for device, part in parts:
                with tf.device(device.name):
                    made.append(part * 2.0)
            return tf.concat(made, 0)

        return step

    found = verify(of(_layers(1), 0.9), of(_layers(2), 0.5), {"x": X}, devices=devices[:2])
    assert found.passed, found
