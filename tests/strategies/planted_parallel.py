"""Faulty ways to split a program, by name, for scripts that import them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import harness
from harness import Device


def forgets_the_last_row(
    fn: Callable[..., Any], devices: Sequence[Device], *, axis: int = 0, broadcast: Sequence[str] = ()
) -> Callable[..., Any]:
    """As ``harness.make_parallel``, but the last row of each result is 0."""
    import tensorflow as tf

    parallel = harness.make_parallel(fn, devices, axis=axis, broadcast=broadcast)

    def zeroed(result: Any) -> Any:
        rows = tf.shape(result)[axis]
        shape = [1] * result.shape.rank
        shape[axis] = -1
        return result * tf.cast(tf.reshape(tf.range(rows) < rows - 1, shape), result.dtype)

    return lambda **inputs: tf.nest.map_structure(zeroed, parallel(**inputs))
