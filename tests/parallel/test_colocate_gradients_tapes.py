"""What ``colocate_gradients`` notes while tapes are opened and closed, and what it does without a note."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tower_programs import Towers, elsewhere, loss_of, numbers, on_each

from harness import Devices, colocate_gradients, trace


@pytest.fixture
def towers(devices: Devices) -> Towers:
    return Towers(devices)


def noted() -> bool:
    """Whether TensorFlow calls something after each op of this thread."""
    return bool(context.context().op_callbacks)


def test_an_op_is_noted_only_while_a_tape_records(towers: Towers) -> None:
    seen = []
    with colocate_gradients():
        seen.append(noted())
        with tf.GradientTape() as outer:
            seen.append(noted())
            with tf.GradientTape():
                pass
            seen.append(noted())
            with outer.stop_recording():
                with tf.GradientTape():
                    pass
                seen.append(noted())
            seen.append(noted())
        seen.append(noted())
    assert seen == [False, True, True, False, True, False]
    assert not noted()
    assert len(towers.devices)


def test_a_tape_that_was_opened_before_the_context_records_in_it(towers: Towers) -> None:
    def step() -> Any:
        with tf.GradientTape() as tape, colocate_gradients():
            with tf.GradientTape() as inner:
                part = loss_of(on_each(towers.devices, towers.dense, towers.x))
            inner.gradient(part, [towers.w])
            loss = loss_of(on_each(towers.devices, towers.dense, towers.x))
            return tape.gradient(loss, [towers.w, towers.b])

    assert elsewhere(trace(step)) == []


def test_a_tape_that_a_gradient_opens_records_in_the_context(towers: Towers) -> None:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def own(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = loss_of(on_each(towers.devices, lambda rows: tf.tanh(tf.matmul(rows, towers.w)), x))
            return upstream * tape.gradient(loss, x)

        return tf.identity(x), gradient

    @colocate_gradients
    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(towers.x)
            loss = tf.reduce_sum(own(towers.x))
        return tape.gradient(loss, towers.x)

    assert elsewhere(trace(step)) == []


@pytest.mark.parametrize("scope", [True, False])
def test_one_gradient_of_tensors_on_several_devices_is_added_up_where_each_is(devices: Devices, scope: bool) -> None:
    first, second = devices[0].name, devices[1].name
    x = numbers(4, 4)

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.device(first):
                a = tf.sin(x)
            with tf.device(second):
                b = tf.cos(x)
                once_more = tf.exp(b)
            with tf.device(first):
                # Both get the very tensor that arrives as their gradient, and one more each.
                loss = tf.reduce_sum(tf.identity(a + b)) + tf.reduce_sum(tf.square(a)) + tf.reduce_sum(once_more)
        with tf.device(first if scope else None):
            return tape.gradient(loss, [a, b])

    run = trace(colocate_gradients(step))
    assert sorted(op.device.short for op in run.ops if op.type == "AddN" and op.device) == sorted(
        [devices[0].parsed.short, devices[1].parsed.short]
    )
    assert elsewhere(run) == []
    for got, expected in zip(colocate_gradients(step)(), step(), strict=True):
        assert got.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("scope", [True, False])
def test_an_op_of_an_unknown_device_has_its_gradient_where_the_caller_asks_for_it(
    devices: Devices, scope: bool
) -> None:
    x = numbers(4, 4)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tf.device(devices[-1].name):
            target = tf.sin(x) * 2.0  # the tape does not keep the product

    def gradient() -> Any:
        with colocate_gradients(), tf.device(devices[0].name if scope else None):
            return tape.gradient(target, x)

    with pytest.warns(RuntimeWarning, match="before the context was entered"):
        run = trace(gradient)
    # Where the caller chooses no device, TensorFlow takes the first.
    assert {op.device.short for op in run.ops if op.device and op.type == "Mul"} == {devices[0].parsed.short}
