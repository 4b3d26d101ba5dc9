"""What ``colocate_gradients`` notes while tapes are opened and closed, and what it does without a note."""

from __future__ import annotations

import functools
import threading
from contextlib import ExitStack
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context, record
from tower_programs import Towers, elsewhere, loss_of, numbers, on_each

from harness import Devices, colocate_gradients, trace
from harness.parallel.recording import in_context


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


@pytest.mark.parametrize("way", ["step", "forward pass"])
def test_a_forward_accumulator_plays_ops_of_a_custom_gradient_back_where_they_ran(devices: Devices, way: str) -> None:
    first, last = devices[0], devices[-1]
    x = tf.Variable(numbers(4, 4))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def doubled(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            with tf.device(first.name):
                return tf.reverse(2.0 * upstream, [0])

        return tf.reverse(2.0 * x, [0]), gradient

    def forward() -> Any:
        with tf.device(last.name):
            return doubled(tf.identity(x))

    def step(forward: Any = forward) -> Any:
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            y = forward()
        return accumulator.jvp(y)

    def moved(call: Any) -> int:
        """How often a matrix is reversed on the first device: by the gradient, and where that is played back."""
        call()  # TensorFlow traces what it needs for each op, and opens tapes for that
        ran = trace(call).ops
        return sum(op.type == "ReverseV2" and op.device == first.parsed for op in ran)

    mended = colocate_gradients(step) if way == "step" else functools.partial(step, colocate_gradients(forward))
    assert (moved(step), moved(mended)) == (1, 2)
    assert mended().numpy().tobytes() == step().numpy().tobytes()


def test_the_function_of_a_py_function_is_within_the_context_in_a_graph_too(towers: Towers) -> None:
    """A graph runs it, and its gradient, in threads of TensorFlow's own."""

    def predict(x: Any, w: Any) -> Any:
        return tf.concat(on_each(towers.devices, lambda rows: tf.tanh(tf.matmul(rows, w)), x), axis=0)

    def around() -> Any:
        with tf.GradientTape() as tape:
            y = tf.py_function(predict, [towers.x, towers.w], tf.float32)
            loss = tf.reduce_sum(tf.ensure_shape(y, towers.x.shape) ** 2)
        return tape.gradient(loss, towers.w)

    def inside() -> Any:
        def gradient(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(predict(x, towers.w) ** 2)
            return tape.gradient(loss, towers.w)

        return tf.py_function(gradient, [towers.x], tf.float32)

    def places(call: Any) -> set[Any]:
        return {op.device for op in trace(tf.function(call)).ops if op.type == "TanhGrad" and op.device}

    for step in (around, inside):
        assert len(places(step)) == 1
        assert places(colocate_gradients(step)) == {device.parsed for device in towers.devices}
        assert tf.function(colocate_gradients(step))().numpy().tobytes() == tf.function(step)().numpy().tobytes()
    assert not noted()


def test_a_py_function_that_fails_leaves_nothing_behind_in_its_thread(devices: Devices) -> None:
    seen: list[bool] = []

    def fails(x: Any) -> Any:
        seen.append(in_context())
        raise ZeroDivisionError

    def called(x: Any) -> Any:
        seen.append(in_context())
        return x

    for _ in range(8):  # TensorFlow has several threads
        with pytest.raises(tf.errors.UnknownError, match="ZeroDivisionError"):
            tf.function(colocate_gradients(lambda: tf.py_function(fails, [1.0], tf.float32)))()
        tf.function(lambda: tf.py_function(called, [1.0], tf.float32))()
    assert seen == [True, False] * 8
    assert len(devices)
