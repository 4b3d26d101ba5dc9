"""A reference that gives something else in a graph than in eager code proves nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, make_parallel, verify

X = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)


@pytest.mark.parametrize("factor", [1.0, 1.0001, 1.1])
def test_it_is_unknown_what_both_programs_do_alike_in_a_graph_alone(devices: Devices, factor: float) -> None:
    def fn(x: Any) -> Any:
        return tf.tanh(x) if tf.executing_eagerly() else tf.tanh(x) * factor

    found = verify(make_parallel(fn, devices[:2]), fn, {"x": X}, devices=devices[:2])
    if factor < 1.01:
        assert found.verdict is Verdict.PASS, found
    else:
        assert found.verdict is Verdict.UNKNOWN, found
        assert "between eager and graph mode" in found.reason


@pytest.mark.parametrize(("size", "verdict"), [(1e-9, Verdict.PASS), (1e-3, Verdict.UNKNOWN)])
def test_what_is_rounding_error_beside_the_other_outputs_may_differ(
    devices: Devices, size: float, verdict: Verdict
) -> None:
    def fn(x: Any) -> Any:
        # As the gradient of a bias before a normalisation, which is 0.
        return tf.tanh(x), tf.tanh(x) * (size if tf.executing_eagerly() else 2 * size)

    assert verify(make_parallel(fn, devices[:2]), fn, {"x": X}, devices=devices[:2]).verdict is verdict


def test_that_the_reference_draws_random_numbers_comes_before_what_follows_from_it(devices: Devices) -> None:
    def model(x: Any) -> Any:
        return tf.nn.dropout(x, 0.5)

    found = verify(make_parallel(model, devices), model, {"x": X}, devices=devices)
    assert found.verdict is Verdict.UNKNOWN, found
    begin = "two runs of the reference differ, because it draws random numbers: RandomUniform"
    assert found.reason.startswith(begin), found
    assert "ill-conditioned" not in found.reason
    assert "between eager and graph" not in found.reason
