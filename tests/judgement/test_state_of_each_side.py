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
