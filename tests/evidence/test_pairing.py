"""Links by wiring alone are those that were written down while the graph was built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from sample_programs import convolutional, custom, dense, images, many, on, over_two, rows, taped, variable

from harness import DeviceName, make_parallel
from harness.devices.device import Devices
from harness.evidence.bodies import Body, Graph, open_bodies
from harness.evidence.marks import FORWARD_ATTRIBUTE
from harness.evidence.pairing import pair
from harness.evidence.recorder import record
from harness.strategies import Built, programs, sample

pytestmark = pytest.mark.devices(min=4, kind=["logical-cpu", "gpu"])

#: They compute nothing.
_LEFT_OUT = frozenset({"Const", "Identity", "IdentityN", "ReadVariableOp", "EmptyTensorList"})


def compared(fn: Callable[..., Any], *arguments: Any) -> tuple[int, list[str], list[str]]:
    """How many links are right, which are wrong, and which are missing, of the first call of a ``tf.function``."""
    with record() as recording:
        fn(*arguments)
    right, wrong, missing = 0, [], []
    for collected in recording.graphs:
        graph = Graph.of(collected.before)
        for body in open_bodies(Body("", DeviceName(), list(graph.nodes), "graph"), graph.library):
            found = pair(body) if body.forward is None else {}
            for node in body.nodes if body.forward is None else ():
                if FORWARD_ATTRIBUTE not in node.attr or node.op in _LEFT_OUT:
                    continue
                told = node.attr[FORWARD_ATTRIBUTE].s.decode()
                if found.get(node.name) == told:
                    right += 1
                elif found.get(node.name) is None:
                    missing.append(f"{node.name} of {told}")
                else:
                    wrong.append(f"{node.name} of {told}: {found[node.name]}")
    return right, wrong, missing


def _keras() -> tuple[Any, Any]:
    model = convolutional()

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(over_two(lambda part: model(part, training=True))(x)))
        return tape.gradient(loss, model.trainable_variables)

    return step, images()


def _second() -> tuple[Any, Any]:
    weights, bias = variable(3, 5), variable(5)

    def fn(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            _, grads = taped(over_two(dense(weights, bias)), [weights])(x)
            target = tf.reduce_sum(grads[0] * grads[0]) + tf.reduce_sum(grads[1] ** 2)
        return outer.gradient(target, [x, weights])

    return fn, rows()


def _same_everywhere() -> tuple[Any, Any]:
    """The same ops on the same tensors on two devices: only the join tells them apart."""

    def fn(x: Any) -> Any:
        results = []
        for device in (1, 2):
            with on(device):
                results.append(tf.math.xlogy(x, x))
        return tf.concat(results, 0)

    return taped(fn), tf.abs(rows())


MAKE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "dense": lambda: (taped(over_two(dense(variable(3, 5), variable(5)))), rows()),
    "many ops": lambda: (taped(over_two(many(variable(3, 5)))), rows()),
    "custom gradient": lambda: (taped(over_two(custom)), rows()),
    "recomputed": lambda: (taped(over_two(tf.recompute_grad(dense(variable(3, 5), variable(5))))), rows()),
    "second derivative": _second,
    "keras": _keras,
    "same everywhere": _same_everywhere,
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", MAKE)
def test_every_link_is_found_by_wiring(name: str) -> None:
    fn, x = MAKE[name]()
    right, wrong, missing = compared(tf.function(fn), x)
    assert (wrong, missing) == ([], [])
    assert right > 2


def test_every_link_of_a_data_parallel_step_is_found_by_wiring(devices: Devices) -> None:
    weights = variable(3, 5)
    parallel = make_parallel(lambda x: tf.nn.relu(tf.tanh(tf.matmul(x, weights))), devices)
    right, wrong, missing = compared(tf.function(taped(lambda x: parallel(x=x), [weights])), rows())
    assert (wrong, missing) == ([], [])
    assert right > 16


def test_two_ops_that_nothing_tells_apart_have_no_link() -> None:
    def fn(x: Any) -> Any:
        results = []
        for device in (1, 2):
            with on(device):
                results.append(tf.math.xlogy(x, x))
        return results  # both are targets, and nothing joins them

    _, wrong, missing = compared(tf.function(taped(fn)), tf.abs(rows()))
    assert wrong == []
    assert missing


def _on_two_devices(built: Built) -> Callable[[], Any]:
    inputs = tf.nest.map_structure(tf.constant, built.program.inputs())
    leaves = [leaf for leaf in tf.nest.flatten(inputs) if leaf.dtype.is_floating]

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(leaves)
            results = []
            for device in (1, 2):
                with on(device):
                    outputs = tf.nest.flatten(built.fn(**inputs))
                    results.append([leaf for leaf in outputs if leaf.dtype.is_floating])
            joined = [tf.stack(list(both)) for both in zip(*results, strict=True)]
        return tape.gradient(joined, [*leaves, *built.variables])

    return step


@pytest.mark.variant
def test_links_of_generated_programs_are_found_by_wiring() -> None:
    total, lost = 0, 0
    for program in sample(programs(), 25, seed=5):
        if program.differentiable:
            right, wrong, missing = compared(tf.function(_on_two_devices(program.build()), autograph=False))
            assert wrong == []
            total, lost = total + right, lost + len(missing)
    assert total > 200
    assert lost <= total * 0.03
