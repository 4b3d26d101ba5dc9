"""What a :class:`~harness.hardware.real.TensorFlowMachine` hands out for something that lies on a card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class TensorBuffer:
    """Tensors on one card that together are one buffer: one tensor with a shape, or pieces of int64 words in order.

    ``keeper`` is held as long as the buffer: host memory that is lent to it goes back when it is gone.
    """

    card: str
    pieces: tuple[Any, ...] = field(repr=False)
    keeper: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def size_bytes(self) -> int:
        """All pieces together."""
        return sum(piece.dtype.size * int(piece.shape.num_elements()) for piece in self.pieces)

    def words(self) -> Iterator[Any]:
        """The pieces as int64 words, ``[n]``. Nothing is copied."""
        import tensorflow as tf

        for piece in self.pieces:
            if piece.dtype == tf.int64:
                yield tf.reshape(piece, [-1])
                continue
            each = 8 // piece.dtype.size
            yield tf.bitcast(tf.reshape(piece, [-1] if each == 1 else [-1, each]), tf.int64)
