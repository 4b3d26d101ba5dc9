"""Custom gradients that read variables anew, as ``tf.recompute_grad`` does, with a batch size that is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, make_parallel
from harness.judgement.runs import soft_placement

X = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
WEIGHTS = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


def _programs(weights: Any) -> dict[str, Callable[..., Any]]:
    def layer(x: Any) -> Any:
        return tf.tanh(x @ weights)

    def loop(x: Any) -> Any:
        return tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, layer(h)), (0, x))[1]

    once = tf.recompute_grad(layer)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def by_jacobian(x: Any) -> Any:
        def grad(upstream: Any, variables: Any = ()) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                result = layer(x)
            own = tf.einsum("bi,bij->bj", upstream, tape.batch_jacobian(result, x))
            return own, [tf.zeros_like(each) for each in variables]

        return layer(x), grad

    return {
        "recomputed": once,
        "a recomputed loop": tf.recompute_grad(loop),
        "recomputed in recomputed": tf.recompute_grad(lambda x: once(once(x))),
        "a Jacobian": by_jacobian,
    }


@pytest.fixture
def placed_softly(devices: Devices) -> Iterator[None]:
    """As TensorFlow has it by default: a Jacobian splits integers, for which GPUs have no kernel."""
    with soft_placement():
        yield


@pytest.mark.usefixtures("placed_softly")
@pytest.mark.parametrize("name", _programs(None))
def test_the_gradients_are_those_of_one_device(devices: Devices, name: str) -> None:
    weights = tf.Variable(WEIGHTS)
    program = _programs(weights)[name]

    def gradients(fn: Callable[..., Any]) -> Any:
        @tf.function(input_signature=[tf.TensorSpec([None, 3])])  # type: ignore[untyped-decorator]
        def both(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                result = fn(x)
            return tape.gradient(result, [x, weights])

        return both

    split, whole = gradients(make_parallel(program, devices[:2])), gradients(program)
    for rows in (5, 1) if name == "a Jacobian" else (5, 1, 0):  # TensorFlow has no Jacobian of 0 rows
        for have, want in zip(split(X[:rows]), whole(X[:rows]), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
