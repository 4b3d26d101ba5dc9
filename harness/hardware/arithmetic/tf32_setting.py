"""TF32 switched on or off for a while, where float32 products are to be seen both ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def tf32_set(on: bool | None) -> Iterator[None]:
    """With TF32 on or off for the kernels that run inside; ``None`` leaves it as it is and loads no TensorFlow."""
    if on is None:
        yield
        return
    import tensorflow as tf

    before = bool(tf.config.experimental.tensor_float_32_execution_enabled())
    tf.config.experimental.enable_tensor_float_32_execution(on)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
