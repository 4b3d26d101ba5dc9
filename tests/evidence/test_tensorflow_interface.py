"""When TensorFlow's private interface is not what it was: a named error, never an empty trace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from sample_programs import function, on, rows, where
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, context, execute, imperative_grad, record, tape
from tensorflow.python.framework import func_graph, op_callbacks, op_def_registry, ops
from tensorflow.python.ops import resource_variable_ops

from harness import EvidenceError, TensorFlowInterfaceChanged, trace
from harness._tensorflow import interface, memory_limits
from harness.parallel.wrappers import stay_installed

pytestmark = pytest.mark.devices(min=4, kind="logical-cpu")


@pytest.fixture(autouse=True)
def _interface_is_checked_again() -> Iterator[None]:
    interface.cache_clear()
    yield
    interface.cache_clear()


ATTRIBUTES = [
    (context, "context"),
    (context, "Context"),
    (op_callbacks, "add_op_callback"),
    (op_callbacks, "remove_op_callback"),
    (op_callbacks, "invoke_op_callbacks"),
    (pywrap_tfe, "TFE_Py_RegisterGradientFunction"),
    (pywrap_tfe, "TFE_Py_FastPathExecute"),
    (pywrap_tfe, "TFE_Py_TapeSetIsEmpty"),
    (pywrap_tfe.EagerContextThreadLocalData, "op_callbacks"),
    (tape, "pop_tape"),
    (record, "record_operation"),
    (backprop, "_gradient_function"),
    (imperative_grad, "imperative_grad"),
    (op_def_registry, "get"),
    (context.Context, "enable_graph_collection"),
    (context.Context, "disable_graph_collection"),
    (context.Context, "export_run_metadata"),
    (context.Context, "clear_kernel_cache"),
    (context.Context, "get_function_def"),
    (context.Context, "get_graph_debug_info"),
    (context.Context, "has_function"),
    (context.Context, "device_name"),
    (context.Context, "call_function"),
    (context.Context, "op_callbacks"),
    (context.Context, "_clear_caches"),
    (func_graph, "FuncGraph"),
    (ops, "_EagerTensorBase"),
    (ops.Graph, "_create_op_helper"),
    (ops.Graph, "_original_op"),
    (ops.Graph, "_create_op_internal"),
    (ops.Graph, "_device_function_stack"),
    (resource_variable_ops, "BaseResourceVariable"),
    (ops._EagerTensorBase, "_numpy"),
]


@pytest.mark.parametrize(("owner", "name"), ATTRIBUTES, ids=lambda value: getattr(value, "__name__", value))
def test_a_part_that_is_gone_is_named(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(TensorFlowInterfaceChanged) as caught:
        trace(lambda: None)
    monkeypatch.undo()
    assert caught.value.name.endswith(f".{name}")
    assert (caught.value.expected, caught.value.found) == ("an attribute", "none")
    assert "TensorFlow 2.19 to 2.21" in str(caught.value)


FUNCTIONS = [
    (backprop, "_gradient_function"),
    (op_callbacks, "invoke_op_callbacks"),
    (imperative_grad, "imperative_grad"),
    (record, "record_operation"),
]


@pytest.mark.parametrize(("owner", "name"), FUNCTIONS, ids=lambda value: getattr(value, "__name__", value))
def test_a_function_with_other_parameters_is_named(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(op_name: str, inputs: Any) -> None: ...

    monkeypatch.setattr(owner, name, other)
    with pytest.raises(TensorFlowInterfaceChanged) as caught:
        trace(lambda: None)
    assert caught.value.name.endswith(f".{name}")
    assert caught.value.found == "(op_name, inputs)"


def test_a_module_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.record", None)
    with pytest.raises(TensorFlowInterfaceChanged, match=r"tensorflow\.python\.eager\.record"):
        trace(lambda: None)


def test_each_device_has_an_allocator_whose_limit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = memory_limits()
    prefix = "/job:localhost/replica:0/task:0"
    assert list(limits) == [prefix + device.name for device in tf.config.list_logical_devices()]
    # What tensorflow/core/common_runtime/threadpool_device_factory.cc says of every CPU.
    assert set(limits.values()) == {256 * 2**20}
    monkeypatch.delattr(pywrap_tfe, "TF_DeviceListName")
    with pytest.raises(TensorFlowInterfaceChanged, match="TF_DeviceListName"):
        memory_limits()


def test_no_metadata_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context.Context, "export_run_metadata", lambda self: None)
    with pytest.raises(TensorFlowInterfaceChanged, match="export_run_metadata"):
        trace(tf.tanh, rows())


def test_a_collection_that_collects_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context.Context, "enable_graph_collection", lambda self: None)
    for fn in (tf.tanh, tf.function(tf.tanh), tf.function(tf.tanh, jit_compile=True), lambda _: None):
        with pytest.raises(EvidenceError, match="collect"):
            trace(fn, rows())


def test_a_collection_that_the_function_switches_off_is_an_error() -> None:
    fn = tf.function(lambda x: tf.cumsum(x))

    def early(x: Any) -> Any:
        context.context().disable_graph_collection()
        return fn(x)

    def late(x: Any) -> Any:
        result = fn(x)
        context.context().disable_graph_collection()
        return tf.exp(result)

    for switches_off in (early, late):
        with pytest.raises(EvidenceError, match="collect"):
            trace(switches_off, rows())
    assert where(trace(fn, rows()), "Cumsum") == ["CPU:0"]


def test_a_function_that_exports_its_own_graphs_is_traced_all_the_same(tmp_path: Path) -> None:
    fn = tf.function(lambda x: tf.cumsum(x))

    def exports(x: Any) -> Any:
        with tf.summary.create_file_writer(str(tmp_path)).as_default():
            tf.summary.trace_on(graph=True)
            fn(x)
            tf.summary.trace_export("graph", step=0)
        return fn(x)

    assert where(trace(exports, rows()), "Cumsum") == ["CPU:0", "CPU:0"]


def test_an_interface_as_it_should_be_is_accepted() -> None:
    assert where(trace(tf.tanh, rows()), "Tanh") == ["CPU:0"]


def state() -> tuple[object, ...]:
    """What a trace changes in TensorFlow and in Python while it is under way."""
    return (
        execute.execute,
        imperative_grad.imperative_grad,
        record.record_operation,
        context.Context.call_function,
        pywrap_tfe.TFE_Py_FastPathExecute,
        threading.gettrace(),
        tuple(context.context().op_callbacks),
    )


def test_after_a_trace_everything_is_as_before() -> None:
    stay_installed()  # as the first trace of a process does
    before = state()
    during = trace(state).outputs
    assert state() == before
    assert all(here != there for here, there in zip(during, before, strict=True))


def test_after_an_error_everything_is_as_before() -> None:
    stay_installed()
    before = state()

    def fails(x: Any) -> Any:
        with on(2), tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(x)
        tape.gradient(y, x)
        raise KeyError("mine")

    for fn in (fails, tf.function(fails)):
        with pytest.raises(KeyError, match="mine"):
            trace(fn, rows())
    assert state() == before
    assert where(trace(tf.tanh, rows()), "Tanh") == ["CPU:0"]


def test_an_error_of_tensorflow_within_a_function_comes_through() -> None:
    @function()
    def fn(x: Any) -> Any:
        with tf.device("/CPU:7"):
            return tf.tanh(x)

    with pytest.raises(tf.errors.InvalidArgumentError, match="CPU:7"):
        trace(fn, rows())


def test_a_trace_within_a_function_within_a_trace_or_of_nothing_is_refused() -> None:
    with pytest.raises(EvidenceError, match="already being recorded"):
        trace(lambda: trace(lambda: None))
    with pytest.raises(EvidenceError, match=r"inside a tf\.function"):
        tf.function(lambda: trace(lambda: None), autograph=False)()
    with pytest.raises(EvidenceError, match="3 is not callable"):
        trace(3)  # type: ignore[call-overload]
    assert where(trace(tf.tanh, rows()), "Tanh") == ["CPU:0"]
