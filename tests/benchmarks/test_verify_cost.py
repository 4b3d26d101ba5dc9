"""What ``harness.verify`` costs beside the least that it has to do.

The least is to run both callables with gradients, in eager code and as a graph, and to fetch the results. A graph has
to be built for it each time: no two examples are of one shape. ``verify`` records what ran and where beside that,
looks for nondeterminism, finds the bound for each comparison, and judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import harness

pytest_plugins = ["figures"]

#: From the goals of the project.
_TARGET = 2.0
_ABSURD = 15.0


def run_least(
    callables: Sequence[Callable[..., Any]], inputs: Mapping[str, Any], variables: Sequence[Any], *, gradients: bool
) -> None:
    """Run each callable eagerly and as a new graph, with gradients for the variables and the floating inputs."""
    import tensorflow as tf

    for fn in callables:

        def step(*leaves: Any, fn: Callable[..., Any] = fn) -> Any:
            packed = tf.nest.pack_sequence_as(dict(inputs), leaves)
            if not gradients:
                return fn(**packed)
            sources = [leaf for leaf in leaves if leaf.dtype.is_floating]
            with tf.GradientTape() as tape:
                tape.watch(sources)
                outputs = fn(**packed)
            return outputs, tape.gradient(outputs, [*sources, *variables])

        leaves = [tf.constant(leaf) for leaf in tf.nest.flatten(dict(inputs))]
        graph = tf.function(step).get_concrete_function(*leaves)
        for run in (step, graph):
            tf.nest.map_structure(
                lambda result: None if result is None else tf.convert_to_tensor(result).numpy(), run(*leaves)
            )


def test_a_dense_tower(compare: Callable[..., object], devices: harness.Devices) -> None:
    import tensorflow as tf

    random = np.random.default_rng(0)
    kernel, bias, last = (
        tf.Variable(random.normal(size=shape).astype(np.float32), name=name)
        for name, shape in (("kernel", (3, 5)), ("bias", (5,)), ("last", (5, 2)))
    )
    variables = [kernel, bias, last]

    def tower(x: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.nn.bias_add(tf.tanh(tf.matmul(x, kernel) + 1.0), bias)), last)

    parallel = harness.make_parallel(tower, devices)
    pairs = 20
    batches = [random.normal(size=(7 + number, 3)).astype(np.float32) for number in range(pairs)]

    def ours(number: int) -> None:
        verification = harness.verify(parallel, tower, {"x": batches[number]}, devices=devices, variables=variables)
        assert verification.verdict is harness.Verdict.PASS, str(verification)

    def least(number: int) -> None:
        run_least((parallel, tower), {"x": batches[number]}, variables, gradients=True)

    compare("verify / least: a dense tower", ours, least, target=_TARGET, absurd=_ABSURD, pairs=pairs, warmup=1)


def test_generated_programs(compare: Callable[..., object], devices: harness.Devices) -> None:
    pairs = 16
    programs = harness.strategies.sample(harness.strategies.programs(), pairs, seed=20170717)

    def built(number: int) -> tuple[Any, Any, Any, Any]:
        program = programs[number]
        made = program.build(devices.host)
        parallel = harness.make_parallel(made.fn, devices, axis=program.axis, broadcast=program.broadcast)
        return program, made, parallel, program.inputs()

    # Each side has functions of its own, so that none finds a graph that another one built.
    for_nothing, for_ours, for_least = ([built(number) for number in range(pairs)] for _ in range(3))

    def ours(number: int) -> None:
        program, made, parallel, inputs = for_ours[number]
        verification = harness.verify(
            parallel, made.fn, inputs, devices=devices, variables=made.variables, gradients=program.differentiable
        )
        assert verification.verdict is not harness.Verdict.FAIL, str(verification)

    def least(number: int, prepared: list[tuple[Any, Any, Any, Any]] = for_least) -> None:
        program, made, parallel, inputs = prepared[number]
        run_least((parallel, made.fn), inputs, made.variables, gradients=program.differentiable)

    for number in range(pairs):
        # What TensorFlow loads when it meets a kind of op for the first time is not for either side to pay.
        least(number, for_nothing)
    compare("verify / least: generated programs", ours, least, target=_TARGET, absurd=_ABSURD, pairs=pairs, warmup=0)
