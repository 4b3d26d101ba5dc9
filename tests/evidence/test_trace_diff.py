from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf
from sample_programs import on, over_two, rows, taped

from harness import DeviceName, Devices, Trace, make_parallel, trace
from harness.evidence.op import Op, Transfer

pytestmark = pytest.mark.devices(min=4, kind="logical-cpu")

CPU = [DeviceName("localhost", 0, 0, "CPU", index) for index in range(3)]
TANH = Op("Tanh", "Tanh", "Tanh", CPU[1], None, "forward")
GRADIENT = Op("TanhGrad", "TanhGrad", "TanhGrad", CPU[1], None, "gradient", "Tanh")
COPY = Transfer(CPU[0], CPU[1], "x", 24)


def test_a_trace_does_not_differ_from_itself() -> None:
    found = Trace((TANH, GRADIENT), (COPY, COPY))
    assert not found.diff(found)
    assert str(found.diff(found)) == "no difference"


def test_an_op_that_moved_is_named_with_both_devices() -> None:
    found = Trace((TANH, GRADIENT), ()).diff(Trace((TANH, replace(GRADIENT, device=CPU[0])), ()))
    assert found
    assert str(found) == "TanhGrad (TanhGrad) moved from CPU:1 to CPU:0"
    assert (found.moved[0].before, found.moved[0].after.device) == (GRADIENT, CPU[0])


def test_an_op_that_the_optimizer_removed_moved_nowhere() -> None:
    found = Trace((TANH,), ()).diff(Trace((replace(TANH, device=None, executed_type=None),), ()))
    assert str(found) == "Tanh (Tanh) moved from CPU:1 to nowhere (optimised away)"


def test_ops_that_came_and_went() -> None:
    found = Trace((TANH,), ()).diff(Trace((GRADIENT,), ()))
    assert str(found).splitlines() == [
        "TanhGrad (TanhGrad) is new, on CPU:1",
        "Tanh (Tanh) is gone; it was on CPU:1",
    ]


def test_copies_are_counted() -> None:
    found = Trace((), (COPY, COPY)).diff(Trace((), (COPY, replace(COPY, size_bytes=None))))
    assert str(found).splitlines() == [
        "copy of x (unknown size) from CPU:0 to CPU:1 is new",
        "copy of x (24 bytes) from CPU:0 to CPU:1 is gone",
    ]


def test_constants_and_control_ops_are_left_out() -> None:
    constant = Op("Const", "Const", "Const", CPU[0], None, "constant")
    identity = Op("Identity", "Identity", "Identity", CPU[0], None, "control")
    assert not Trace((TANH,), ()).diff(Trace((TANH, constant, identity), ()))
    unknown = Op("Exp", "Exp", None, None, None, "forward")
    assert not Trace((TANH,), ()).diff(Trace((TANH, unknown), ()))


def test_a_golden_trace_shows_the_backward_pass_that_moved(devices: Devices) -> None:
    x = rows()

    def step(colocate_gradients: bool) -> Any:
        parallel = make_parallel(lambda x: tf.tanh(x) * 2.0, devices[1:3], colocate_gradients=colocate_gradients)
        return tf.function(taped(lambda x: parallel(x=x)))

    golden = trace(step(True), x)
    assert not golden.diff(trace(step(True), x))
    grads = {"TanhGrad": Trace(tuple(op for op in golden.ops if op.type == "TanhGrad"), ())}
    moved = trace(step(False), x)
    other = Trace(tuple(op for op in moved.ops if op.type == "TanhGrad"), ())
    assert {op.device for op in grads["TanhGrad"].ops} == {CPU[1], CPU[2]}
    assert {op.device for op in other.ops} == {CPU[0]}
    assert "moved from CPU:1 to CPU:0" in str(golden.diff(moved))


def test_a_scope_that_was_lost_is_a_move_and_new_copies() -> None:
    def right(x: Any) -> Any:
        with on(1):
            x = tf.tanh(x)
            return tf.exp(x)

    def wrong(x: Any) -> Any:
        with on(1):
            x = tf.tanh(x)
        return tf.exp(x)

    text = str(trace(right, rows()).diff(trace(wrong, rows())))
    assert "Exp (Exp) moved from CPU:1 to CPU:0" in text
    assert "copy of Tanh (48 bytes) from CPU:1 to CPU:0 is new" in text
    assert not trace(over_two(tf.tanh), rows()).diff(trace(over_two(tf.tanh), rows()))
