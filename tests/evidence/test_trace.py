from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, EvidenceError, Trace, make_parallel, trace
from harness.errors import InvalidRecord
from harness.evidence.op import Op

Case = tuple[Callable[..., Any], Callable[..., Any], Any]


@pytest.fixture
def towers(devices: Devices) -> Case:
    """A hand-written split and concat over four towers, one training step of it, and a batch."""
    weights = tf.Variable(tf.random.stateless_normal([3, 5], [1, 2]))

    def forward(x: Any) -> Any:
        parts = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                parts.append(tf.nn.bias_add(tf.tanh(tf.matmul(part, weights)), tf.ones([5])))
        with tf.device(devices.host):
            return tf.concat(parts, 0)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = forward(x)
        return tape.gradient(y, weights)

    return forward, step, tf.random.stateless_normal([8, 3], [3, 4])


def of(found: Trace, op_type: str, role: str | None = None) -> list[Op]:
    return [op for op in found.ops if op.type == op_type and role in (None, op.role)]


def places(ops: list[Op]) -> list[str]:
    return [op.device.short if op.device else "nowhere" for op in ops]


def at(index: int) -> str:
    """The device of this index: of the GPUs where there are any, which is where TensorFlow runs ops by default."""
    return f"{'GPU' if tf.config.list_logical_devices('GPU') else 'CPU'}:{index}"


def all_four() -> list[str]:
    return [at(index) for index in range(4)]


@pytest.mark.parametrize("graph", [False, True])
def test_each_forward_op_is_seen_where_its_tower_is(towers: Case, graph: bool) -> None:
    forward, _, x = towers
    found = trace(tf.function(forward) if graph else forward, x)
    for op_type in ("MatMul", "Tanh", "BiasAdd"):
        assert places(of(found, op_type)) == all_four()
        assert [op.requested.index for op in of(found, op_type) if op.requested] == [0, 1, 2, 3]
    assert places(of(found, "ConcatV2")) == ["CPU:0"]
    assert {op.role for op in of(found, "MatMul")} == {"forward"}
    assert found.outputs.shape == (8, 5)


@pytest.mark.parametrize("graph", [False, True])
def test_each_backward_op_is_linked_with_its_own_forward_op(towers: Case, graph: bool) -> None:
    _, step, x = towers
    found = trace(tf.function(step) if graph else step, x)
    for forward_type, gradient_type in (("Tanh", "TanhGrad"), ("MatMul", "MatMul")):
        forwards = of(found, forward_type, "forward")
        gradients = of(found, gradient_type, "gradient")
        assert places(forwards) == all_four()
        assert places(gradients) == [at(0)] * 4, "the tape runs the backward pass on one device"
        assert sorted(op.forward or "" for op in gradients) == sorted(op.name for op in forwards)


def test_the_second_trace_of_a_function_sees_what_the_first_saw(towers: Case) -> None:
    _, step, x = towers
    for call in (step, tf.function(step)):
        first, second = trace(call, x), trace(call, x)
        assert first.ops == second.ops
        assert not first.diff(second)
        with pytest.raises(EvidenceError, match="diff: other=None; accepted: a trace"):
            first.diff(None)  # type: ignore[arg-type]


def test_a_function_that_was_run_before_is_seen_and_its_gradients_are_linked(towers: Case) -> None:
    _, step, x = towers
    call = tf.function(step)
    call(x)
    found = trace(call, x)
    by_name = {op.name: op for op in found.ops}
    gradients = of(found, "TanhGrad", "gradient")
    assert [places([by_name[op.forward]])[0] for op in gradients if op.forward] == all_four()


def test_the_device_of_a_tensor_is_no_evidence(devices: Devices) -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def elsewhere(x: Any) -> Any:
        with tf.device(devices[2].name):
            return tf.tanh(x)

    found = trace(elsewhere, tf.ones([4, 3]))
    assert found.outputs.device.endswith(at(0))
    assert places(of(found, "Tanh")) == [at(2)]


@pytest.mark.devices(min=4, kind="logical-cpu")  # XLA has no compiler for software GPUs
def test_an_xla_cluster_is_one_unit_on_one_device(devices: Devices) -> None:
    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def cluster(x: Any) -> Any:
        with tf.device(devices[2].name):
            return tf.tanh(x) * 2.0

    found = trace(cluster, tf.ones([4, 3]))
    (op,) = of(found, "Tanh")
    assert op.device is not None
    assert op.device.short == "CPU:0"
    assert op.requested is not None
    assert op.requested.index == 2
    assert op.unit is not None
    assert op.executed_type == "XlaCluster"


