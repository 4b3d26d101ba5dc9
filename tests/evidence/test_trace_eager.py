"""Eager code: each op as often as it ran, where it ran, and what was copied."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tensorflow as tf
from sample_programs import by_name, facts, kind, on, over_two, place, rows, taped, variable, where

from harness import DeviceName, EvidenceError, Trace, trace

pytestmark = pytest.mark.devices(min=4, kind=["logical-cpu", "gpu"])


def devices_of(found: Trace, op_type: str) -> list[str]:
    return [place(op.device) if op.device else "-" for op in found.ops if op.type == op_type]


def copies(found: Trace) -> list[tuple[str, str, str, int | None]]:
    return [(place(t.source), place(t.destination), t.tensor, t.bytes) for t in found.transfers]


def test_an_op_that_runs_three_times_is_there_three_times() -> None:
    def fn(x: Any) -> Any:
        for _ in range(3):
            x = tf.tanh(x)
        return x

    found = trace(fn, rows())
    assert [op.name for op in found.ops if op.type == "Tanh"] == ["Tanh", "Tanh_1", "Tanh_2"]
    assert by_name(found)["Tanh_2"].inputs == ("Tanh_1",)
    assert by_name(found)["Tanh_2"].dtypes == ("float32",)
    assert found.outputs.shape == (4, 3)


def test_what_the_scope_asks_for_stands_beside_where_the_op_ran() -> None:
    def fn(x: Any) -> Any:
        with on(3):
            x = tf.tanh(x)
        return tf.exp(x)

    names = by_name(trace(fn, rows()))
    assert names["Tanh"].requested == names["Tanh"].device == DeviceName("localhost", 0, 0, kind(), 3)
    assert names["Exp"].requested is None
    assert names["Exp"].device == DeviceName("localhost", 0, 0, kind(), 0)
    assert names["Exp"].executed_type == "Exp"


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, v: tf.raw_ops.MatMul(a=x, b=v, transpose_b=True),
        lambda x, v: tf.raw_ops.Mul(x=x, y=v),
        lambda x, v: tf.nn.relu(v),
    ],
)
def test_an_op_that_is_given_a_variable_reads_it(fn: Any) -> None:
    """TensorFlow reads a variable among an op's arguments without a word to its callbacks."""
    v = variable(4, 3)
    found = trace(lambda x: fn(x, v), rows())
    read = [op.name for op in found.ops if op.type == "ReadVariableOp"]
    assert [found.variables[name] for name in read] == [(0,)]
    assert [op.type for op in found.ops if read[0] in op.inputs]


def test_an_assignment_ran_where_its_variable_is_whatever_ran_elsewhere_meanwhile() -> None:
    """TensorFlow reports new kernels late, and some ops run by one that was made for other inputs."""
    pairs = []
    for number in range(4):
        with on(number):
            pairs.append([variable(4, 3), variable(2, 3)])

    def fn(x: Any) -> None:
        for number, pair in enumerate(pairs):
            with on(number):
                for each in pair:
                    each.assign(0.9 * each + x[: each.shape[0]])
        means = [tf.add_n([each.read_value() for each in own]) for own in zip(*pairs, strict=True)]
        for number, pair in enumerate(pairs):
            with on(number):
                for each, mean in zip(pair, means, strict=True):
                    each.assign(mean)

    found = trace(fn, rows())
    assert devices_of(found, "AssignVariableOp") == 2 * [f"CPU:{number}" for number in range(4) for _ in range(2)]


def test_ops_whose_results_live_in_host_memory_are_where_their_kernel_is() -> None:
    state = {}
    for device in (1, 2):
        with on(device):
            state[device] = tf.Variable([1.0, 2.0])

    def fn(x: Any) -> Any:
        for device in (1, 2):
            with on(device):
                tf.raw_ops.Shape(input=x)
                if kind() == "CPU":  # text has no kernel on a GPU
                    tf.strings.as_string(tf.constant([1, 2]))
            state[device].assign(x)
        return tf.shape(x)

    found = trace(fn, tf.ones([2]))
    assert devices_of(found, "Shape") == ["CPU:1", "CPU:2", "CPU:0"]
    assert devices_of(found, "AsString") == (["CPU:1", "CPU:2"] if kind() == "CPU" else [])
    assert devices_of(found, "AssignVariableOp") == ["CPU:1", "CPU:2"]
    assert [op.role for op in found.ops if op.type == "AssignVariableOp"] == ["update", "update"]
    assert found.unproven == ()
    assert facts(trace(fn, tf.ones([2]))) == facts(found)


def test_a_kernel_that_serves_again_is_where_the_scope_is_and_not_where_the_inputs_are() -> None:
    rows_of = {}
    for device in (1, 2):
        with on(device):
            rows_of[device] = tf.cast(rows() * 9.0, tf.int32) % 4
    there, here = rows_of[1], rows_of[2]

    def fn() -> None:
        for device in (1, 2, 0, None):
            for pair in ((there, here), (here, there)):
                if device is None:
                    tf.concat(pair, 0)
                else:
                    with on(device):
                        tf.concat(pair, 0)

    names = [f"CPU:{device}" for device in (1, 1, 2, 2, 0, 0, 0, 0)]
    assert devices_of(trace(fn), "ConcatV2") == names


def test_each_tensor_is_copied_to_a_device_once_and_its_size_is_known() -> None:
    x = rows()

    def fn() -> Any:
        with on(1):
            first = tf.tanh(x)
            tf.exp(x)
        with on(2):
            return tf.matmul(first, tf.transpose(first))

    assert copies(trace(fn)) == [("CPU:0", "CPU:1", "Tanh:input", 48), ("CPU:1", "CPU:2", "Tanh", 48)]
    assert copies(trace(lambda: tf.tanh(tf.exp(x)))) == []


