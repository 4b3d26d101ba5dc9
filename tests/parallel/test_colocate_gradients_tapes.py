"""What ``colocate_gradients`` notes while tapes are opened and closed, and what it does without a note."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context, record
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


def test_a_kept_tensor_that_is_the_gradient_of_two_tensors_is_added_up_where_each_is(devices: Devices) -> None:
    x, kept = numbers(4, 4), numbers(4, 4, seed=2)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def constant_gradient(x: Any) -> Any:
        return x * 2.0, lambda _: kept

    def step(scope: str | None) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.device(devices[0].name):
                a = tf.sin(x)
            with tf.device(devices[1].name):
                b = tf.cos(x)
            with tf.device(devices[0].name):
                loss = tf.reduce_sum(a * a) + tf.reduce_sum(b * b)
                of_a, of_b = constant_gradient(a), constant_gradient(b)
                loss = loss + tf.reduce_sum(of_b) + tf.reduce_sum(of_a)
        with tf.device(scope):
            return tape.gradient(loss, [a, b])

    for scope in (None, devices[0].name):
        run = trace(lambda scope=scope: colocate_gradients(step)(scope))
        sums = [op.device.short for op in run.ops if op.type == "AddN" and op.device]
        assert sorted(sums) == sorted([devices[0].parsed.short, devices[1].parsed.short]), scope


def test_zeros_that_tensorflow_keeps_are_gradients_of_tensors_on_two_devices(devices: Devices) -> None:
    x = numbers(4, 4)

    def step(scope: str | None) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.device(devices[0].name):
                a = tf.sin(x)
            with tf.device(devices[-1].name):
                b = tf.cos(x)
            with tf.device(devices[0].name):
                squares = tf.reduce_sum(tf.square(a)) + tf.reduce_sum(tf.square(b))
            with tf.device(devices[1].name):
                first, _ = tf.raw_ops.IdentityN(input=[tf.exp(x), b])
                second, _ = tf.raw_ops.IdentityN(input=[tf.exp(x), a])
            with tf.device(devices[0].name):
                loss = squares + tf.reduce_sum(first) + tf.reduce_sum(second)
        with tf.device(scope):
            return tape.gradient(loss, [a, b])

    for scope in (None, devices[0].name):
        found = [grad.device for grad in colocate_gradients(step)(scope)]
        assert found == [devices[0].name, devices[-1].name], scope


def test_what_the_context_does_not_know_of_stays_where_the_caller_asks_for_it(devices: Devices) -> None:
    x, other = numbers(4, 4), numbers(3)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def doubled(x: Any) -> Any:
        return x * 2.0, lambda upstream: tf.exp(upstream)

    def zeros() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, other])
            with tf.device(devices[-1].name):
                target = tf.sin(x)
        return tape.gradient(target, [x, other], unconnected_gradients="zero")

    def before() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.device(devices[-1].name):
                target = doubled(x)
        with colocate_gradients():
            return tape.gradient(target, x)

    for step, op_type in ((colocate_gradients(zeros), "ZerosLike"), (before, "Exp")):
        run = trace(step)
        assert {op.device.short for op in run.ops if op.device and op.type == op_type} == {devices[0].parsed.short}


def test_tapes_that_are_stopped_or_belong_to_another_thread_leave_no_op_without_a_note(towers: Towers) -> None:
    failed: list[object] = []

    def step() -> Any:
        return towers.gradients(towers.dense, [towers.w, towers.b])

    def within(tape: tf.GradientTape) -> None:
        try:
            with colocate_gradients(), tape.stop_recording():
                assert elsewhere(trace(step)) == []
        except BaseException as error:  # noqa: BLE001 - told in the main thread
            failed.append(error)

    with tf.GradientTape(persistent=True) as outer:
        thread = threading.Thread(target=within, args=(outer,))
        thread.start()
        thread.join()
    assert failed == []

    with ExitStack() as later:
        with tf.GradientTape() as tape:
            with record.stop_recording():
                later.enter_context(colocate_gradients())
            loss = loss_of(on_each(towers.devices, towers.dense, towers.x))
        assert elsewhere(trace(lambda: tape.gradient(loss, [towers.w, towers.b]))) == []
        assert elsewhere(trace(step)) == []
