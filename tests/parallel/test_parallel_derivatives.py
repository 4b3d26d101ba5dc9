"""Derivatives through ``make_parallel`` and ``pipeline``: their ops are in place wherever the tapes are."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tower_programs import elsewhere, numbers

import harness
from harness import Devices, make_parallel, pipeline, trace
from harness.judgement.placement import gradient_ops
from harness.parallel import recording

_W = np.random.default_rng(0).normal(size=(4, 4)).astype("float32") / 2
_X = np.random.default_rng(1).normal(size=(8, 4)).astype("float32") / 2
Call = Callable[[Any], Any]


def derivative(call: Call, w: Any, order: int) -> Any:
    """The derivative for ``w`` of that order, of one number made of what ``call`` returns, with nested tapes."""
    with tf.GradientTape() as tape:
        if order == 1:
            result = tf.reduce_sum(call(tf.constant(_X)) ** 2)
        else:
            result = tf.reduce_sum(derivative(call, w, order - 1) ** 2)
    return tape.gradient(result, w)


def patterns(devices: Devices, w: Any) -> tuple[Call, list[Call]]:
    def dense(x: Any) -> Any:
        return tf.nn.silu(tf.matmul(x, w))  # silu has a gradient function of its own

    def condition(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 1e6, lambda: x, lambda: dense(x))

    stages = [dense, tf.sin, condition, tf.tanh][: len(devices)]
    pipe = pipeline(stages, devices, microbatches=2)

    def unsplit(x: Any) -> Any:
        for stage in stages:
            x = stage(x)
        return x

    return unsplit, [make_parallel(unsplit, devices), lambda x: pipe(x=x)]


@pytest.mark.cases("inside-2")
@pytest.mark.parametrize(
    ("tapes", "order"),
    [
        pytest.param(tapes, order, marks=[pytest.mark.long] if order + ("any" in tapes) > 2 else [])
        for tapes in ("eager", "inside", "outside", "outside, any batch")
        for order in (1, 2, 3)
    ],
)
def test_each_order_is_that_of_one_device_and_in_its_place(devices: Devices, tapes: str, order: int) -> None:
    w = tf.Variable(_W)
    unsplit, calls = patterns(devices, w)
    if "outside" in tapes and order > 2:
        # TensorFlow cannot take the gradient of the backward function of a condition twice from outside.
        dense = lambda x: tf.tanh(tf.matmul(x, w))  # noqa: E731
        unsplit, calls = dense, [make_parallel(dense, devices)]
    expected = derivative(unsplit, w, order)
    for call in calls:
        if "outside" in tapes:
            rows = None if "any" in tapes else len(_X)
            call = tf.function(call, input_signature=[tf.TensorSpec([rows, 4])])
        run: Callable[[], Any] = functools.partial(derivative, call, w, order)
        if tapes == "inside":
            run = tf.function(run, autograph=False)
        np.testing.assert_allclose(run(), expected, rtol=1e-3, atol=1e-4)
        found = trace(run)
        assert gradient_ops(found) > 0
        assert elsewhere(found) == []


@pytest.mark.cases(1)
@pytest.mark.parametrize("graph", [False, True])
def test_vectorised_and_forward_derivatives_are_those_of_one_device(devices: Devices, graph: bool) -> None:
    w = tf.Variable(_W)

    def jacobian(call: Call) -> Any:
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(call(tf.constant(_X)), axis=0)
        return tape.jacobian(y, w)

    def forward(call: Call) -> Any:
        with tf.autodiff.ForwardAccumulator(w, tf.ones_like(w)) as accumulator:
            y = call(tf.constant(_X))
        return accumulator.jvp(y)

    def over_reverse(call: Call) -> Any:
        with tf.autodiff.ForwardAccumulator(w, tf.ones_like(w)) as accumulator:
            gradient = derivative(call, w, 1)
        return accumulator.jvp(gradient)

    dense = lambda x: tf.tanh(tf.matmul(x, w))  # noqa: E731
    parallel = make_parallel(dense, devices)
    for of in (jacobian, forward, over_reverse):
        run = (lambda of=of: of(parallel)) if not graph else tf.function(lambda of=of: of(parallel))
        np.testing.assert_allclose(run(), of(dense), rtol=1e-4, atol=1e-5)


def test_a_programs_own_tape_is_not_touched_by_a_parallel_call_elsewhere(devices: Devices) -> None:
    """What is in place for good has no effect on towers by hand."""
    from tower_programs import Towers

    make_parallel(tf.sin, devices)(tf.constant(_X))
    towers = Towers(devices)
    for program in (towers.first_order, towers.second_order, towers.function_of_towers):
        assert elsewhere(trace(program))
        assert elsewhere(trace(tf.function(program)))


def lookups(table: Any) -> dict[str, Call]:
    return {
        "gather": lambda ids: tf.reduce_sum(tf.tanh(tf.gather(table, ids)), axis=1),
        "lookup": lambda ids: tf.reduce_sum(tf.tanh(tf.nn.embedding_lookup(table, ids)), axis=1),
        "gather_nd": lambda ids: tf.tanh(tf.gather_nd(table, ids[:, :1])),
    }


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["gather", "lookup", "gather_nd"])
def test_rows_of_a_variable_are_looked_up_in_the_shard(devices: Devices, name: str) -> None:
    """TensorFlow looks them up where the variable is, whatever the scope."""
    table, ids = tf.Variable(numbers(20, 4)), np.arange(16).reshape(8, 2)
    lookup = lookups(table)[name]
    # TensorFlow cannot take the gradient of a gather_nd within a condition.
    modes = ("eager", "graph") if name == "gather_nd" else ("eager", "graph", "dynamic")
    options: dict[str, Any] = {"devices": devices, "variables": [table], "modes": modes}
    found = harness.verify(make_parallel(lookup, devices), lookup, {"ids": ids}, **options)
    assert found.verdict is harness.Verdict.PASS, found

    def by_hand(ids: Any) -> Any:
        parts = []
        for device, own in zip(devices, tf.split(ids, len(devices)), strict=True):
            with tf.device(device.name):
                parts.append(lookup(own))
        return tf.concat(parts, axis=0)

    places = {op.device for op in trace(lambda: by_hand(tf.constant(ids))).ops if "Gather" in op.type}
    assert places == {devices[0].parsed}


@pytest.mark.parametrize("graph", [False, True])
def test_rows_of_a_variable_that_is_there_already_are_looked_up_without_a_copy(devices: Devices, graph: bool) -> None:
    with tf.device(devices[1].name):
        table = tf.Variable(numbers(20, 4))
    pipe = pipeline([tf.identity, lambda ids: tf.gather(table, ids)], devices)
    run = tf.function(lambda: pipe(tf.constant([3, 5]))) if graph else lambda: pipe(tf.constant([3, 5]))
    found = [op for op in trace(run).ops if "Gather" in op.type]
    assert [(op.type, op.device) for op in found] == [("ResourceGather", devices[1].parsed)]


def test_notes_are_dropped_with_the_tapes_that_need_them(devices: Devices) -> None:
    gc.collect()
    recording.sweep()
    before = len(recording.notes)
    w = tf.Variable(_W)
    with tf.GradientTape(persistent=True) as tape:
        y = make_parallel(lambda x: tf.tanh(tf.matmul(x, w)), devices)(tf.constant(_X))
    recording.sweep()
    assert len(recording.notes) >= before + 2 * len(devices)
    assert tape.gradient(y, w) is not None
    del tape
    recording.sweep()
    assert len(recording.notes) <= before


# On one GPU, threads that run the same eager op mix up its arguments in host memory (tensorflow 123980).
@pytest.mark.devices(kind="logical-cpu")
def test_threads_train_at_once_and_each_gets_its_own_gradients(devices: Devices) -> None:
    w = tf.Variable(_W)
    call = make_parallel(lambda x: tf.tanh(tf.matmul(x, w)), devices)
    expected = derivative(call, w, 2).numpy().tobytes()
    start = threading.Barrier(4)

    def train() -> list[bytes]:
        start.wait()
        return [derivative(call, w, 2).numpy().tobytes() for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        found = [each.result() for each in [pool.submit(train) for _ in range(4)]]
    assert {one for each in found for one in each} == {expected}


def test_an_error_in_a_shard_leaves_nothing_pinned(devices: Devices) -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tf.GradientTape():
        make_parallel(fails, devices)(tf.constant(_X))
    assert not recording.active()
    assert recording.thread.shard is None
    assert recording.note_pinned not in recording.runtime.context.op_callbacks
