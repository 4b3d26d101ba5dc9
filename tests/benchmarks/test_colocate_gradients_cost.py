"""What ``colocate_gradients`` costs beside the same step without it, and what graphs of many variables cost to build.

The eager step works in one device scope or in none, so that the context moves nothing: what is measured is its
bookkeeping. The graphs are of towers by hand, those within the context, and ``make_parallel``; they are built, not run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import harness

pytest_plugins = ["figures"]

_ABSURD = 4.0


@pytest.mark.parametrize("scope", [True, False])
@pytest.mark.parametrize("units", [64, 512])
def test_an_eager_step_within_the_context(
    compare: Callable[..., object], devices: harness.Devices, units: int, scope: bool
) -> None:
    import tensorflow as tf

    tf.random.set_seed(0)
    weights = [tf.Variable(tf.random.normal([units, units]) * units**-0.5) for _ in range(4)]
    biases = [tf.Variable(tf.zeros([units])) for _ in weights]
    x = tf.random.normal([256, units])

    def step(_: int) -> object:
        with tf.device(devices[0].name if scope else None):
            with tf.GradientTape() as tape:
                y = x
                for w, b in zip(weights, biases, strict=True):
                    y = tf.nn.relu(tf.matmul(y, w) + b)
                loss = tf.reduce_mean(y**2)
            grads = tape.gradient(loss, weights + biases)
            for variable, grad in zip(weights + biases, grads, strict=True):
                variable.assign_sub(1e-3 * grad)
        return loss.numpy()

    compare(
        f"colocate_gradients / without: eager step, {units} units{'' if scope else ', no scope'}",
        harness.colocate_gradients(step),
        step,
        target=1.05,
        absurd=_ABSURD,
        pairs=100,
    )


def _sides(devices: harness.Devices, variables: int) -> dict[str, Callable[[], Any]]:
    """Functions that build the graph of a training step's gradients."""
    import tensorflow as tf

    weights = [tf.Variable(tf.eye(8)) for _ in range(variables)]
    x = tf.ones([16, 8])

    def model(x: Any) -> Any:
        for w in weights:
            x = tf.tanh(tf.matmul(x, w))
        return x

    def by_hand(x: Any) -> Any:
        results = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                results.append(model(part))
        with tf.device(devices.host):
            return tf.concat(results, axis=0)

    def gradients(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(fn(x) ** 2)
            return tape.gradient(loss, weights)

        return step

    parallel = harness.make_parallel(model, devices)
    steps = {
        "by hand": gradients(by_hand),
        "colocate_gradients": harness.colocate_gradients(gradients(by_hand)),
        "make_parallel": gradients(lambda x: parallel(x=x)),
    }

    def build(step: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: tf.function(step, autograph=False).get_concrete_function(x)

    return {name: build(step) for name, step in steps.items()}


@pytest.mark.parametrize("name", ["colocate_gradients", "make_parallel"])
@pytest.mark.parametrize("variables", [40, 160])
def test_building_a_graph_of_many_variables(
    compare: Callable[..., object],
    record_property: Callable[[str, object], None],
    devices: harness.Devices,
    variables: int,
    name: str,
) -> None:
    sides = _sides(devices, variables)
    sizes = {side: len(build().graph.as_graph_def().SerializeToString()) for side, build in sides.items()}
    ratio = sizes[name] / sizes["by hand"]
    record_property("graph_def_ratio", ratio)
    print(f"\nGraphDef of {name} / by hand, {variables} variables: {ratio:.2f}")
    # The size of a graph is no matter of a busy machine.
    assert ratio < 1.3
    compare(
        f"{name} / by hand: build a graph, {variables} variables",
        lambda _: sides[name](),
        lambda _: sides["by hand"](),
        target=1.5,
        absurd=_ABSURD,
        pairs=5,
        warmup=1,
        clock=time.process_time,
    )