def test_branches_loops_and_nested_functions_are_opened(devices: Devices) -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def inner(x: Any) -> Any:
        with tf.device(devices[3].name):
            return tf.exp(x)

    @tf.function  # type: ignore[untyped-decorator]
    def outer(x: Any) -> Any:
        for _ in tf.range(3):
            with tf.device(devices[1].name):
                x = tf.tanh(x)
        if tf.reduce_sum(x) > 0.0:
            with tf.device(devices[2].name):
                x = tf.sin(x)
        return inner(x)

    found = trace(outer, tf.ones([4, 3]))
    assert places(of(found, "Tanh")) == [at(1)]
    assert places(of(found, "Sin")) == [at(2)]
    assert places(of(found, "Exp")) == [at(3)]


def test_work_of_another_thread_is_seen(devices: Devices) -> None:
    def work() -> None:
        with tf.device(devices[2].name):
            tf.math.erf(tf.ones([3]))

    def start() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert places(of(trace(start), "Erf")) == [at(2)]


def test_transfers_have_source_destination_and_size(devices: Devices) -> None:
    parallel = make_parallel(tf.tanh, devices[1:3])
    with tf.device(devices.host):
        x = tf.ones([4, 3])
    found = trace(parallel, x=x)
    pairs = {(transfer.source.short, transfer.destination.short): transfer.bytes for transfer in found.transfers}
    assert pairs == {
        ("CPU:0", at(1)): 24,
        ("CPU:0", at(2)): 24,
        (at(1), "CPU:0"): 24,
        (at(2), "CPU:0"): 24,
    }


def test_keras_fit_is_traced_with_its_updates(devices: Devices) -> None:
    model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(2, activation="tanh")])
    model.compile("sgd", "mse")
    found = trace(model.fit, tf.ones([8, 3]), tf.ones([8, 2]), verbose=0)
    assert of(found, "MatMul", "forward")
    assert of(found, "MatMul", "gradient")
    assert {op.role for op in found.ops} >= {"update", "gradient", "forward"}


def test_a_trace_is_saved_loaded_and_compared(towers: Case, devices: Devices, tmp_path: Path) -> None:
    forward, _, x = towers
    golden = trace(forward, x).save(tmp_path / "golden.json")
    assert Trace.load(golden) == trace(forward, x)
    moved = Trace.load(golden).diff(trace(lambda x: tf.tanh(tf.matmul(x, tf.ones([3, 5]))), x))
    assert moved
    assert "is gone" in str(moved)
    split = make_parallel(tf.tanh, devices)
    turned = make_parallel(tf.tanh, devices[::-1])
    text = str(trace(split, x=x).diff(trace(turned, x=x)))
    assert f"Tanh (Tanh) moved from {at(0)} to {at(3)}" in text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 99}', '{"schema_version": 1, "ops": [{}]}'])
def test_a_file_that_is_no_trace_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InvalidRecord) as caught:
        Trace.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidRecord, match="No such file"):
        Trace.load(tmp_path / "absent.json")


def test_the_table_lists_the_ops_of_each_device(towers: Case) -> None:
    forward, _, x = towers
    text = str(trace(forward, x))
    assert all(device in text for device in all_four())
    assert "MatMul" in text
    assert "transfer" in text


def test_an_error_of_the_function_comes_through_and_leaves_nothing_behind(towers: Case) -> None:
    forward, _, x = towers

    def fails(x: Any) -> None:
        forward(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(fails, x)
    assert places(of(trace(forward, x), "Tanh")) == all_four()


def test_tracing_within_a_trace_or_a_graph_or_nothing_callable_is_refused(devices: Devices) -> None:
    with pytest.raises(EvidenceError, match="already being recorded"):
        trace(lambda: trace(lambda: None))
    with pytest.raises(EvidenceError, match=r"inside a tf\.function"):
        tf.function(lambda: trace(lambda: None), autograph=False)()
    with pytest.raises(EvidenceError, match="is not callable"):
        trace(3)  # type: ignore[call-overload]
