"""Shapes that TensorFlow knows or infers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.lazy import tf


def variable_shape(handle: Any) -> tuple[tuple[int, ...] | None, str] | None:
    """(shape, dtype) of the variable with this handle, the shape ``None`` if it is not fixed; ``None`` of others."""
    data = handle._handle_data
    if data is None or not data.is_set or not data.shape_and_type:
        return None
    found = data.shape_and_type[0]
    shape = tf.TensorShape(found.shape)
    dtype = tf.as_dtype(found.dtype).name
    return (tuple(shape) if shape.is_fully_defined() else None), dtype


def inferred_shapes(op: Any, given: Sequence[tuple[Any, tuple[int, ...]]]) -> list[tuple[int | None, ...] | None]:
    """The shapes of the results of an op that TensorFlow infers for arguments, each (its value or None, its shape)."""
    with tf.Graph().as_default() as scratch:
        inputs = []
        for tensor, (value, shape) in zip(op.inputs, given, strict=True):
            own = (
                tf.constant(value, tensor.dtype)
                if value is not None
                else tf.raw_ops.Placeholder(dtype=tensor.dtype, shape=shape)
            )
            inputs.append(own)
        again = scratch.create_op(op.type, inputs, [each.dtype for each in op.outputs], attrs=dict(op.node_def.attr))
        return [None if each.shape.rank is None else tuple(each.shape) for each in again.outputs]
