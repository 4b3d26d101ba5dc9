"""A backward op is linked with its own forward op, not with another one that looks the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from sample_programs import by_name, custom, gradient_ops, on, over_two, place, rows, taped, unlinked, variable, where

from harness import Trace, trace

pytestmark = pytest.mark.devices(min=4, kind=["logical-cpu", "gpu"])

MODES = ["eager", "graph", "graph that ran before", "tape outside"]


def traced(mode: str, fn: Callable[[Any], Any], variables: Any = (), x: Any = None) -> Trace:
    """A trace of ``fn`` and of the gradient of its result, in one of the ways to take it."""
    x = rows() if x is None else x
    if mode == "tape outside":
        return trace(taped(tf.function(fn), variables), x)
    step: Any = taped(fn, variables)
    if mode != "eager":
        step = tf.function(step)
    if mode == "graph that ran before":
        step(x)
    return trace(step, x)


def partners(trace: Trace, op_type: str) -> list[str]:
    """The devices of the forward ops of the backward ops of a type, in no order.

    Backward ops that the optimizer has merged, as they compute the same, have partners too.
    """
    names = by_name(trace)
    found = [op for op in trace.ops if op.type == op_type and op.role == "gradient" and op.forward]
    return sorted(place(device) for op in found if (device := names[op.forward or ""].device) is not None)


@pytest.mark.cases(1)
@pytest.mark.parametrize("mode", MODES)
def test_the_same_ops_on_two_devices_each_have_their_own(mode: str) -> None:
    weights = variable(3, 5)
    found = traced(mode, over_two(lambda x: tf.tanh(tf.matmul(x, weights))), [weights])
    assert partners(found, "TanhGrad") == ["CPU:1", "CPU:2"]
    # Two backward ops for each MatMul: one for the rows, one for the shared weights.
    assert partners(found, "MatMul") == ["CPU:1", "CPU:1", "CPU:2", "CPU:2"]
    assert set(where(found, "MatMul", "gradient")) == {"CPU:0"}


@pytest.mark.cases(1)
@pytest.mark.parametrize("mode", MODES)
def test_the_same_op_on_the_same_tensors_on_two_devices(mode: str) -> None:
    def fn(x: Any) -> Any:
        results = []
        for device in (1, 2):
            with on(device):
                results.append(tf.math.igamma(tf.abs(x) + 1.0, tf.abs(x)))
        return tf.concat(results, 0)

    def shared(x: Any) -> Any:
        positive = tf.abs(x) + 1.0
        results = []
        for device in (1, 2):
            with on(device):
                results.append(tf.math.xlogy(positive, positive))
        return tf.concat(results, 0)

    found = traced(mode, shared)
    counts = Counter(partners(found, "Xlogy") + partners(found, "Mul"))
    assert counts["CPU:1"] == counts["CPU:2"] > 0
    assert unlinked(found) == []
    assert unlinked(traced(mode, fn)) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_passes_through_unchanged_is_followed_to_the_op_behind(mode: str) -> None:
    bias = [variable(5), variable(5)]
    weights = variable(3, 5)

    def fn(x: Any) -> Any:
        parts = []
        for device in (1, 2):
            with on(device):
                parts.append(tf.identity(tf.nn.bias_add(tf.matmul(x, weights), bias[device - 1])))
        return parts[0] + parts[1]  # one gradient arrives at both

    found = traced(mode, fn, [*bias, weights])
    assert partners(found, "BiasAddGrad") == ["CPU:1", "CPU:2"]
    assert unlinked(found) == []
    names = by_name(found)
    forwards = [names[op.forward] for op in found.ops if op.type == "BiasAddGrad" and op.forward]
    assert len({op.inputs for op in forwards}) == 2


@pytest.mark.parametrize("mode", MODES)
def test_gradients_that_are_summed_up_keep_their_partners(mode: str) -> None:
    weights = variable(3, 3)

    def fn(x: Any) -> Any:
        with on(1):
            first = tf.tanh(tf.matmul(x, weights))
        with on(2):
            second = tf.sin(tf.matmul(first, weights)) + first  # `first` is used three times, `weights` three times
        with on(3):
            return tf.exp(tf.matmul(second, weights)) * tf.reduce_sum(first)

    found = traced(mode, fn, [weights])
    assert partners(found, "TanhGrad") == ["CPU:1"]
    assert partners(found, "Cos") == ["CPU:2"]
    assert Counter(partners(found, "MatMul")) == {"CPU:1": 2, "CPU:2": 2, "CPU:3": 2}
    assert unlinked(found) == []
    sums = [op for op in found.ops if op.type == "AddN"]
    assert {(op.role, op.forward) for op in sums} == {("gradient", None)}


@pytest.mark.parametrize("mode", MODES[:3])
def test_the_ops_of_a_custom_gradient_belong_to_what_its_function_returned(mode: str) -> None:
    found = traced(mode, over_two(custom))
    names = by_name(found)
    cosines = [names[op.forward] for op in gradient_ops(found) if op.type == "Cos" and op.forward]
    assert Counter((op.type, place(op.device)) for op in cosines if op.device) == {
        ("Exp", "CPU:1"): 1,
        ("Exp", "CPU:2"): 1,
        ("Sin", "CPU:1"): 1,
        ("Sin", "CPU:2"): 1,
    }


@pytest.mark.parametrize("mode", MODES[:3])
def test_what_is_computed_again_for_the_gradient_is_a_part_of_it(mode: str) -> None:
    weights = variable(3, 5)
    recomputed = tf.recompute_grad(lambda x: tf.tanh(tf.matmul(x, weights)))
    found = traced(mode, over_two(recomputed), [weights])
    assert where(found, "Tanh") == ["CPU:1", "CPU:2"]
    again = [op for op in gradient_ops(found) if op.type == "Tanh"]
    assert [place(op.device) for op in again if op.device] == ["CPU:0", "CPU:0"] or mode != "eager"
    assert partners(found, "Tanh") == ["CPU:1", "CPU:2"]


@pytest.mark.parametrize("mode", ["eager", "graph", "graph that ran before"])
def test_second_derivatives_belong_to_ops_of_the_first(mode: str) -> None:
    def fn(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            _, (first,) = taped(over_two(tf.tanh))(x)
            target = tf.reduce_sum(first * first)
        return outer.gradient(target, x)

    call: Any = fn if mode == "eager" else tf.function(fn)
    if mode == "graph that ran before":
        call(rows())
    found = trace(call, rows())
    names = by_name(found)
    assert unlinked(found) == []
    behind = Counter(names[op.forward].type for op in gradient_ops(found) if op.forward)
    # Two TanhGrad of Tanh; each of them has a TanhGrad and Muls of its own; and Tanh is played back a second time.
    assert behind["Tanh"] == 4
    assert behind["TanhGrad"] >= 4
    assert Counter(partners(found, "TanhGrad"))["CPU:1"] == Counter(partners(found, "TanhGrad"))["CPU:2"]


def test_a_persistent_tape_is_played_back_as_often_as_one_likes() -> None:
    def fn(x: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            result = over_two(tf.tanh)(x)
        return [tape.gradient(result, x) for _ in range(3)]

    for call in (fn, tf.function(fn)):
        assert partners(trace(call, rows()), "TanhGrad") == ["CPU:1"] * 3 + ["CPU:2"] * 3


def test_a_tape_that_outlives_the_trace_still_works() -> None:
    x = rows()
    kept: list[Any] = []

    def fn() -> Any:
        tape = tf.GradientTape(persistent=True)
        with tape:
            tape.watch(x)
            kept.append(tf.tanh(custom(x)))
        return tape

    tape = trace(fn).outputs
    assert tape.gradient(kept[0], x).shape == x.shape
    assert partners(trace(lambda: tape.gradient(kept[0], x)), "TanhGrad") == []


def test_no_gradient_goes_through_stop_gradient() -> None:
    for mode in MODES:
        found = traced(mode, over_two(lambda x: tf.stop_gradient(tf.exp(x)) * tf.tanh(x)))
        names = by_name(found)
        behind = {names[op.forward].type for op in gradient_ops(found) if op.forward}
        assert "Tanh" in behind
        assert "Exp" not in behind


@pytest.mark.parametrize("seeds", [None, "given"])
def test_ops_that_look_the_same_are_told_apart_by_which_target_they_made(seeds: str | None) -> None:
    def fn(first: Any, second: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([first, second])
            results = []
            for device, bias in ((1, first), (2, second)):
                with on(device):
                    results.append(tf.nn.bias_add(rows(), bias))
        upstream = [result * 2.0 for result in results] if seeds else None
        return results, tape.gradient(results, [first, second], output_gradients=upstream)

    for call in (fn, tf.function(fn)):
        found = trace(call, tf.ones([3]), tf.zeros([3]))
        assert partners(found, "BiasAddGrad") == ["CPU:1", "CPU:2"]
        assert unlinked(found) == []
