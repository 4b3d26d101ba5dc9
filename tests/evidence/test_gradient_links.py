"""Of the backward ops that compute, every one is linked with its forward op, however the gradient came about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from sample_programs import (
    branch,
    by_name,
    case,
    convolutional,
    custom,
    dense,
    facts,
    gradient_ops,
    images,
    loop,
    many,
    mapped,
    over_two,
    rows,
    taped,
    unlinked,
    variable,
    with_autograph,
)

import harness
from harness import Devices, make_parallel, session, trace
from harness._tensorflow import op_callback

pytestmark = pytest.mark.devices(min=4, kind=["logical-cpu", "gpu"])

#: XLA has no compiler for software GPUs.
WITH_XLA = pytest.mark.devices(min=4, kind="logical-cpu")

Case = tuple[Callable[[Any], Any], Any]


def _variables() -> tuple[Any, Any]:
    return variable(3, 5), variable(5)


def eager() -> Case:
    weights, bias = _variables()
    return taped(over_two(dense(weights, bias)), [weights, bias]), rows()


def graph() -> Case:
    fn, x = eager()
    return tf.function(fn), x


def tape_outside() -> Case:
    weights, bias = _variables()
    return taped(tf.function(over_two(dense(weights, bias))), [weights, bias]), rows()


def function_per_shard() -> Case:
    weights, bias = _variables()
    return tf.function(taped(over_two(tf.function(dense(weights, bias))), [weights, bias])), rows()


def function_per_shard_called_eagerly() -> Case:
    weights, bias = _variables()
    return taped(over_two(tf.function(dense(weights, bias))), [weights, bias]), rows()


def tape_outside_of_functions_in_a_function() -> Case:
    weights, bias = _variables()
    return taped(tf.function(over_two(tf.function(dense(weights, bias)))), [weights, bias]), rows()


def loop_in_a_graph() -> Case:
    weights = variable(3, 3)
    return tf.function(taped(loop(weights), [weights])), rows()


def tape_outside_of_a_loop() -> Case:
    weights = variable(3, 3)
    return taped(tf.function(loop(weights)), [weights]), rows()


def loop_in_eager_code() -> Case:
    weights = variable(3, 3)
    return taped(loop(weights), [weights]), rows()


def branch_in_a_graph() -> Case:
    weights = variable(3, 5)
    return tf.function(taped(branch(weights), [weights])), rows()


def tape_outside_of_a_branch() -> Case:
    weights = variable(3, 5)
    return taped(tf.function(branch(weights)), [weights]), rows()


def switch_case() -> Case:
    return tf.function(taped(case)), rows()


def map_fn() -> Case:
    return tf.function(taped(mapped)), rows()


def autograph() -> Case:
    return tf.function(taped(with_autograph)), rows()


def many_ops() -> Case:
    weights = variable(3, 5)
    return tf.function(taped(over_two(many(weights)), [weights])), rows()


def many_ops_of_unknown_size() -> Case:
    weights = variable(3, 5)
    fn = taped(over_two(many(weights)), [weights])
    return tf.function(fn, input_signature=[tf.TensorSpec([None, 3])]), rows()


def many_ops_tape_outside() -> Case:
    weights = variable(3, 5)
    inner = tf.function(over_two(many(weights)), input_signature=[tf.TensorSpec([None, 3])])
    return taped(inner, [weights]), rows()


def many_ops_in_eager_code() -> Case:
    weights = variable(3, 5)
    return taped(over_two(many(weights)), [weights]), rows()


def custom_gradient() -> Case:
    return taped(over_two(custom)), rows()


def custom_gradient_in_a_graph() -> Case:
    return tf.function(taped(over_two(custom))), rows()


def recomputed() -> Case:
    weights, bias = _variables()
    return taped(over_two(tf.recompute_grad(dense(weights, bias))), [weights, bias]), rows()


def recomputed_in_a_graph() -> Case:
    fn, x = recomputed()
    return tf.function(fn), x


def second_derivative() -> Case:
    weights, bias = _variables()

    def fn(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            _, grads = taped(over_two(dense(weights, bias)), [weights])(x)
            target = tf.reduce_sum(grads[0] * grads[0]) + tf.reduce_sum(grads[1] ** 2)
        return outer.gradient(target, [x, weights])

    return fn, rows()


def second_derivative_in_a_graph() -> Case:
    fn, x = second_derivative()
    return tf.function(fn), x


def second_derivative_of_a_function() -> Case:
    weights, bias = _variables()
    inner = tf.function(over_two(dense(weights, bias)))

    def fn(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            _, (grad,) = taped(inner)(x)
            target = tf.reduce_sum(grad * grad)
        return outer.gradient(target, [x, weights])

    return fn, rows()


def gradients_in_a_graph() -> Case:
    weights, bias = _variables()
    fn = over_two(dense(weights, bias))
    return tf.function(lambda x: tf.gradients(fn(x), [x, weights])), rows()


def compiled() -> Case:
    weights, bias = _variables()
    return tf.function(taped(dense(weights, bias), [weights, bias]), jit_compile=True), rows()


def compiled_per_shard() -> Case:
    inner = tf.function(lambda x: tf.tanh(x) * 2.0, jit_compile=True)
    return tf.function(taped(over_two(inner))), rows()


def compiled_per_shard_called_eagerly() -> Case:
    inner = tf.function(lambda x: tf.tanh(x) * 2.0, jit_compile=True)
    return taped(over_two(inner)), rows()


def parallel() -> Case:
    weights, bias = _variables()
    fn = make_parallel(dense(weights, bias), _devices())
    return taped(lambda x: fn(x=x), [weights, bias]), rows()


def parallel_in_a_graph() -> Case:
    fn, x = parallel()
    return tf.function(fn), x


def _devices() -> Devices:
    return harness.configure(session.devices or "cpu:4")


CASES = [
    eager,
    graph,
    tape_outside,
    function_per_shard,
    function_per_shard_called_eagerly,
    tape_outside_of_functions_in_a_function,
    loop_in_a_graph,
    tape_outside_of_a_loop,
    loop_in_eager_code,
    branch_in_a_graph,
    tape_outside_of_a_branch,
    switch_case,
    map_fn,
    autograph,
    many_ops,
    many_ops_of_unknown_size,
    many_ops_tape_outside,
    many_ops_in_eager_code,
    custom_gradient,
    custom_gradient_in_a_graph,
    recomputed,
    recomputed_in_a_graph,
    second_derivative,
    second_derivative_in_a_graph,
    second_derivative_of_a_function,
    gradients_in_a_graph,
    pytest.param(compiled, marks=WITH_XLA),
    pytest.param(compiled_per_shard, marks=WITH_XLA),
    pytest.param(compiled_per_shard_called_eagerly, marks=WITH_XLA),
    parallel,
    parallel_in_a_graph,
]


@pytest.mark.cases(4)
@pytest.mark.parametrize("make", CASES)
def test_every_gradient_op_is_linked_and_a_second_trace_says_the_same(make: Callable[[], Case]) -> None:
    fn, x = make()
    first, second = trace(fn, x), trace(fn, x)
    assert len(gradient_ops(first)) > 2
    assert unlinked(first) == []
    assert facts(second) == facts(first)
    names = by_name(first)
    assert all(names[op.forward].name != op.name for op in gradient_ops(first) if op.forward)


@pytest.mark.cases("function_per_shard", "switch_case", "tape_outside_of_functions_in_a_function")
@pytest.mark.parametrize("make", CASES)
def test_a_function_that_ran_before_it_was_traced_has_the_same_links(make: Callable[[], Case]) -> None:
    fn, x = make()
    watched = trace(fn, x)
    fn, x = make()
    fn(x)
    found = trace(fn, x)
    assert unlinked(found) == []
    links = {op.name: op.forward for op in gradient_ops(found)}
    assert links == {op.name: op.forward for op in gradient_ops(watched) if op.name in links}
    assert len(links) >= len(gradient_ops(watched)) - 2  # constant folding is not the same in every run


@pytest.mark.parametrize("mode", ["eager", "graph", "tape outside"])
def test_every_gradient_op_of_a_keras_model_is_linked(mode: str) -> None:
    model = convolutional()
    forward: Any = over_two(lambda part: model(part, training=True))
    if mode == "tape outside":
        forward = tf.function(forward)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(forward(x)))
        return tape.gradient(loss, model.trainable_variables)

    call = tf.function(step) if mode == "graph" else step
    call(images())  # so that its graphs are built while nobody watches
    found = trace(call, images())
    assert len(gradient_ops(found)) > 90
    assert unlinked(found) == []


def test_a_callback_of_the_users_own_gets_each_node_once_and_changes_no_link() -> None:
    expected = [(op.type, op.forward) for op in trace(*graph()).ops]
    seen: list[str] = []

    def on_op(kind: str, *rest: Any) -> None:
        if rest[-1] is not None:
            seen.append(kind)

    with op_callback(on_op):
        found = trace(*graph())
    assert [(op.type, op.forward) for op in found.ops] == expected
    assert seen.count("MatMul") == sum(op.type == "MatMul" for op in found.ops) > 0
