"""Within ``colocate_gradients`` backward ops run beside their forward ops, and no value changes."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tower_programs import PROGRAMS, Towers, elsewhere, loss_of, numbers, on_each

from harness import Device, Devices, colocate_gradients, make_parallel, trace
from harness.faults.catalogue import FAULTS
from harness.judgement.placement import gradient_ops
from harness.judgement.verify import verify
from harness.records import Verdict

MODES = pytest.mark.parametrize("mode", ["eager", "graph"])


def in_mode(mode: str, program: Callable[[], Any]) -> Callable[[], Any]:
    return program if mode == "eager" else tf.function(program)


@contextmanager
def as_written() -> Iterator[None]:
    """Graphs run as they were built. Grappler rewrites what is on one device, so that it rounds by the placement."""
    options = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **options})


def same_bits(found: Any, expected: Any) -> bool:
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@pytest.mark.cases(4)
@MODES
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_backward_ops_run_beside_their_forward_ops_and_values_stay(
    devices: Devices, program: Callable[[Towers], Any], mode: str
) -> None:
    towers = Towers(devices)
    plain = in_mode(mode, lambda: program(towers))
    assert elsewhere(trace(plain)), "the program has nothing to mend"
    colocated = in_mode(mode, colocate_gradients(lambda: program(towers)))
    found = trace(colocated)
    assert gradient_ops(found) > 0
    assert elsewhere(found) == []
    with as_written():
        expected = in_mode(mode, lambda: program(towers))()
        assert same_bits(in_mode(mode, colocate_gradients(lambda: program(towers)))(), expected)
        with colocate_gradients():
            assert same_bits(in_mode(mode, lambda: program(towers))(), expected)
    # The context around a call, and around the trace of it, of a tf.function that was traced outside before.
    with colocate_gradients():
        around = trace(plain)
    assert elsewhere(around) == []
    assert elsewhere(trace(plain)), "the context has an effect outside"


@pytest.mark.cases(1)
@MODES
def test_programs_whose_gradients_are_vectorised_or_forward_keep_their_values(devices: Devices, mode: str) -> None:
    towers = Towers(devices)
    for program in (Towers.jacobian, Towers.forward_over_reverse):
        call = in_mode(mode, functools.partial(program, towers))
        expected = tf.nest.flatten(call())
        with colocate_gradients():
            found = tf.nest.flatten(call())
        for value, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.cases("jacobian-eager")
@MODES
@pytest.mark.parametrize("kind", ["jacobian", "batch_jacobian", "in a decorated forward pass", "of make_parallel"])
def test_vectorised_backward_ops_run_beside_their_forward_ops(devices: Devices, kind: str, mode: str) -> None:
    w = tf.Variable(numbers(6, 4))
    x = numbers(2 * len(devices), 6)

    def tower(rows: Any) -> Any:
        return tf.tanh(tf.matmul(rows, w))

    def by_hand(x: Any) -> Any:
        return tf.concat(on_each(devices, tower, x), axis=0)

    def program(forward: Callable[[Any], Any] = by_hand) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
            total = tf.reduce_sum(y, axis=0)
        return tape.batch_jacobian(y, x) if kind == "batch_jacobian" else tape.jacobian(total, [w, x])

    mended: Callable[[], Any]
    if kind == "in a decorated forward pass":
        mended = functools.partial(program, colocate_gradients(by_hand))
    elif kind == "of make_parallel":
        mended = functools.partial(program, make_parallel(tower, devices))
    else:
        mended = colocate_gradients(program)
    places = {device.parsed for device in devices}

    def backward(call: Callable[[], Any]) -> set[Any]:
        return {op.device for op in trace(call).ops if op.type == "TanhGrad" and op.device is not None}

    assert backward(in_mode(mode, program)) != places
    assert backward(in_mode(mode, mended)) == places
    assert elsewhere(trace(in_mode(mode, mended))) == []
    assert mode == "eager" or elsewhere(trace(tf.function(program)))
    with as_written():
        assert same_bits(in_mode(mode, mended)(), in_mode(mode, program)())


@MODES
def test_gradients_of_a_tensor_are_added_where_it_is_and_of_a_variable_where_that_is(
    devices: Devices, mode: str
) -> None:
    first, last = devices[0], devices[-1]
    with tf.device(last.name):
        w = tf.Variable(numbers(4, 4))
    x = numbers(3, 4)

    @colocate_gradients()
    def program() -> Any:
        with tf.GradientTape() as tape:
            with tf.device(first.name):
                hidden = tf.matmul(x, w)
                other = tf.sin(hidden)
            with tf.device(last.name):
                loss = tf.reduce_sum(tf.matmul(tf.cos(hidden), w))
            loss += tf.reduce_sum(other)
        return tape.gradient(loss, w)

    sums = [op for op in trace(in_mode(mode, program)).ops if op.type == "AddN"]
    places = [op.device.short if op.device else None for op in sums]
    assert places == [first.parsed.short, last.parsed.short], sums


READERS: dict[str, Callable[[Any, Any], Any]] = {
    "in a condition": lambda w, x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(x @ w), lambda: tf.sin(x @ w)),
    "in a loop": lambda w, x: tf.while_loop(lambda n, _: n < 2, lambda n, y: (n + 1, tf.tanh(y @ w)), (0, x))[1],
    "in map_fn": lambda w, x: tf.map_fn(lambda row: tf.tanh(tf.linalg.matvec(w, row)), x),
    "by a lookup": lambda w, x: tf.tanh(tf.gather(w, tf.where(x[:, 0] > 0, 1, 2))),
    "recomputed": lambda w, x: tf.recompute_grad(lambda x: tf.tanh(x @ w))(x),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("read", READERS)
def test_gradients_of_a_variable_are_added_in_a_graph_where_it_is_however_it_is_read(
    devices: Devices, read: str
) -> None:
    """TensorFlow gives the argument that stands for the variable the scope in which it was read first."""
    last = devices[-1]
    with tf.device(last.name):
        w = tf.Variable(numbers(6, 6))
    x = numbers(2 * len(devices), 6)

    def program() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(on_each(devices, lambda rows: READERS[read](w, rows), x))
        gradient = tape.gradient(loss, w)
        return gradient.values if read == "by a lookup" else gradient

    with colocate_gradients():
        graph = tf.function(program).get_concrete_function().graph
    # A lookup has sparse gradients, which are put one behind the other: first the forward results are.
    sums = [op for op in graph.get_operations() if op.type == "AddN"]
    sums += [op for op in graph.get_operations() if op.type == "ConcatV2" and len(op.inputs) > len(devices)][1:]
    places = {tf.DeviceSpec.from_string(op.device).device_index for op in sums}
    assert places == {last.parsed.index}, sums
    with as_written():
        assert same_bits(tf.function(colocate_gradients(program))(), tf.function(program)())


@pytest.mark.cases("nothing-eager")
@MODES
@pytest.mark.parametrize("within", ["nothing", "a loop", "a function"])
def test_gradients_of_variables_that_one_function_is_called_with_are_added_where_it_is_called(
    devices: Devices, within: str, mode: str
) -> None:
    """One trace serves the variables of all towers. A variable that it carries is the same for all."""
    first = devices[0]
    with tf.device(first.name):
        shared = tf.Variable(numbers(6, 6))
    own = []
    for device in devices:
        with tf.device(device.name):
            own.append(tf.Variable(numbers(6, 6, seed=1)))

    def layer(x: Any, w: Any) -> Any:
        return tf.tanh(tf.matmul(x, w)) * tf.sin(tf.matmul(x, w))

    def forward(x: Any, w: Any) -> Any:
        if within == "a function":
            return tf.function(layer)(x, w)
        if within == "a loop":
            return tf.while_loop(lambda n, _: n < 2, lambda n, y: (n + 1, layer(y, w)), (0, x))[1]
        return layer(x, w)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def tower(x: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(forward(x, w)) + tf.reduce_sum(layer(x, shared))
        return tape.gradient(loss, [w, shared])

    def step() -> Any:
        gradients = []
        for device, w in zip(devices, own, strict=True):
            with tf.device(device.name):
                gradients.append(tower(numbers(3, 6), w))
        return gradients

    def sums(call: Callable[[], Any]) -> Counter[Any]:
        run = trace(in_mode(mode, call))
        return Counter(op.device for op in run.ops if op.type == "AddN" and op.device is not None)

    of_own = sums(step)[devices[-1].parsed] - 1
    assert sums(step) == {device.parsed: of_own + 1 for device in devices}
    expected = Counter({device.parsed: of_own for device in devices}) + Counter({first.parsed: len(devices)})
    assert sums(colocate_gradients(step)) == expected
    with as_written():
        assert same_bits(in_mode(mode, colocate_gradients(step))(), in_mode(mode, step)())


@pytest.mark.cases("eager")
@MODES
def test_targets_that_no_gradient_comes_from_and_those_that_are_weighted(devices: Devices, mode: str) -> None:
    towers = Towers(devices)

    def program(weight: Callable[[int, Any], Any]) -> Any:
        with tf.GradientTape() as tape:
            parts = on_each(devices, towers.dense, towers.x)
        weights = [weight(at, part) for at, part in enumerate(parts)]
        return tape.gradient(parts, [towers.w, towers.b], output_gradients=weights)

    weights: list[Callable[[int, Any], Any]] = [
        lambda at, part: None if at else tf.ones_like(part),
        lambda at, part: part * at,
        lambda at, part: towers.x[:2],  # one tensor for all
    ]
    with as_written():
        for weight in weights:
            call = functools.partial(program, weight)
            found, expected = in_mode(mode, colocate_gradients(call))(), in_mode(mode, call)()
            assert same_bits(found, expected)
            assert elsewhere(trace(in_mode(mode, colocate_gradients(call)))) == []


@MODES
def test_one_gradient_that_is_of_tensors_on_two_devices_is_added_up_on_each(devices: Devices, mode: str) -> None:
    """TensorFlow hands the same tensor on as the gradient of both terms of a sum."""
    first, last = devices[0], devices[-1]
    a, b = tf.Variable(numbers(3, 3)), tf.Variable(numbers(3, 3, seed=1))

    def program() -> Any:
        with tf.GradientTape() as tape:
            with tf.device(first.name):
                left = tf.sin(a)
            with tf.device(last.name):
                right = tf.cos(b)
            with tf.device(first.name):
                loss = tf.reduce_sum((left + right) * (left + right) + (left + right))
        return tape.gradient(loss, [a, b])

    found = trace(in_mode(mode, colocate_gradients(program)))
    sums = [op.device.short if op.device else None for op in found.ops if op.type == "AddN"]
    assert sorted(map(str, sums)) == sorted({first.parsed.short, last.parsed.short})
    assert elsewhere(found) == []
    with as_written():
        assert same_bits(in_mode(mode, colocate_gradients(program))(), in_mode(mode, program)())


@pytest.mark.cases(1)
@MODES
def test_keras_layers_and_an_optimizer_train_as_without_the_context(devices: Devices, mode: str) -> None:
    def trained(colocated: bool) -> tuple[list[Any], Any]:
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(8, activation="gelu"),
                tf.keras.layers.LayerNormalization(),
                tf.keras.layers.Dense(2),
            ]
        )
        model.build((None, 4))
        optimizer = tf.keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        x = numbers(4 * len(devices), 4)

        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(on_each(devices, model, x))
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
            )
            return loss

        call = in_mode(mode, colocate_gradients(step) if colocated else step)
        call()
        return [call(), call(), *model.trainable_variables], trace(call)

    with as_written():
        values, ran = trained(colocated=True)
        expected, plain = trained(colocated=False)
    assert same_bits(values, expected)
    assert elsewhere(plain)
    assert elsewhere(ran) == []


@pytest.mark.cases(2)
@MODES
@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS.values() if fault.id in ("P01", "P02")], ids=lambda fault: fault.id
)
def test_planted_faults_of_gradient_placement_are_cured(devices: Devices, fault: Any, mode: str) -> None:
    case = fault.plant(devices)
    options = {**case.options, "modes": (mode,)}
    with case.surroundings():
        plain = verify(case.parallel, case.reference, case.inputs, devices=devices, **options)
    assert {finding.kind for finding in plain.findings} == {"gradient-placement"}
    with case.surroundings(), colocate_gradients():
        cured = verify(case.parallel, case.reference, case.inputs, devices=devices, **options)
    assert cured.verdict is Verdict.PASS, cured
    assert cured.exercised.gradient_ops


def test_the_device_of_an_op_is_where_it_ran_not_where_it_was_asked_to_run(devices: Devices) -> None:
    """An absent device: soft placement moves the op, and its gradient goes where the op went."""
    assert isinstance(devices[0], Device)
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    try:
        with colocate_gradients(), tf.GradientTape() as tape:
            x = tf.Variable(numbers(3, 3))
            with tf.device("/device:CPU:99"):
                y = tf.matmul(x, x)
            of_x = tape.gradient(y, x)
        np.testing.assert_array_equal(
            of_x,
            tf.matmul(tf.ones((3, 3)), x, transpose_b=True) * 1.0 + tf.matmul(x, tf.ones((3, 3)), transpose_a=True),
        )
    finally:
        tf.config.set_soft_device_placement(before)
