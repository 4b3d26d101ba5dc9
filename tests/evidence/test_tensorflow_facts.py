"""What the evidence rests on. These are facts of one version of TensorFlow; where one changes, this says which."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from sample_programs import dense, function, on, over_two, rows, taped, variable, where
from tensorflow.python.eager import context

from harness import Devices, trace

pytestmark = pytest.mark.devices(min=4, kind="logical-cpu")


def collected(fn: Any, *arguments: Any, clear: bool = True) -> list[Any]:
    """The graphs that TensorFlow hands over for one call."""
    runtime = context.context()
    if clear:
        runtime.clear_kernel_cache()
    runtime.enable_graph_collection()
    try:
        fn(*arguments)
        return list(runtime.export_run_metadata().function_graphs)
    finally:
        runtime.disable_graph_collection()


def placed(graphs: list[Any]) -> dict[str, str]:
    return {
        node.op: node.device.rpartition("/device:")[2]
        for graph in graphs
        for part in graph.partition_graphs
        for node in part.node
    }


def test_the_device_of_a_result_is_no_evidence() -> None:
    @function()
    def fn(x: Any) -> Any:
        with on(2):
            return tf.tanh(x)

    assert fn(rows()).device.endswith("CPU:0")
    assert where(trace(fn, rows()), "Tanh") == ["CPU:2"]


def test_the_backing_device_is_right_for_floats_and_not_for_text() -> None:
    with on(2):
        assert tf.tanh(rows()).backing_device.endswith("CPU:2")
        assert tf.strings.join(["a", "b"]).backing_device.endswith("CPU:0")
    found = trace(lambda: _text_on(2))
    assert where(found, "StringJoin") == ["CPU:2"]


def _text_on(device: int) -> Any:
    with on(device):
        return tf.strings.join(["a", "b"])


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_tape_plays_everything_back_where_gradient_is_called(mode: str) -> None:
    weights, bias = variable(3, 5), variable(5)
    step = taped(over_two(dense(weights, bias)), [weights, bias])
    found = trace(step if mode == "eager" else tf.function(step), rows())
    assert where(found, "Tanh") == ["CPU:1", "CPU:2"]
    assert where(found, "TanhGrad", "gradient") == ["CPU:0", "CPU:0"]


def test_gradients_in_a_graph_still_go_where_the_forward_op_is() -> None:
    @function()
    def fn(x: Any) -> Any:
        return tf.gradients(over_two(tf.tanh)(x), x)

    assert where(trace(fn, rows()), "TanhGrad", "gradient") == ["CPU:1", "CPU:2"]


def test_soft_placement_runs_an_op_elsewhere_without_a_word(devices: Devices) -> None:
    def absent() -> Any:
        with tf.device("/CPU:9"):
            return tf.tanh(rows())

    with pytest.raises(tf.errors.InvalidArgumentError, match="CPU:9"):
        absent()
    tf.config.set_soft_device_placement(True)
    try:
        (op,) = [op for op in trace(absent).ops if op.type == "Tanh"]
    finally:
        tf.config.set_soft_device_placement(False)
    assert op.requested is not None
    assert op.device is not None
    assert (op.requested.short, op.device.short) == ("CPU:9", "CPU:0")


def test_a_compiled_function_ignores_the_scopes_inside() -> None:
    @function(jit_compile=True)
    def fn(x: Any) -> Any:
        with on(2):
            return tf.tanh(x)

    (op,) = [op for op in trace(fn, rows()).ops if op.type == "Tanh"]
    assert op.requested is not None
    assert op.device is not None
    assert (op.requested.short, op.device.short) == ("CPU:2", "CPU:0")


def test_a_scope_around_the_call_is_the_default_for_the_ops_inside() -> None:
    @function()
    def fn(x: Any) -> Any:
        with on(2):
            x = tf.tanh(x)
        return tf.cumsum(x)

    with on(1):
        found = trace(fn, rows())
    assert (where(found, "Tanh"), where(found, "Cumsum")) == (["CPU:2"], ["CPU:1"])


def test_the_optimizer_runs_a_row_of_elementwise_ops_where_the_last_of_them_is() -> None:
    @function()
    def fn(x: Any) -> Any:
        with on(1):
            x = tf.tanh(x)
        with on(2):
            return tf.exp(x)

    (graph,) = collected(fn, rows())
    assert placed([graph])["_UnaryOpsComposition"] == "CPU:2"
    found = trace(fn, rows())
    names = {op.type: op for op in found.ops}
    assert (where(found, "Tanh"), where(found, "Exp")) == (["-"], ["CPU:2"])
    assert (names["Tanh"].executed_type, names["Exp"].executed_type) == (None, "_UnaryOpsComposition")


def test_what_ran_before_is_not_collected_again_unless_the_caches_are_cleared() -> None:
    fn = tf.function(over_two(tf.tanh))
    assert "Tanh" in placed(collected(fn, rows()))
    assert collected(fn, rows(), clear=False) == []
    assert "Tanh" in placed(collected(fn, rows()))


def test_an_eager_op_is_collected_as_a_graph_of_its_own() -> None:
    with on(2):
        (graph,) = collected(tf.exp, rows())
    assert [node.name for node in graph.pre_optimization_graph.node if node.op == "Exp"] == ["Exp"]
    assert placed([graph])["Exp"] == "CPU:2"


def test_a_compiled_function_alone_is_not_collected_at_all() -> None:
    assert collected(tf.function(lambda x: tf.tanh(x) * 2.0, jit_compile=True), rows()) == []


def test_backward_ops_carry_the_name_of_their_forward_op() -> None:
    weights = variable(3, 5)
    fn = tf.function(taped(lambda x: tf.tanh(tf.matmul(x, weights)), [weights]))
    (graph,) = collected(fn, rows())
    names = {node.name for node in graph.pre_optimization_graph.node}
    # In a scope of its own where the forward op had one, and in none where it had none.
    assert {"gradient_tape/MatMul/MatMul", "gradient_tape/TanhGrad"} <= names


def test_gradients_of_a_function_are_named_after_each_op() -> None:
    fn = tf.function(lambda x: tf.tanh(x) * 2.0)
    graphs = collected(taped(fn), rows())
    names = {node.name for graph in graphs for node in graph.pre_optimization_graph.node}
    assert {"gradients/Tanh_grad/TanhGrad", "gradients/mul_grad/Mul"} <= names


def test_a_fused_kernel_stands_under_the_name_of_its_last_op() -> None:
    weights, bias = variable(3, 5), variable(5)
    fn = tf.function(lambda x: tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), bias)))
    (graph,) = collected(fn, rows())
    executed = {node.name: node.op for part in graph.partition_graphs for node in part.node}
    assert "MatMul" not in executed
    assert "FusedMatMul" in executed["Relu"]


def test_a_copy_between_devices_is_a_send_under_the_name_of_its_tensor() -> None:
    (graph,) = collected(tf.function(over_two(tf.tanh)), rows())
    sends = [node for part in graph.partition_graphs for node in part.node if node.op == "_Send"]
    assert {node.input[0] for node in sends} == {"split", "split:1", "Tanh", "Tanh_1"}


def test_constants_made_for_eager_ops_are_kept_unless_the_caches_are_cleared() -> None:
    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            upper, _ = tf.split(x, 2)
        return tape.gradient(upper, x)

    first, second = trace(fn, rows()), trace(fn, rows())
    assert where(first, "Fill", "constant") == where(second, "Fill", "constant") != []
