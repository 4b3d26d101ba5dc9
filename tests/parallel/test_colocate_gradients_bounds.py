"""Where ``colocate_gradients`` begins and ends: other code, other threads, errors, another TensorFlow."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, context, execute, imperative_grad, record, tape
from tensorflow.python.eager.polymorphic_function import concrete_function, function_context
from tensorflow.python.framework import op_callbacks, ops
from tensorflow.python.ops import control_flow_state, gradients_util, resource_variable_ops, script_ops
from tower_programs import Towers, elsewhere, loss_of, numbers, on_each

from harness import Devices, TensorFlowInterfaceChanged, UsageError, colocate_gradients, trace
from harness._tensorflow import interface
from harness.parallel import recording, wrappers

REPLACED = [
    (backprop, "_gradient_function"),
    (backprop, "_default_vspace"),
    (imperative_grad, "imperative_grad"),
    (tape, "push_new_tape"),
    (tape, "push_tape"),
    (tape, "pop_tape"),
    (record, "record_operation"),
    (record, "record_operation_backprop_only"),
    (execute, "record_gradient"),
    (gradients_util, "_maybe_colocate_with"),
    (gradients_util, "_AggregatedGrads"),
    (gradients_util, "_MultiDeviceAddN"),
    (control_flow_state, "ZerosLike"),
    (function_context, "make_function_context"),
    (concrete_function.ConcreteFunction, "_select_forward_and_backward_functions"),
    (concrete_function._DelayedRewriteGradientFunctions, "forward_backward"),
    (op_callbacks, "should_invoke_op_callbacks"),
    (script_ops.EagerFunc, "__init__"),
    (ops.Graph, "_create_op_helper"),
    (ops.Graph, "_original_op"),
    (resource_variable_ops.BaseResourceVariable, "sparse_read"),
    (resource_variable_ops.BaseResourceVariable, "gather_nd"),
]


def installed() -> list[Any]:
    return [getattr(owner, name) for owner, name in REPLACED]


@pytest.fixture
def towers(devices: Devices) -> Towers:
    return Towers(devices)


@pytest.fixture
def uninstalled(devices: Devices) -> Iterator[None]:
    """As in a process that has neither traced a program nor used ``make_parallel``."""
    stays = wrappers._stays
    if stays:
        wrappers.release()
        wrappers._stays = False
    yield
    if stays:
        wrappers.stay_installed()
    assert len(devices)


@pytest.mark.usefixtures("uninstalled")
def test_everything_is_as_before_when_the_context_is_left(towers: Towers) -> None:
    before = installed()
    with colocate_gradients():
        towers.first_order()
        within = installed()
    assert all(old is not new for old, new in zip(before, within, strict=True))
    assert installed() == before
    with pytest.raises(ZeroDivisionError), colocate_gradients():
        raise ZeroDivisionError
    assert installed() == before
    assert context.context().op_callbacks == []
    assert elsewhere(trace(towers.first_order))


def test_a_gradient_in_the_middle_of_which_the_program_fails_leaves_nothing_behind(towers: Towers) -> None:
    scope = context.context().device_name

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def fails(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            raise ZeroDivisionError

        return tf.identity(x), gradient

    with pytest.raises(ZeroDivisionError), colocate_gradients():
        towers.gradients(lambda x: fails(tf.matmul(x, towers.w)), [towers.w])
    assert context.context().device_name == scope
    assert elsewhere(trace(colocate_gradients(towers.first_order))) == []


def test_contexts_can_be_nested_and_entered_again(towers: Towers) -> None:
    before = installed()
    one = colocate_gradients()
    with one, one, colocate_gradients():
        colocate_gradients(towers.first_order)()
        assert elsewhere(trace(towers.first_order)) == []
    with one:
        assert elsewhere(trace(towers.first_order)) == []
    assert installed() == before


def test_contexts_that_end_in_another_order_than_they_began_hold_until_the_last(towers: Towers) -> None:
    """As in coroutines of one thread."""
    before = installed()
    first, second = colocate_gradients(), colocate_gradients()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert elsewhere(trace(towers.first_order)) == []
    second.__exit__(None, None, None)
    assert elsewhere(trace(towers.first_order))
    assert installed() == before


def test_a_context_that_is_left_in_another_thread_is_an_error_there_and_holds_here(towers: Towers) -> None:
    raised: list[BaseException] = []

    def leave() -> None:
        try:
            context.__exit__(None, None, None)
        except UsageError as error:
            raised.append(error)

    with colocate_gradients():
        context = colocate_gradients()
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join(60)
        assert elsewhere(trace(towers.first_order)) == []
    assert "different thread" in str(raised[0])


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_callbacks_of_others_see_and_change_ops_as_before(towers: Towers, mode: str) -> None:
    run = towers.first_order if mode == "eager" else tf.function(towers.first_order)
    expected = [value.numpy().tobytes() for value in run()]
    tf.debugging.enable_check_numerics()
    try:
        with colocate_gradients():
            assert [value.numpy().tobytes() for value in run()] == expected
            poisoned = functools.partial(towers.gradients, lambda x: tf.math.log(-tf.abs(x) @ towers.w), [towers.w])
            with pytest.raises(tf.errors.InvalidArgumentError, match="NaN"):
                (poisoned if mode == "eager" else tf.function(poisoned))()
    finally:
        tf.debugging.disable_check_numerics()


@pytest.mark.parametrize("decorated", [colocate_gradients, colocate_gradients()], ids=["plain", "called"])
def test_it_decorates_functions_inside_and_outside_of_tf_function(towers: Towers, decorated: Any) -> None:
    def step(factor: Any) -> Any:
        """A step."""
        if tf.reduce_sum(factor) > 0:  # AutoGraph has to see it
            return towers.first_order()
        return [towers.w * 1.0, towers.b * 1.0]

    outside, inside = decorated(tf.function(step)), tf.function(decorated(step))
    assert decorated(step).__doc__ == "A step."
    for call in (outside, inside):
        assert elsewhere(trace(functools.partial(call, tf.constant(1.0)))) == []


def test_a_gradient_asked_for_after_the_context_is_as_without_it(towers: Towers) -> None:
    def late() -> Any:
        with tf.GradientTape() as tape, colocate_gradients():
            loss = loss_of(on_each(towers.devices, towers.dense, towers.x))
        return tape.gradient(loss, [towers.w, towers.b])

    assert elsewhere(trace(late)) == elsewhere(trace(towers.first_order)) != []


def test_ops_of_unknown_devices_are_left_alone_in_one_line(towers: Towers) -> None:
    def early() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(on_each(towers.devices, towers.dense, towers.x))
        with colocate_gradients():
            return tape.gradient(loss, [towers.w, towers.b])

    with pytest.warns(RuntimeWarning, match="enter the context before the forward pass") as caught:
        found = early()
    assert len(caught) == 1
    for value, expected in zip(found, towers.first_order(), strict=True):
        assert bytes(value.numpy()) == bytes(expected.numpy())
    with pytest.warns(RuntimeWarning, match="enter the context before the forward pass"):
        tf.function(early)()


def test_another_thread_is_outside_and_two_threads_do_not_disturb_each_other(towers: Towers) -> None:
    seen: dict[str, Any] = {}
    entered, done = threading.Event(), threading.Event()

    def bystander() -> None:
        entered.wait(60)
        seen["active"] = recording.active()
        with colocate_gradients():
            seen["active within"] = recording.active()
            seen["within"] = towers.first_order()
        done.set()

    thread = threading.Thread(target=bystander)
    thread.start()
    with colocate_gradients():
        entered.set()
        done.wait(60)
        assert recording.active()
        assert elsewhere(trace(towers.first_order)) == []
    thread.join(60)
    assert (seen["active"], seen["active within"]) == (False, True)
    for value, expected in zip(seen["within"], towers.first_order(), strict=True):
        assert bytes(value.numpy()) == bytes(expected.numpy())


# On one GPU, threads that run the same eager op mix up its arguments in host memory (tensorflow 123980).
@pytest.mark.devices(kind="logical-cpu")
def test_many_threads_train_at_once_and_each_gets_its_own_gradients(devices: Devices) -> None:
    failures: list[Any] = []
    start = threading.Barrier(4)

    def train(number: int) -> None:
        own = Towers(devices)
        own.x = numbers(2 * len(devices), 6, seed=number)
        expected = [value.numpy().tobytes() for value in own.first_order()]
        start.wait(60)
        for _ in range(10):
            with colocate_gradients():
                found = [value.numpy().tobytes() for value in own.first_order()]
            if found != expected:
                failures.append(number)

    before = installed()
    threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert installed() == before


def test_notes_of_ops_are_dropped_with_their_tapes(towers: Towers) -> None:
    gc.collect()
    recording.sweep()
    before = {*recording.notes}  # of what other tests of this process still hold
    with colocate_gradients():
        with tf.GradientTape(persistent=True) as tape:
            loss = loss_of(on_each(towers.devices, towers.dense, towers.x))
        recording.sweep()
        kept = len(recording.notes)
        assert kept > 2 * len(towers.devices)
        tape.gradient(loss, towers.w)
        del tape
        recording.sweep()
        assert len(recording.notes) < kept
    gc.collect()
    recording.sweep()
    assert {*recording.notes} <= before


def test_replicas_of_a_strategy_are_within_the_context_of_their_caller(devices: Devices, fresh_process: Any) -> None:
    fresh_process(strategy_of_two)


def strategy_of_two() -> None:
    """Runs in a process of its own: strategies over several sets of devices exclude each other in one."""
    import harness

    devices = harness.configure("cpu:2")
    w = tf.Variable(numbers(4, 4))
    strategy = tf.distribute.MirroredStrategy(devices.names)
    with strategy.scope():
        mirrored = tf.Variable(numbers(4, 4))
    x = numbers(3, 4)

    def replica(swapped: Any) -> Any:
        with tf.GradientTape() as tape:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            with tf.device(devices[0].name if swapped else devices[int(tf.get_static_value(number))].name):
                loss = tf.reduce_sum(tf.tanh(tf.matmul(x, mirrored)) ** 2)
        return tape.gradient(loss, mirrored)

    for swapped in (False, True):
        step = functools.partial(strategy.run, replica, (swapped,))
        for call in (step, tf.function(step)):
            plain = [value.numpy().tobytes() for value in strategy.experimental_local_results(call())]
            with colocate_gradients():
                found = trace(call)
                values = [value.numpy().tobytes() for value in strategy.experimental_local_results(call())]
            assert values == plain
            assert elsewhere(found) == [], (swapped, elsewhere(found))
    assert w is not None


@pytest.fixture
def unchecked() -> Any:
    interface.cache_clear()
    yield
    interface.cache_clear()


FUNCTIONS = [pair for pair in REPLACED if pair[1] != "_default_vspace"]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("owner", "name"), FUNCTIONS, ids=lambda value: getattr(value, "__name__", value))
def test_another_interface_of_tensorflow_is_named(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, devices: Devices
) -> None:
    def other(something: Any, new: Any) -> None: ...

    monkeypatch.setattr(owner, name, other)
    with pytest.raises(TensorFlowInterfaceChanged, match=name), colocate_gradients():
        pass
    interface.cache_clear()
    monkeypatch.undo()
    monkeypatch.delattr(owner, name)
    if not hasattr(owner, name):  # else it is inherited
        with pytest.raises(TensorFlowInterfaceChanged, match=name), colocate_gradients():
            pass
    monkeypatch.undo()
    assert len(devices)


@pytest.mark.usefixtures("unchecked")
def test_a_registration_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pywrap_tfe, "TFE_Py_RegisterVSpace")
    with pytest.raises(TensorFlowInterfaceChanged, match="TFE_Py_RegisterVSpace"), colocate_gradients():
        pass


def test_an_op_and_its_gradient_share_one_tuple_of_attributes(devices: Devices) -> None:
    """What the notes rest on: it is a fact of TensorFlow, so that a version in which it fails is seen here."""
    seen: list[int] = []
    asked: list[int] = []

    def callback(op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        if op_type == "MatMul":
            seen.append(id(attrs))

    def gradient(op_name: str, attrs: Any, *rest: Any) -> Any:
        if op_name == "MatMul":
            asked.append(id(attrs))
        return original(op_name, attrs, *rest)

    original: Callable[..., Any] = backprop._gradient_function
    w = tf.Variable(numbers(3, 3))
    context.context().add_op_callback(callback)
    pywrap_tfe.TFE_Py_RegisterGradientFunction(gradient)
    try:
        with tf.GradientTape() as tape:
            y = tf.matmul(tf.matmul(w, w), w)
        context.context().remove_op_callback(callback)
        tape.gradient(y, w)
    finally:
        pywrap_tfe.TFE_Py_RegisterGradientFunction(original)
    assert len(seen) == len(asked) == 2
    assert asked == seen[::-1]
    assert len(devices)