def test_a_value_that_is_assigned_on_another_device_is_copied_there() -> None:
    with on(2):
        state = tf.Variable([1.0, 2.0, 3.0])
    value = tf.constant([4.0, 5.0, 6.0])
    assert copies(trace(lambda: state.assign(value)))[0] == ("CPU:0", "CPU:2", "AssignVariableOp:input", 12)


@pytest.mark.devices(min=4, kind="logical-cpu")  # text has no kernel on a GPU
def test_integers_text_and_handles_are_not_counted_as_copies() -> None:
    weights = variable(3, 5)

    def fn(x: Any) -> Any:
        with on(1):
            return tf.reshape(tf.strings.length(tf.strings.as_string(x)), [2, 6]), tf.gather(weights, [0, 1])

    found = trace(fn, rows())
    assert {(place(t.source), place(t.destination)) for t in found.transfers} <= {("CPU:0", "CPU:1")}
    assert all(t.bytes for t in found.transfers)


def test_roles_of_eager_ops() -> None:
    weights = variable(3, 5)

    def fn(x: Any) -> Any:
        _, (_, grad) = taped(lambda rows: tf.tanh(tf.matmul(rows, weights)), [weights])(x)
        weights.assign_sub(0.1 * grad)

    roles = {op.type: op.role for op in trace(fn, rows()).ops}
    assert roles["Tanh"] == "forward"
    assert roles["TanhGrad"] == "gradient"
    assert roles["AssignSubVariableOp"] == "update"
    assert roles["ReadVariableOp"] == "variable"
    assert roles["Fill"] == "constant"


def test_the_tape_makes_its_ones_and_sums_as_a_part_of_the_backward_pass() -> None:
    def fn(x: Any) -> Any:
        return tf.tanh(x) + tf.sin(x)

    found = trace(taped(fn), rows())
    (total,) = [op for op in found.ops if op.type == "AddN"]
    assert (total.role, total.forward) == ("gradient", None)


def test_nothing_that_ran_is_an_empty_trace() -> None:
    found = trace(lambda: 3)
    assert (found.ops, tuple(found.transfers), found.outputs) == ((), (), 3)


def test_a_block_is_recorded_as_a_function_is() -> None:
    x = rows()

    def work() -> Any:
        with on(1):
            return tf.tanh(x * 2.0)

    with trace() as block:
        with pytest.raises(EvidenceError, match="has not ended"):
            _ = block.trace
        work()
    assert facts(block.trace) == facts(trace(work))
    with pytest.raises(ValueError, match="mine"), trace() as failed:
        raise ValueError("mine")
    with pytest.raises(EvidenceError, match="or it raised"):
        _ = failed.trace


def test_arguments_and_keywords_are_handed_on() -> None:
    def fn(first: Any, *, second: Any) -> Any:
        return first - second

    assert float(trace(fn, tf.constant(5.0), second=2.0).outputs) == 3.0


def test_threads_that_start_in_the_function_are_traced_as_if_it_did_the_work_itself() -> None:
    def fn(x: Any) -> None:
        def work(device: int) -> None:
            with on(device):
                taped(tf.tanh)(x)

        threads = [threading.Thread(target=work, args=(device,)) for device in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taped(tf.tanh)(x)

    found = trace(fn, rows())
    assert sorted(where(found, "Tanh")) == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    names = by_name(found)
    linked = [names[op.forward] for op in found.ops if op.type == "TanhGrad" and op.forward]
    assert len({op.name for op in linked}) == 4
    assert facts(trace(fn, rows())) == facts(found)


def test_a_right_split_over_devices_has_one_copy_each_way() -> None:
    found = trace(over_two(tf.tanh), rows())
    assert copies(found) == [
        ("CPU:0", "CPU:1", "Split", 24),
        ("CPU:0", "CPU:2", "Split", 24),
        ("CPU:1", "CPU:0", "Tanh", 24),
        ("CPU:2", "CPU:0", "Tanh_1", 24),
    ]


def test_an_op_that_runs_as_soon_as_tensorflow_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python may free a variable at any time, also before the body begins."""
    given, begin, early = rows(), threading.settrace, [tf.exp]

    def begin_and_run(function: Any) -> None:
        begin(function)
        while early:
            early.pop()(given)

    monkeypatch.setattr(threading, "settrace", begin_and_run)
    assert [op.type for op in trace(tf.tanh, given).ops] == ["Exp", "Tanh"]


@pytest.mark.parametrize("wrap", [lambda fn: fn, tf.function])
def test_the_variables_that_ops_read_and_update_are_told_apart(wrap: Any) -> None:
    one, two = variable(3, 2), variable(2)

    def fn(x: Any) -> Any:
        hidden = tf.matmul(x, one)
        two.assign_add(tf.reduce_sum(hidden, 0) + two)
        return tf.cond(tf.reduce_sum(x) > 1e9, lambda: hidden, lambda: hidden + tf.reduce_sum(one))

    found = trace(wrap(fn), rows())
    of = {
        kind: [found.variables[op.name] for op in found.ops if op.type == kind and op.name in found.variables]
        for kind in ("ReadVariableOp", "AssignAddVariableOp")
    }
    assert of["AssignAddVariableOp"] == [(1,)]
    assert set(of["ReadVariableOp"]) == {(0,), (1,)}
    assert of["ReadVariableOp"].count((0,)) >= 1
