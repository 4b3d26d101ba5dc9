#!/usr/bin/env python
"""How many random programs ``verify`` checks per second, beside JAX: ``shard_map`` under ``jit``, with gradients.

    tox -e jax                                            # in an environment with both; two minutes on two cores
    python tests/benchmarks/scripts/against_shard_map.py --examples 40  # where JAX is installed

Each example is a chain of three dense layers of random sizes and activations, on four logical CPUs. JAX's side compiles
the sharded program and the same program on one device, both with gradients, and compares values and gradients. The
harness's side is ``verify`` of ``make_parallel``, in graph mode and in both modes, which proves besides where every op
ran. TensorFlow's sides build both graphs with gradients and run each once, which is what any check in graph mode needs
at least, and run both programs with gradients in eager mode too, which any check in both modes needs besides. All sides
take the same examples, in random order, each building its program anew.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

# The repository's own package, whether it is installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

_DEVICES = 4
_ACTIVATIONS = ("tanh", "relu", "sigmoid", "gelu", "softplus")


@dataclass(frozen=True)
class Example:
    """What a program is made of. All arrays are float32."""

    x: Any
    weights: list[Any]
    activations: list[str]
    #: Weights of the sum of the outputs that is differentiated.
    projection: Any


def example(seed: int) -> Example:
    """A random chain of three dense layers; the rows divide by the devices, as ``shard_map`` wants it."""
    import numpy as np

    draw = np.random.default_rng(seed)
    widths = [int(draw.integers(2, 9)) for _ in range(4)]
    rows = _DEVICES * int(draw.integers(1, 6))

    def numbers(*shape: int) -> Any:
        return draw.normal(size=shape).astype(np.float32)

    return Example(
        numbers(rows, widths[0]),
        [numbers(*pair) for pair in pairwise(widths)],
        [str(draw.choice(_ACTIVATIONS)) for _ in range(3)],
        draw.choice([-2.0, -1.0, 1.0, 2.0], size=(rows, widths[-1])).astype(np.float32),
    )


def with_jax(one: Example) -> None:
    """Check the example with JAX."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, PartitionSpec

    shard_map: Any = getattr(jax, "shard_map", None)
    if shard_map is None:  # before JAX 0.7
        shard_map = importlib.import_module("jax.experimental.shard_map").shard_map

    mesh = Mesh(np.array(jax.devices("cpu")[:_DEVICES]), ("rows",))

    def program(weights: Any, x: Any) -> Any:
        for weight, name in zip(weights, one.activations, strict=True):
            x = (jnp.tanh if name == "tanh" else getattr(jax.nn, name))(x @ weight)
        return x

    by_rows = PartitionSpec("rows")
    sharded = shard_map(program, mesh=mesh, in_specs=(PartitionSpec(), by_rows), out_specs=by_rows)

    def step(fn: Callable[[Any, Any], Any]) -> Any:
        def loss(weights: Any, x: Any) -> Any:
            y = fn(weights, x)
            return jnp.sum(y * one.projection), y

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))

    (_, found), grads = step(sharded)(one.weights, one.x)
    (_, expected), wanted = step(program)(one.weights, one.x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for have, want in zip(jax.tree.leaves(grads), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4)


def programs(one: Example, devices: Any) -> tuple[list[Any], Callable[..., Any], Callable[..., Any]]:
    """The example for TensorFlow: its variables, the parallel program and the single-device one."""
    import tensorflow as tf

    import harness

    weights = [tf.Variable(weight) for weight in one.weights]

    def program(x: Any) -> Any:
        for weight, name in zip(weights, one.activations, strict=True):
            x = (tf.tanh if name == "tanh" else getattr(tf.nn, name))(tf.matmul(x, weight))
        return x

    return weights, harness.make_parallel(program, devices), program


def with_verify(one: Example, devices: Any, modes: tuple[str, ...]) -> None:
    """Check the example with ``harness.verify``."""
    import harness

    weights, parallel, program = programs(one, devices)
    found = harness.verify(
        parallel, program, {"x": one.x}, devices=devices, variables=weights, gradients=True, modes=modes
    )
    if found.verdict is not harness.Verdict.PASS:
        raise SystemExit(str(found))


def with_tensorflow(one: Example, devices: Any, *, eager: bool) -> None:
    """Build both graphs of the example with gradients, and run each once; and with ``eager`` once without a graph."""
    import tensorflow as tf

    weights, *both = programs(one, devices)

    def step(fn: Callable[..., Any], x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x=x)
        return y, tape.gradient(y, [x, *weights], output_gradients=tf.constant(one.projection))

    x = tf.constant(one.x)
    for fn in both:
        if eager:
            step(fn, x)
        tf.function(step).get_concrete_function(fn, x)(x)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=60, help="programs that each side checks")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={_DEVICES}"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    import numpy as np

    import harness

    devices = harness.configure(f"cpu:{_DEVICES}")
    sides: dict[str, Callable[[Example], None]] = {
        "jax: shard_map, jit": with_jax,
        "TensorFlow alone, graphs": lambda one: with_tensorflow(one, devices, eager=False),
        "TensorFlow alone, both modes": lambda one: with_tensorflow(one, devices, eager=True),
        "verify, graph mode": lambda one: with_verify(one, devices, ("graph",)),
        "verify, both modes": lambda one: with_verify(one, devices, ("eager", "graph")),
    }
    taken_s, computed_s = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0.0)
    order = np.random.default_rng(options.seed)
    for number in range(-3, options.examples):
        one = example(options.seed + number + 3)
        for name in map(str, order.permutation(list(sides))):
            began, began_cpu = time.perf_counter(), time.process_time()
            sides[name](one)
            if number >= 0:  # the first ones load what is loaded once
                taken_s[name] += time.perf_counter() - began
                computed_s[name] += time.process_time() - began_cpu
    first = next(iter(sides))
    for name in sides:
        sys.stdout.write(
            f"{name}: {options.examples / taken_s[name]:.2f} examples/s, {taken_s[first] / taken_s[name]:.2f} times; "
            f"{1e3 * computed_s[name] / options.examples:.0f} ms of processor time each, "
            f"{computed_s[first] / computed_s[name]:.2f} times\n"
        )


if __name__ == "__main__":
    main()
