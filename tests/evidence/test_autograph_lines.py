"""AutoGraph makes functions of loops, branches and lambdas; each op keeps the line of its own statement."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import harness

pytestmark = pytest.mark.usefixtures("devices")


def halved(x: Any) -> Any:
    y = tf.sin(x)  # Sin
    return 0.5 * y


def step(x: Any) -> Any:
    for _ in [1, 2]:
        x = tf.tanh(x)  # Tanh
    for _ in tf.range(3):
        x = tf.nn.relu(x)  # Relu
        x = halved(x)  # calls Sin
    if tf.reduce_sum(x) > 0.0:
        x = tf.math.erf(x)  # Erf
    else:
        x = tf.cos(x)  # Cos
    while tf.reduce_max(x) > 1e9:  # Max
        x = tf.sigmoid(x)  # Sigmoid

    def inner(z: Any) -> Any:
        if len(z.shape) == 1:
            z = tf.sinh(z)  # Sinh
        return z

    x = inner(x)  # calls Sinh
    last: Callable[[Any], Any] = lambda q: tf.cosh(q)  # noqa: E731  # Cosh
    x = last(x)
    results = [tf.atan(x) for _ in range(2)]  # Atan
    for name in ("CPU:0", "CPU:1"):
        with tf.device(name):
            if name != "CPU:0":
                results.append(tf.nn.elu(x))  # Elu
    return tf.add_n(results)  # AddN


def test_each_op_has_the_line_of_its_statement_and_the_call_of_its_function() -> None:
    traced = tf.function(step)
    found = harness.trace(traced, tf.ones([3]))
    marked: dict[str, int] = {}
    for function in (halved, step):
        lines, first = inspect.getsourcelines(function)
        marked |= {line.rpartition("# ")[2].strip(): number for number, line in enumerate(lines, first) if "# " in line}
    made = {op.type: [int(place.rpartition(":")[2]) for place in found.places[op.name]] for op in found.ops}
    expected = {name: line for name, line in marked.items() if not name.startswith("calls ")}
    assert {name: made[name][0] for name in expected} == expected
    # The for, if and while around an op are in its own function, and call nothing. To TensorFlow, so is a lambda.
    assert {name: made[name.removeprefix("calls ")][1] for name in marked if name not in expected} == {
        name: line for name, line in marked.items() if name not in expected
    }
    assert len({made[name][1] for name in expected if f"calls {name}" not in marked}) == 1
