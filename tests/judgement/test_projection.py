"""The weights of the projection are the same whether a shape is known when a graph is built or when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.devices.device import Devices
from harness.judgement.runs import projection


@pytest.mark.parametrize("shape", [(), (7,), (5, 3), (0, 4)])
def test_known_and_unknown_shapes_get_the_same_weights(shape: tuple[int, ...], devices: Devices) -> None:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])  # type: ignore[untyped-decorator]
    def unknown(x: Any) -> Any:
        assert not x.shape.is_fully_defined()
        return projection(x, 3, tf.constant(1.0))

    target = tf.zeros(shape)
    known = projection(target, 3, None).numpy()
    assert known.shape == shape
    np.testing.assert_array_equal(known, unknown(target).numpy())


def test_the_weights_are_four_numbers_and_never_zero(devices: Devices) -> None:
    import tensorflow as tf

    weights = projection(tf.zeros([40, 25], tf.float16), 0, None).numpy()
    values, counts = np.unique(weights, return_counts=True)
    assert values.tolist() == [-2.0, -1.0, 1.0, 2.0]
    assert counts.min() > 200


def test_another_output_gets_other_weights(devices: Devices) -> None:
    import tensorflow as tf

    first, second = (projection(tf.zeros([100]), seed, None).numpy() for seed in (0, 1))
    assert 0.1 < np.mean(first == second) < 0.5


def test_rows_that_change_places_change_the_projection(devices: Devices) -> None:
    import tensorflow as tf

    weights = projection(tf.zeros([12, 8]), 0, None).numpy()
    assert len({row.tobytes() for row in weights}) == 12
