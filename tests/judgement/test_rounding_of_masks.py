"""Masks of zeros and ones have no rounding error: a large number that they are multiplied by hides no fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample


def by_a_band(scores: Any) -> Any:
    mask = tf.linalg.band_part(tf.ones_like(scores), -1, 0)
    return scores + (mask - 1.0) * 1e9


def by_a_product_of_masks(scores: Any) -> Any:
    rows = tf.cast(tf.range(8) < 7, tf.float32)
    mask = rows[:, tf.newaxis] * rows[tf.newaxis, :] + tf.eye(8)
    return scores + (1.0 - tf.minimum(mask, 1.0)) * -1e9


@pytest.mark.cases(1)
@pytest.mark.parametrize("masked", [by_a_band, by_a_product_of_masks])
@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_attention_with_a_mask_is_judged(devices: Devices, masked: Callable[[Any], Any], factor: float) -> None:
    weights = [tf.Variable(sample(6, 6, seed=seed)) for seed in range(3)]

    def reference(x: Any) -> Any:
        queries, keys, values = (tf.matmul(x, each) for each in weights)
        return tf.matmul(tf.nn.softmax(masked(tf.matmul(queries, keys, transpose_b=True))), values)

    def parallel(x: Any) -> Any:
        queries, keys, values = (tf.matmul(x, each) for each in weights)
        scores = masked(tf.matmul(queries, keys, transpose_b=True))
        outputs = []
        for device, part in zip(devices, tf.split(scores, len(devices)), strict=True):
            with tf.device(device.name):
                # Another order of the sums than the reference's: the last keys first.
                share = tf.nn.softmax(part[:, ::-1])
                outputs.append(tf.matmul(share, values[::-1]) * factor)
        return tf.concat(outputs, 0)

    found = verify(parallel, reference, {"x": sample(8, 6)}, devices=devices)
    seen = {(each.kind, each.mode) for each in found.findings}
    assert seen == (set() if factor == 1.0 else {("value", "eager, graph")}), found
    assert found.verdict is (Verdict.PASS if factor == 1.0 else Verdict.FAIL), found
