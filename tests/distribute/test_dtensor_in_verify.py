"""A program that spreads its rows over a DTensor mesh, under ``verify``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import harness
from harness.faults.samples import sample
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)


def model(x: Any, weights: Any) -> Any:
    import tensorflow as tf

    return tf.nn.softmax(tf.matmul(x, weights))


def on_a_mesh(devices: harness.Devices, weights: Any) -> Callable[[Any], Any]:
    import tensorflow as tf

    dtensor = tf.experimental.dtensor
    mesh = dtensor.create_mesh([("batch", 2)], devices=[device.parsed.short for device in devices[:2]])
    whole, rows = dtensor.Layout.replicated(mesh, rank=2), dtensor.Layout.batch_sharded(mesh, "batch", rank=2)

    def parallel(x: Any) -> Any:
        with dtensor.default_mesh(mesh):
            spread = dtensor.relayout(dtensor.copy_to_mesh(x, whole), rows)
            return model(spread, dtensor.copy_to_mesh(tf.constant(weights), whole))

    return parallel


def test_rows_on_a_mesh_are_compared_and_a_graph_is_refused_in_words(devices: harness.Devices) -> None:
    weights, inputs = sample(4, 3), {"x": sample(6, 4)}

    def reference(x: Any) -> Any:
        return model(x, weights)

    right, wrong = on_a_mesh(devices, weights), on_a_mesh(devices, weights * 1.1)
    clean = harness.verify(right, reference, inputs, devices=devices[:2], modes=("eager",))
    assert clean.verdict is Verdict.PASS, clean
    found = harness.verify(wrong, reference, inputs, devices=devices[:2], modes=("eager",))
    assert {finding.kind for finding in found.findings} == {"value"}, found
    refused = harness.verify(right, reference, inputs, devices=devices[:2], modes=("graph",))
    assert "verify the program with modes=('eager',)" in refused.reason
