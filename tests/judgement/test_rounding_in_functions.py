"""The replay that moves the result of each op leaves nothing behind in what TensorFlow keeps of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.judgement.rounding import rounded
from harness.judgement.runs import Program

_X = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")


def _twice(x: Any) -> Any:
    return tf.tanh(x) * 3.0


def _function() -> Callable[[Any], Any]:
    return tf.function(_twice, autograph=False)  # type: ignore[no-any-return]


def _concrete() -> Callable[[Any], Any]:
    return tf.function(_twice, autograph=False).get_concrete_function(tf.TensorSpec([6, 4], tf.float32))  # type: ignore[no-any-return]


def _branch_in_a_function() -> Callable[[Any], Any]:
    return tf.function(lambda x: tf.cond(tf.reduce_sum(x) > 1e9, lambda: x, lambda: _twice(x)), autograph=False)  # type: ignore[no-any-return]


def _in_a_branch(x: Any) -> Any:
    return tf.cond(tf.reduce_sum(x) > 1e9, lambda: x, lambda: tf.sin(x))


def _with_gradient(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        return tape.gradient(y, x)

    return call


def _replay(fn: Callable[[Any], Any]) -> Callable[[int, int], Any]:
    return rounded(Program(lambda x: fn(x), {"x": tf.constant(_X)}, [], gradients=False, seed=0))


def _first(result: Any) -> bytes:
    return tf.nest.flatten(result)[0].numpy().tobytes()  # type: ignore[no-any-return]


@pytest.mark.cases("False-_branch_in_a_function")
@pytest.mark.parametrize("make", [_function, _concrete, _branch_in_a_function])
@pytest.mark.parametrize("gradient", [False, True])
def test_a_function_that_is_first_built_in_the_replay_serves_other_runs(
    make: Callable[[], Callable[[Any], Any]], gradient: bool
) -> None:
    inner = make()
    program = _with_gradient(inner) if gradient else inner
    run = _replay(lambda x: program(x) + tf.sin(x))
    run(0, 1)
    wanted = _with_gradient(_twice)(tf.constant(_X)) if gradient else _twice(tf.constant(_X))
    # In eager code and in another graph, and without a moved result.
    np.testing.assert_allclose(program(tf.constant(_X)), wanted, rtol=1e-6)
    np.testing.assert_allclose(tf.function(program, autograph=False)(tf.constant(_X)), wanted, rtol=1e-6)


@pytest.mark.parametrize("fn", [tf.sin, _in_a_branch])
def test_the_programs_own_ops_and_those_in_its_branches_are_moved(fn: Callable[[Any], Any]) -> None:
    run = _replay(fn)
    plain = _first(run(0, 0))
    assert _first(run(1, 0)) == plain
    assert len({_first(run(seed, 1)) for seed in range(4)} | {plain}) > 2
