"""``colocate_gradients`` as the decorator of a forward pass alone, whose gradients are asked for outside of it."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tower_programs import Towers, elsewhere, on_each

from harness import Devices, UsageError, colocate_gradients, trace, verify
from harness.parallel import gradients
from harness.parallel.wrappers import stay_installed


@pytest.fixture
def towers(devices: Devices) -> Towers:
    return Towers(devices)


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", ["eager", "decorated tf.function", "in tf.function", "step in tf.function"])
@pytest.mark.parametrize("order", [1, 2])
def test_of_a_decorated_forward_pass_a_gradient_is_in_place_wherever_it_is_asked_for(
    towers: Towers, kind: str, order: int
) -> None:
    def forward(x: Any) -> Any:
        return tf.concat(on_each(towers.devices, towers.dense, x), axis=0)

    predict = {
        "eager": colocate_gradients(forward),
        "decorated tf.function": colocate_gradients(tf.function(forward)),
        "in tf.function": tf.function(colocate_gradients(forward)),
        "step in tf.function": colocate_gradients(forward),
    }[kind]

    # TensorFlow unwraps decorated defaults of a tf.function, as this one.
    def step(predict: Any = predict, order: int = order) -> Any:
        with tf.GradientTape() as tape:
            if order == 2:
                loss = sum(tf.reduce_sum(grad**2) for grad in step(predict, 1))
            else:
                loss = tf.reduce_mean(predict(towers.x) ** 2)
        return tape.gradient(loss, [towers.w, towers.b])

    run = tf.function(step) if kind == "step in tf.function" else step
    for found, expected in zip(run(), step(forward), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert elsewhere(trace(run)) == []
    assert elsewhere(trace(lambda: step(forward)))


def test_a_decorated_forward_pass_passes_verification_and_one_without_does_not(towers: Towers) -> None:
    def model(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, towers.w))

    def by_hand(x: Any) -> Any:
        return tf.concat(on_each(towers.devices, model, x), axis=0)

    faulty = verify(by_hand, model, {"x": towers.x}, devices=towers.devices, gradients=True)
    right = verify(colocate_gradients(by_hand), model, {"x": towers.x}, devices=towers.devices, gradients=True)
    assert {finding.kind for finding in faulty.findings} == {"gradient-placement"}
    assert right.passed, str(right)


def test_a_function_whose_body_runs_after_the_call_is_refused_and_what_it_calls_is_in_place(towers: Towers) -> None:
    @colocate_gradients
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.concat(on_each(towers.devices, towers.dense, towers.x), axis=0) ** 2)
        return tape.gradient(loss, [towers.w, towers.b])

    def steps() -> Iterator[Any]:
        yield step()

    async def later() -> Any:
        return step()

    async def all_later() -> AsyncIterator[Any]:
        yield step()

    class Steps:
        def __call__(self) -> Iterator[Any]:
            yield step()

    for fn in (steps, later, all_later, Steps(), Steps().__call__):
        with pytest.raises(UsageError, match=r"body runs after the call; decorate the function that it calls"):
            colocate_gradients(fn)
    assert elsewhere(trace(lambda: list(steps()))) == []
    assert elsewhere(trace(lambda: asyncio.run(later()))) == []


@pytest.mark.parametrize("given", [type("Model", (), {}), 3, "step"], ids=["class", "number", "text"])
def test_what_is_not_a_function_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="is not a function; give a function, or, in a with statement, no argument"):
        colocate_gradients(given)


def double_of_positive(x: Any) -> Any:
    """A Python function that can be pickled, with a branch that AutoGraph has to convert."""
    if tf.reduce_sum(x) > 0:
        return 2.0 * x
    return x


def test_a_decorated_tf_function_is_a_tf_function(towers: Towers, tmp_path: Path) -> None:
    class Trainer(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(towers.w)

        @colocate_gradients
        @tf.function(input_signature=[tf.TensorSpec(towers.x.shape)])  # type: ignore[untyped-decorator]
        def step(self, x: Any) -> Any:
            with tf.GradientTape() as tape:
                parts = on_each(towers.devices, lambda part: tf.tanh(part @ self.w), x)
                loss = tf.reduce_mean(tf.concat(parts, axis=0) ** 2)
            self.w.assign_sub(tape.gradient(loss, self.w))
            return loss

        @colocate_gradients
        @tf.function  # type: ignore[untyped-decorator]
        def branch(self, x: Any, *, shift: float = 1.0) -> Any:
            if tf.reduce_sum(x) > 0:
                return x + shift
            return x

    trainer = Trainer()
    assert type(trainer.step) is type(tf.function(double_of_positive))
    assert elsewhere(trace(trainer.step, towers.x)) == []
    assert trainer.step.experimental_get_tracing_count() == 1
    assert "TensorSpec" in trainer.step.pretty_printed_concrete_signatures()
    assert trainer.branch(tf.constant(1.0), shift=2.0) == 3.0
    tf.saved_model.save(trainer, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    np.testing.assert_allclose(loaded.step(towers.x), trainer.step.get_concrete_function()(towers.x), rtol=1e-6)

    pickled = pickle.loads(pickle.dumps(colocate_gradients(tf.function(double_of_positive))))
    assert pickled(tf.constant(2.0)) == 4.0


def test_autograph_converts_the_users_function_and_nothing_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[str] = []

    def noted() -> None:
        frame = inspect.currentframe()
        files.append(frame.f_code.co_filename if frame else "")
        stay_installed()

    monkeypatch.setattr(gradients, "stay_installed", noted)

    def positive(x: tf.Tensor) -> tf.Tensor:
        if x < 0.0:
            x = -x
        return x

    @tf.function  # type: ignore[untyped-decorator]
    def outer(x: tf.Tensor) -> tf.Tensor:
        return colocate_gradients(positive)(x) + colocate_gradients(tf.function(positive))(x)

    assert outer(tf.constant(-2.0)) == 4.0
    assert files
    assert set(files) == {__file__}
