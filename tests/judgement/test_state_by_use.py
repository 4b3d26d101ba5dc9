"""State that neither closures nor ``variables=`` lead to: what both programs use is restored and compared."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, Verification, make_parallel, verify
from harness._tensorflow import interface
from harness.judgement.uses import _instances

X = np.random.default_rng(7).normal(size=(8, 3)).astype(np.float32)


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


class OnTheClass:
    total: Any = None

    @classmethod
    def step(cls, x: Any) -> Any:
        cls.total.assign_add(tf.ones([3]))
        return tf.tanh(x)


class Bound:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = tf.Variable(tf.zeros([3]))

    def step(self, x: Any) -> Any:
        self.total.assign_add(tf.ones([3]))
        return tf.tanh(x)


KEPT: dict[str, Any] = {}


def in_slots() -> Callable[..., Any]:
    slotted = Slotted(tf.Variable(tf.zeros([3])))

    def step(x: Any) -> Any:
        slotted.held.assign_add(tf.ones([3]))
        return tf.tanh(x)

    return step


def on_the_class() -> Callable[..., Any]:
    OnTheClass.total = tf.Variable(tf.zeros([3]))
    return OnTheClass.step


def in_nested_globals() -> Callable[..., Any]:
    KEPT["total"] = tf.Variable(tf.zeros([3]))

    def step(x: Any) -> Any:
        def inner() -> None:
            KEPT["total"].assign_add(tf.ones([3]))

        inner()
        return tf.tanh(x)

    return step


def of_a_bound_method() -> Callable[..., Any]:
    return Bound().step


def made_in_the_first_call() -> Callable[..., Any]:
    slotted = Slotted(None)

    def step(x: Any) -> Any:
        if slotted.held is None:
            with tf.init_scope():
                slotted.held = tf.Variable(tf.zeros([3]), trainable=False)
        slotted.held.assign_add(tf.ones([3]))
        return tf.tanh(x)

    return step


def of_a_traced_function() -> Callable[..., Any]:
    slotted = Slotted(tf.Variable(tf.zeros([3])))

    def eager(x: Any) -> Any:
        slotted.held.assign_add(tf.ones([3]))
        return tf.tanh(x)

    step = tf.function(eager)
    step(tf.constant(X))
    step(tf.constant(X[:4]))
    return lambda x: step(x)


def _verified(devices: Devices, parallel: Callable[..., Any], reference: Callable[..., Any]) -> Verification:
    return verify(parallel, reference, {"x": X}, devices=devices[:2])


@pytest.mark.cases("made_in_the_first_call")
@pytest.mark.parametrize(
    "make",
    [
        in_slots,
        on_the_class,
        in_nested_globals,
        of_a_bound_method,
        made_in_the_first_call,
        of_a_traced_function,
    ],
)
def test_state_that_each_shard_moves_on_is_found(devices: Devices, make: Callable[[], Callable[..., Any]]) -> None:
    step = make()
    found = _verified(devices, make_parallel(step, devices[:2]), step)
    values = [finding for finding in found.findings if finding.kind == "value"]
    assert [finding.mode for finding in values] == ["eager, graph"], found
    assert "after the call" in values[0].where, found
    split = make_parallel(tf.tanh, devices[:2])

    def once(x: Any) -> Any:
        step(x)
        return split(x=x)

    clean = _verified(devices, once, step)
    assert clean.verdict is Verdict.PASS, clean


def _embedding() -> tuple[Any, Callable[[Any], None]]:
    table = tf.Variable(tf.ones([4, 2]))
    optimizer = tf.keras.optimizers.SGD(0.5)
    optimizer.build([table])

    def update(_: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 2]))
        optimizer.apply([tape.gradient(loss, table)], [table])

    return table, update


UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "scatter_nd_add": lambda total, _: total.scatter_nd_add([[0]], [1.0]),
    "scatter_nd_sub": lambda total, _: total.scatter_nd_sub([[0]], [1.0]),
    "scatter_add": lambda total, _: total.scatter_add(tf.IndexedSlices(tf.constant([1.0]), tf.constant([1]))),
    "scatter_update": lambda total, _: total.scatter_update(
        tf.IndexedSlices(total.read_value()[1:2] + 1.0, tf.constant([1]))
    ),
    "batch_scatter_update": lambda total, _: total.batch_scatter_update(
        tf.IndexedSlices(total.read_value()[1:2] + 1.0, tf.constant([1]))
    ),
    "sliced": lambda total, _: total[1:].assign(total[1:] + 1.0),
    "raw assignment": lambda total, _: tf.raw_ops.AssignAddVariableOp(resource=total.handle, value=tf.ones([3])),
    "raw, by its handle": lambda _, handle: tf.raw_ops.ResourceScatterAdd(
        resource=handle, indices=[0], updates=tf.constant([1.0])
    ),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", UPDATES)
def test_state_is_restored_and_compared_however_it_is_written(devices: Devices, kind: str) -> None:
    slotted = Slotted(tf.Variable(tf.zeros([3])))
    handle = Slotted(slotted.held.handle)

    def step(x: Any) -> Any:
        UPDATES[kind](slotted.held, handle.held)
        return tf.tanh(x)

    _found_and_clean(devices, step, lambda: slotted.held)


def test_rows_that_an_optimizer_updates_are_restored_and_compared(devices: Devices) -> None:
    slotted = Slotted(_embedding())

    def step(x: Any) -> Any:
        slotted.held[1](x)
        return tf.tanh(x)

    _found_and_clean(devices, step, lambda: tf.reduce_sum(slotted.held[0]))


def _found_and_clean(devices: Devices, step: Callable[..., Any], state: Callable[[], Any]) -> None:
    split = make_parallel(tf.tanh, devices[:2])

    def parallel(x: Any) -> Any:
        step(x)
        return split(x=x) + state()

    def reference(x: Any) -> Any:
        return step(x) + state()

    def twice(x: Any) -> Any:
        step(x)
        return parallel(x)

    clean = _verified(devices, parallel, reference)
    assert clean.verdict is Verdict.PASS, clean
    found = _verified(devices, twice, reference)
    wheres = [line for finding in found.findings for line in (finding.where, *finding.follows)]
    assert {finding.kind for finding in found.findings} == {"value"}, found
    assert [line for line in wheres if "variable Variable after the call" in line], found


def test_what_one_program_alone_uses_is_its_own_affair(devices: Devices) -> None:
    logged, counted = (Slotted(tf.Variable(tf.zeros([3]))) for _ in range(2))

    def log(x: Any) -> Any:
        logged.held.assign_add(tf.ones([3]))
        return tf.tanh(x)

    def count(x: Any) -> Any:
        counted.held.assign_add(tf.ones([3]))
        return tf.tanh(x)

    clean = _verified(devices, make_parallel(log, devices[:2]), count)
    assert clean.verdict is Verdict.PASS, clean
    for slotted in (logged, counted):
        assert not np.any(slotted.held.numpy())


def test_a_generator_that_each_shard_asks_is_no_state_to_compare(devices: Devices) -> None:
    slotted = Slotted(tf.random.Generator.from_seed(1))

    def shifted(x: Any) -> Any:
        return tf.tanh(x) + 0.0 * slotted.held.uniform([])

    found = _verified(devices, make_parallel(shifted, devices[:2]), shifted)
    assert not [finding for finding in found.findings if "after the call" in finding.where], found


def test_a_missing_update_is_found(devices: Devices) -> None:
    slotted = Slotted(tf.Variable(tf.zeros([3])))
    split = make_parallel(tf.tanh, devices[:2])

    def reference(x: Any) -> Any:
        result = tf.tanh(x) + slotted.held
        slotted.held.assign_add(tf.ones([3]))
        return result

    found = _verified(devices, lambda x: split(x=x) + slotted.held, reference)
    assert "is not updated" in found.reason, found


def test_a_variable_of_a_strategy_is_compared_under_its_name_and_its_replicas_are_not(devices: Devices) -> None:
    strategy = tf.distribute.MirroredStrategy(devices.names[:2])
    with strategy.scope():
        total = tf.Variable(tf.zeros([3]), name="total")

    def parallel_by(step: float) -> Callable[..., Any]:
        def parallel(x: Any, total: Any = total) -> Any:
            parts = tf.stack(tf.split(x, 2))

            def replica() -> Any:
                total.assign(total + step)
                return tf.tanh(parts[tf.distribute.get_replica_context().replica_id_in_sync_group])

            return tf.concat(strategy.experimental_local_results(strategy.run(replica)), 0)

        return parallel

    def reference(x: Any) -> Any:
        total.assign(total + 1.0)
        return tf.tanh(x)

    clean = _verified(devices, parallel_by(1.0), reference)
    assert clean.verdict is Verdict.PASS, clean
    found = _verified(devices, parallel_by(2.0), reference)
    assert found.findings[0].where == "variable total after the call", found


def test_all_is_put_back_in_place(devices: Devices) -> None:
    def in_place() -> list[Any]:
        private = interface()
        return [
            *(vars(kind).get("handle") for kind in type(tf.Variable(0.0)).__mro__),
            private.pywrap.TFE_Py_FastPathExecute,
            private.context.Context.call_function,
        ]

    step, before = in_slots(), in_place()
    assert not _verified(devices, make_parallel(step, devices[:2]), step).passed
    assert in_place() == before


def test_variables_that_only_traced_functions_know_are_looked_for_once(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = [tf.Variable(tf.zeros([3])) for _ in range(9)]

    @tf.function  # type: ignore[untyped-decorator]
    def counting(x: Any) -> Any:
        for total in totals:
            total.assign_add(tf.ones([3]))
        return tf.tanh(x)

    # Neither a closure nor an attribute leads to what an iterator gives.
    hidden = itertools.repeat(counting.get_concrete_function(tf.TensorSpec((8, 3))))
    looked: list[int] = []
    referrers = gc.get_referrers

    def get_referrers(*objects: Any) -> list[Any]:
        looked.append(1)
        return referrers(*objects)

    monkeypatch.setattr(gc, "get_referrers", get_referrers)

    def verified(times: int) -> Verification:
        def program(x: Any) -> Any:
            for _ in range(times):
                rows = next(hidden)(x)
            return rows

        reference = lambda x: next(hidden)(x)  # noqa: E731
        return verify(program, reference, {"x": X}, devices=devices[:1], modes=("eager",))

    assert verified(1).passed
    assert 1 <= len(looked) <= 2, "for each of the two programs"
    found = verified(2)
    assert "updated twice instead of once" in found.reason, found
    assert all(np.all(total.numpy() == 0.0) for total in totals)


def test_other_threads_may_fill_tuples_while_variables_are_looked_for(devices: Devices) -> None:
    total = tf.Variable(tf.zeros([3]))

    @tf.function  # type: ignore[untyped-decorator]
    def counting(x: Any) -> Any:
        total.assign_add(tf.ones([3]))
        return tf.tanh(x)

    hidden = itertools.repeat(counting.get_concrete_function(tf.TensorSpec((8, 3))))

    def program(x: Any) -> Any:
        stop = threading.Event()

        def fill() -> int:
            """More elements than Python makes room for at first, so that each tuple is resized."""
            filled = 0
            while not stop.wait(0.001):
                filled += len(tuple(stop.wait(0.001) for _ in range(12)))
            return filled

        with ThreadPoolExecutor(1) as pool:
            filling = pool.submit(fill)
            try:
                rows = next(hidden)(x)
            finally:
                stop.set()
            filling.result()
        return rows

    reference = lambda x: next(hidden)(x)  # noqa: E731
    found = verify(program, reference, {"x": X}, devices=devices[:1], modes=("eager",))
    assert found.passed, found


def test_objects_are_looked_through_while_tensors_make_the_dicts_of_their_attributes() -> None:
    gc.collect()
    thresholds = gc.get_threshold()
    total = tf.Variable(tf.zeros([3]))
    try:
        gc.set_threshold(10**6)
        tensors = [tf.constant(float(number)) for number in range(300)]
        for number, tensor in enumerate(tensors):
            tensor.number = number
        # More dicts are made than may be before the garbage collector starts.
        gc.set_threshold(gc.get_count()[0] + 100)
        found = _instances({type(total)})
    finally:
        gc.set_threshold(*thresholds)
    assert any(each is total for each in found)
    assert gc.isenabled()
