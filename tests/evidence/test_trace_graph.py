"""Functions: as the user wrote them, where they were placed, whatever the optimizer made of them."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from sample_programs import (
    branch,
    by_name,
    case,
    dense,
    facts,
    function,
    kind,
    loop,
    mapped,
    on,
    over_two,
    place,
    rows,
    taped,
    variable,
    where,
    with_autograph,
)

from harness import DeviceName, Trace, trace

pytestmark = pytest.mark.devices(min=4, kind=["logical-cpu", "gpu"])


def test_names_types_devices_and_inputs_of_a_function() -> None:
    @function()
    def fn(x: Any) -> Any:
        with on(2):
            h = tf.matmul(x, x, transpose_b=True)
        return tf.reduce_sum(h, 1)

    names = by_name(trace(fn, rows()))
    matmul = names["fn/MatMul"]
    assert (matmul.type, matmul.executed_type) == ("MatMul", "MatMul")
    assert matmul.device == DeviceName("localhost", 0, 0, kind(), 2)
    assert matmul.requested == DeviceName(kind=kind(), index=2)
    assert names["fn/Sum"].device == DeviceName("localhost", 0, 0, kind(), 0)
    assert names["fn/Sum"].requested is None
    assert "fn/MatMul" in names["fn/Sum"].inputs


def test_a_nested_function_is_opened_where_it_is_called() -> None:
    inner = tf.function(lambda x: tf.tanh(tf.matmul(x, x, transpose_b=True)))
    found = trace(tf.function(over_two(inner)), rows())
    assert where(found, "Tanh") == where(found, "MatMul") == ["CPU:1", "CPU:2"]
    names = by_name(found)
    (joined,) = [op for op in found.ops if op.type == "ConcatV2"]
    joined_types = {names[name].type for name in joined.inputs if "Call" in name}
    assert joined_types <= {"Tanh", "Identity"}, "what is joined is what the functions made, not their calls"


def test_a_function_called_twice_on_different_devices_is_there_twice() -> None:
    inner = tf.function(lambda x: tf.cumsum(tf.tanh(x)))

    def fn(x: Any) -> Any:
        results = []
        for device in (1, 2, 1):
            with on(device):
                results.append(inner(x))
        return results

    found = trace(fn, rows())
    assert where(found, "Cumsum") == ["CPU:1", "CPU:2", "CPU:1"]
    assert facts(trace(fn, rows())) == facts(found)


def test_a_function_called_with_tensors_of_different_devices_is_placed_for_each() -> None:
    inner = tf.function(lambda x: tf.cumsum(x))
    with on(1):
        there = tf.identity(rows())
    found = trace(lambda: [inner(rows()), inner(there), inner(rows())])
    assert len(where(found, "Cumsum")) == 3
    assert [(place(t.source), t.bytes) for t in found.transfers] == [("CPU:1", 48)]


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: loop(variable(3, 3)), {"Tanh": ["CPU:2"], "MatMul": ["CPU:2"]}),
        (lambda: branch(variable(3, 5)), {"Exp": ["CPU:1"], "Sin": ["CPU:1"], "MatMul": ["CPU:1", "CPU:1"]}),
        (lambda: case, {"Exp": ["CPU:3"], "Sin": ["CPU:3"]}),
        (lambda: with_autograph, {"Tanh": ["CPU:3"], "Exp": ["CPU:0"]}),
        (lambda: mapped, {"Tanh": ["CPU:2"]}),
    ],
)
def test_loops_and_branches_are_opened(make: Any, expected: dict[str, list[str]]) -> None:
    fn = tf.function(make())
    found = trace(fn, rows())
    assert {op_type: where(found, op_type) for op_type in expected} == expected
    assert facts(trace(fn, rows())) == facts(found)


def test_a_loop_within_a_branch_within_a_function_within_a_loop() -> None:
    @function()
    def inner(x: Any) -> Any:
        if tf.reduce_sum(x) > -1e9:
            for _ in tf.range(2):
                with on(3):
                    x = tf.cumsum(x)
        return x

    @function()
    def outer(x: Any) -> Any:
        for _ in tf.range(2):
            x = inner(x)
        return x

    assert where(trace(outer, rows()), "Cumsum") == ["CPU:3"]


@pytest.mark.devices(min=4, kind="logical-cpu")  # TensorFlow fuses these ops on CPUs alone
def test_a_fused_kernel_is_where_all_the_ops_that_it_took_in_are() -> None:
    weights, bias = variable(3, 5), variable(5)

    @function()
    def fn(x: Any) -> Any:
        with on(2):
            return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), bias))

    found = [op for op in trace(fn, rows()).ops if op.type in ("MatMul", "BiasAdd", "Relu")]
    assert {place(op.device) for op in found if op.device} == {"CPU:2"}
    assert len({op.executed_type for op in found}) == 1
    assert "FusedMatMul" in (found[0].executed_type or "")


def test_fused_convolutions_and_sums_are_seen_too() -> None:
    kernel, bias = variable(2, 2, 3, 4), variable(4)

    @function()
    def fn(x: Any) -> Any:
        with on(1):
            return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias))

    @function()
    def total(x: Any) -> Any:
        with on(1):
            return tf.cumsum(x) + tf.cumsum(x, 1) + x + tf.abs(x)

    assert where(trace(fn, tf.ones([2, 5, 5, 3])), "Conv2D") == ["CPU:1"]
    assert where(trace(total, rows()), "AddV2") == ["CPU:1"] * 3


def test_what_the_optimizer_computed_itself_ran_nowhere() -> None:
    @function()
    def fn(x: Any) -> Any:
        with on(2):
            return tf.cumsum(x) + tf.matmul(tf.ones([4, 3]), tf.ones([3, 3]))

    found = trace(fn, rows())
    (folded,) = [op for op in found.ops if op.type == "MatMul"]
    assert (folded.device, folded.executed_type) == (None, None)
    assert folded in found.unproven
    assert where(found, "Cumsum") == ["CPU:2"]


def test_an_op_that_the_optimizer_left_out_is_no_evidence_of_another_device() -> None:
    weights, bias = variable(3, 5), variable(5)

    @function()
    def fn(x: Any) -> Any:
        with on(1):
            x = x * 1.0  # removed
        with on(2):
            return tf.nn.bias_add(tf.matmul(x, weights), bias)

    found = [op for op in trace(fn, rows()).ops if op.type == "Mul"]
    assert {place(op.device) for op in found if op.device} <= {"CPU:1"}


def sizes(found: Trace) -> list[tuple[str, str, int | None]]:
    return sorted((place(t.source), place(t.destination), t.bytes) for t in found.transfers)


@pytest.mark.parametrize("known", [True, False])
def test_transfers_of_a_function_have_the_sizes_of_what_it_was_called_with(known: bool) -> None:
    signature = None if known else [tf.TensorSpec([None, 3])]
    found = trace(tf.function(over_two(tf.tanh), input_signature=signature), rows())
    assert sizes(found) == [
        ("CPU:0", "CPU:1", 24),
        ("CPU:0", "CPU:2", 24),
        ("CPU:1", "CPU:0", 24),
        ("CPU:2", "CPU:0", 24),
    ]
    assert {t.tensor.partition("/")[2] for t in found.transfers} == {"split", "split:1", "Tanh", "Tanh_1"}


def test_variables_that_are_read_on_another_device_are_transfers() -> None:
    weights = variable(3, 5)

    @function()
    def fn(x: Any) -> Any:
        with on(2):
            return tf.matmul(x, weights)

    assert ("CPU:0", "CPU:2", 60) in sizes(trace(fn, rows()))


def test_a_size_that_depends_on_values_is_not_known_and_signals_are_no_transfers() -> None:
    @function()
    def fn(x: Any) -> Any:
        with on(1):
            kept = tf.boolean_mask(x, x[:, 0] > 0.0)
        with on(2):
            return tf.cumsum(kept)

    found = trace(fn, rows())
    assert ("CPU:1", "CPU:2", None) in sizes(found)
    for transfer in trace(tf.function(branch(variable(3, 5))), rows()).transfers:
        assert "ctrl" not in transfer.tensor


def test_gradients_carry_the_scope_they_were_asked_for_in() -> None:
    weights, bias = variable(3, 5), variable(5)

    @function()
    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = over_two(dense(weights, bias))(x)
        with on(3):
            return tape.gradient(y, weights)

    found = trace(fn, rows())
    assert where(found, "TanhGrad", "gradient") == ["CPU:3", "CPU:3"]
    assert {place(op.requested) for op in found.ops if op.type == "TanhGrad" and op.requested} == {"CPU:3"}


def test_a_function_that_is_not_inlined_hides_where_its_ops_ran() -> None:
    inner = tf.function(lambda x: tf.cumsum(tf.tanh(x)), experimental_attributes={"_noinline": True})

    @function()
    def fn(x: Any) -> Any:
        with on(2):
            return inner(x)

    (op,) = [op for op in trace(fn, rows()).ops if op.type == "Cumsum"]
    assert op.device is None
    assert op.requested is not None
    assert place(op.requested) == "CPU:2"


def test_ops_that_python_runs_within_a_graph_are_known_from_their_kernels() -> None:
    @function()
    def fn(x: Any) -> Any:
        with on(1):
            return tf.py_function(lambda value: tf.sin(value) * 2.0, [x], tf.float32)

    found = trace(fn, rows())
    assert [op.device.short for op in found.ops if op.type == "EagerPyFunc" and op.device] == ["CPU:0"]
    assert where(found, "Sin") == ["CPU:0"]


def test_a_graph_with_a_tape_has_the_roles_of_a_training_step() -> None:
    weights = variable(3, 5)

    @function()
    def fn(x: Any) -> Any:
        result, (_, grad) = taped(lambda part: tf.tanh(tf.matmul(part, weights)), [weights])(x)
        weights.assign_sub(0.1 * grad)
        return result

    roles = {op.type: op.role for op in trace(fn, rows()).ops}
    assert (roles["Tanh"], roles["TanhGrad"], roles["AssignSubVariableOp"]) == ("forward", "gradient", "update")
    assert roles["ReadVariableOp"] == "variable"
