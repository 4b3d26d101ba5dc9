"""What a trace tells of how data flows: outputs, arguments, branches, work; and of what did not run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Trace, trace, verify
from harness.evidence.op import Op


def _inputs(found: Trace, op_type: str) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    return [(op.inputs, op.ports) for op in found.ops if op.type == op_type]


@pytest.mark.parametrize("graph", [False, True])
def test_inputs_say_which_output_or_argument_they_are(graph: bool, tmp_path: Path) -> None:
    inner = tf.function(tf.tanh)

    def fn(x: Any, y: Any) -> Any:
        first, second = tf.split(x, 2)
        return inner(second) * first + tf.exp(y)

    found = trace(tf.function(fn) if graph else fn, tf.ones([4, 2]), tf.ones([2, 2]))
    prefix = "fn/" if graph else ""
    (split,) = (op.name for op in found.ops if op.type == "Split")
    assert split == f"{prefix}split" if graph else "Split"
    (tanh,) = _inputs(found, "Tanh")
    assert tanh == ((split,), (1,))
    (times,) = _inputs(found, "Mul")
    assert times[0][1] == split
    assert not any(times[1])
    assert [inputs for inputs, _ in _inputs(found, "Exp")] == [("argument[1]",)]
    assert Trace.load(found.save(tmp_path / "trace.json")).ops == found.ops


def test_what_an_op_waits_for_is_no_data_of_it() -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def fn(x: Any) -> Any:
        with tf.control_dependencies([tf.exp(x)]):
            return tf.tanh(x)

    ((inputs, ports),) = _inputs(trace(fn, tf.ones([3])), "Tanh")
    assert inputs == ("argument[0]", "fn/Exp")
    assert ports == (0, -1)


@pytest.mark.parametrize("graph", [False, True])
def test_a_product_is_more_work_than_a_sum(graph: bool) -> None:
    def fn(x: Any) -> Any:
        return tf.matmul(x, x) + 1.0

    found = trace(tf.function(fn) if graph else fn, tf.ones([30, 30]))
    by_type = {op.type: found.work[op.name] for op in found.ops if op.name in found.work}
    assert by_type["MatMul"] == pytest.approx(2 * 30**3)
    assert by_type["AddV2"] == 30**2


def test_an_op_or_a_function_that_raised_is_not_listed(devices: Devices) -> None:
    def reshaped(x: Any) -> Any:
        return tf.math.asinh(tf.reshape(x, [tf.shape(x)[0] // 2, 7]))

    function = tf.function(reshaped, input_signature=[tf.TensorSpec([None], tf.float32)])

    def fn(x: Any) -> Any:
        with contextlib.suppress(tf.errors.InvalidArgumentError), tf.device(devices[1].name):
            tf.linalg.inv(tf.zeros([2, 2]))
        with contextlib.suppress(tf.errors.InvalidArgumentError), tf.device(devices[2].name):
            function(x)
        return tf.tanh(x)

    assert [op.type for op in trace(fn, tf.ones([4])).ops if op.role == "forward"] == ["Tanh"]
    ran = {op.type for op in trace(lambda: tf.linalg.inv(tf.eye(2) * 2.0)).ops}
    assert "MatrixInverse" in ran


@pytest.mark.parametrize("caught", [True, False])
def test_what_raised_is_no_part_of_the_next_function(devices: Devices, caught: bool) -> None:
    """TensorFlow reports its graph with that of the next function, of the same trace or of the next one."""
    other = tf.function(lambda x: tf.reduce_sum(tf.square(x)))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])  # type: ignore[untyped-decorator]
    def raising(x: Any) -> Any:
        with tf.device(devices[1].name):
            return tf.reshape(tf.exp(x), [tf.shape(x)[0] // 3, 7])

    def fn(x: Any) -> Any:
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            raising(x)
        return other(x)

    if not caught:
        with pytest.raises(tf.errors.InvalidArgumentError):
            trace(raising, tf.ones([5]))
    found = trace(fn if caught else other, tf.ones([5]))
    ops = [(op.type, op.device.index) for op in found.ops if op.role == "forward" and op.device is not None]
    assert ops == [("Square", 0), ("Sum", 0)], found


def test_an_op_in_a_branch_names_its_condition() -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def fn(x: Any) -> Any:
        return tf.cond(x[0] > 0.0, lambda: tf.exp(x), lambda: tf.sin(x)) + tf.tanh(x)

    found = trace(fn, tf.ones([3]))
    branches = {op.type: op.branch for op in found.ops if op.type in ("Exp", "Sin", "Tanh")}
    assert branches == {"Exp": "fn/cond", "Sin": "fn/cond", "Tanh": None}
    assert "unknown whether 2 ops in branches of conditions ran" in str(found)


@pytest.mark.devices(min=3, kind="logical-cpu")  # Python functions have no kernel on a GPU, or one that runs there
@pytest.mark.parametrize("graph", [False, True])
def test_python_functions_run_on_the_host(devices: Devices, graph: bool) -> None:
    def fn(x: Any) -> Any:
        with tf.device(devices[2].name):
            return tf.numpy_function(np.cos, [tf.tanh(x)], tf.float32) + tf.py_function(np.sin, [x], tf.float32)

    found = trace(tf.function(fn) if graph else fn, tf.ones([3]))

    def places(types: tuple[str, ...]) -> set[Any]:
        return {op.device and op.device.short for op in found.ops if op.type in types}

    assert places(("PyFunc", "PyFuncStateless", "EagerPyFunc")) == {"CPU:0"}
    assert places(("Tanh",)) == {"CPU:2"}


def test_old_traces_have_no_ports(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(
        '{"schema_version": 1, "ops": [{"name": "a", "type": "Exp", "executed_type": null, "device": null, '
        '"requested": null, "role": "forward", "inputs": ["b"]}], "transfers": []}'
    )
    assert Trace.load(path).ops == (Op("a", "Exp", None, None, None, "forward", inputs=("b",)),)


def test_a_mesh_of_dtensor_shows_what_ran_on_each_of_its_devices(devices: Devices) -> None:
    from tensorflow.experimental import dtensor

    mesh = dtensor.create_mesh([("batch", 4)], devices=[device.parsed.short for device in devices])
    layout = dtensor.Layout(["batch", dtensor.UNSHARDED], mesh)
    weights = np.ones((6, 3), np.float32)

    def reference(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, weights))

    def parallel(x: Any) -> Any:
        shards = dtensor.pack([tf.identity(part) for part in tf.split(x, 4)], layout)
        copies = dtensor.pack([tf.constant(weights)] * 4, dtensor.Layout.replicated(mesh, 2))
        return tf.concat(dtensor.unpack(tf.tanh(tf.matmul(shards, copies))), 0)

    inputs = {"x": np.ones((8, 6), np.float32)}
    found = verify(parallel, reference, inputs, devices=devices, modes=("eager",))
    assert found.findings == ()
    assert found.passed
    ran = {(op.type, op.device.short) for op in found.traces["eager"].ops if op.device is not None}
    assert ran >= {("MatMul", device.parsed.short) for device in devices}
