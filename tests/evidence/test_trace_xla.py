"""What XLA compiles is one unit on one device, and says so."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from sample_programs import by_name, function, gradient_ops, on, over_two, rows, taped, variable

from harness import trace

pytestmark = pytest.mark.devices(min=4, kind="logical-cpu")


def test_a_compiled_function_is_one_unit_where_it_was_called() -> None:
    @function(jit_compile=True)
    def fn(x: Any) -> Any:
        with on(2):
            return tf.tanh(x) * 2.0

    with on(1):
        found = trace(fn, rows())
    names = by_name(found)
    tanh = names["fn/Tanh"]
    assert (tanh.unit, tanh.executed_type) == ("fn", "XlaCluster")
    assert tanh.device is not None
    assert tanh.requested is not None
    assert (tanh.device.short, tanh.requested.short) == ("CPU:1", "CPU:2")
    assert {op.unit for op in found.ops if op.name.startswith("fn/")} == {"fn"}


def test_a_function_called_by_a_compiled_one_is_a_part_of_the_unit() -> None:
    inner = tf.function(lambda x: tf.tanh(x) + 1.0)
    fn = tf.function(lambda x: tf.exp(inner(x)), jit_compile=True)
    found = trace(fn, rows())
    assert {op.unit for op in found.ops if op.type in ("Tanh", "Exp")} == {"<lambda>"}
    assert len([op for op in found.ops if op.type in ("Tanh", "Exp")]) == 2


def test_a_compiled_function_within_a_function_is_a_unit_for_each_call() -> None:
    inner = tf.function(lambda x: tf.tanh(x) * 2.0, jit_compile=True)
    found = trace(tf.function(over_two(inner)), rows())
    units = {op.unit: op.device.short for op in found.ops if op.type == "Tanh" and op.device}
    assert sorted(units.values()) == ["CPU:1", "CPU:2"]
    assert len(units) == 2
    assert [op.unit for op in found.ops if op.type == "ConcatV2"] == [None]


def test_the_gradient_of_a_compiled_function_is_a_unit_of_its_own() -> None:
    weights = variable(3, 5)
    inner = tf.function(lambda x: tf.tanh(tf.matmul(x, weights)), jit_compile=True)
    for step in (taped(inner, [weights]), tf.function(taped(inner, [weights]))):
        found = trace(step, rows())
        names = by_name(found)
        backward = gradient_ops(found)
        assert {op.executed_type for op in backward} == {"XlaCluster"}
        assert {names[op.forward].type for op in backward if op.forward} == {"Tanh", "MatMul"}
        assert len({op.unit for op in backward}) == 1
        assert {op.unit for op in backward} != {names[op.forward or ""].unit for op in backward}


def test_a_training_step_compiled_whole_is_one_unit_with_its_gradient() -> None:
    weights = variable(3, 5)
    step = tf.function(taped(lambda x: tf.tanh(tf.matmul(x, weights)), [weights]), jit_compile=True)
    found = trace(step, rows())
    assert {op.unit for op in found.ops if op.type in ("Tanh", "TanhGrad", "MatMul")} == {"step"}
    assert by_name(found)["step/gradient_tape/TanhGrad"].forward == "step/Tanh"


def test_the_same_function_without_xla_is_no_unit() -> None:
    found = trace(tf.function(lambda x: tf.tanh(x) * 2.0), rows())
    assert {op.unit for op in found.ops} == {None}
