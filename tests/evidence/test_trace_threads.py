"""Threads: TensorFlow keeps its callbacks per thread, and mixes up what it collects of two threads at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tensorflow as tf
from sample_programs import by_name, facts, on, place, rows, taped, variable, where

from harness import Devices, trace

pytestmark = pytest.mark.devices(min=4, kind=["logical-cpu", "gpu"])


@pytest.fixture
def pool(devices: Devices) -> Iterator[ThreadPoolExecutor]:
    """Threads that are older than the trace."""
    with ThreadPoolExecutor(3) as pool:
        barrier = threading.Barrier(3)
        list(pool.map(lambda _: barrier.wait(), range(3)))
        yield pool


def spread(pool: ThreadPoolExecutor, fn: Callable[[Any], Any], times: int = 1) -> Callable[[Any], Any]:
    """``fn`` on CPU:1 to CPU:3, at once."""

    def on_device(device: int, x: Any) -> Any:
        with on(device):
            return [fn(x) for _ in range(times)]

    return lambda x: list(pool.map(on_device, (1, 2, 3), (x, x, x)))


def test_threads_that_are_older_than_the_trace_are_traced(pool: ThreadPoolExecutor) -> None:
    found = trace(spread(pool, tf.tanh, times=5), rows())
    assert sorted(where(found, "Tanh")) == ["CPU:1"] * 5 + ["CPU:2"] * 5 + ["CPU:3"] * 5
    assert {op.requested for op in found.ops if op.type == "Tanh"} == {
        op.device for op in found.ops if op.type == "Tanh"
    }


def test_one_function_called_by_several_threads_at_once(pool: ThreadPoolExecutor) -> None:
    weights = variable(3, 5)
    fn = tf.function(lambda x: tf.cumsum(tf.matmul(x, weights)))
    call = spread(pool, fn, times=3)
    for _ in range(3):
        found = trace(call, rows())
        assert sorted(where(found, "MatMul")) == ["CPU:1"] * 3 + ["CPU:2"] * 3 + ["CPU:3"] * 3
    assert facts(trace(call, rows())) == facts(found)


def test_the_backward_ops_of_each_thread_belong_to_its_own_forward_ops(pool: ThreadPoolExecutor) -> None:
    weights = variable(3, 5)
    found = trace(spread(pool, taped(lambda x: tf.tanh(tf.matmul(x, weights)), [weights])), rows())
    names = by_name(found)
    pairs = [(op.device, names[op.forward].device) for op in found.ops if op.role == "gradient" and op.forward]
    assert len(pairs) == 9
    assert all(here == there for here, there in pairs)


def test_a_thread_that_waits_for_another_one_does_not_wait_for_ever() -> None:
    meeting = threading.Barrier(2)

    def meet(value: Any) -> Any:
        meeting.wait(timeout=120)
        return value

    fn = tf.function(lambda x: tf.py_function(meet, [x], tf.float32))
    fn.get_concrete_function(tf.TensorSpec([4, 3]))

    def both(x: Any) -> None:
        threads = [threading.Thread(target=fn, args=(x,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = trace(both, rows())
    assert [place(op.device) for op in found.ops if op.type == "EagerPyFunc" and op.device]


def test_a_thread_that_outlives_the_trace_is_let_go(pool: ThreadPoolExecutor) -> None:
    from tensorflow.python.eager import context

    call = spread(pool, tf.tanh)
    assert where(trace(call, rows()), "Tanh")
    call(rows())

    def callbacks(_: int) -> int:
        tf.tanh(rows())
        return len(context.context().op_callbacks)

    assert set(pool.map(callbacks, range(6))) == {0}


def test_the_trace_function_of_a_debugger_is_kept_for_new_threads() -> None:
    seen: list[str] = []

    def debugger(frame: Any, event: str, argument: Any) -> Any:
        seen.append(event)

    before = threading.gettrace()
    threading.settrace(debugger)
    try:

        def fn() -> None:
            thread = threading.Thread(target=lambda: tf.tanh(rows()))
            thread.start()
            thread.join()

        found = trace(fn)
        assert threading.gettrace() is debugger
    finally:
        threading.settrace(before)
    assert where(found, "Tanh") == ["CPU:0"]
    assert "call" in seen
    assert sys.gettrace() is before or sys.gettrace() is not debugger
