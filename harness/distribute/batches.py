"""The data of a training, as batches: the last one of an epoch holds what is left."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import TrainingError

_ACCEPTED = "accepted: (x, y), or {'x': ..., 'y': ...}, of NumPy arrays with the same number of rows"


@dataclass(frozen=True)
class Data:
    """The arrays of a training, both ``[rows, ...]``, and how many rows a step takes from them."""

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    batch_size: int

    @classmethod
    def of(cls, data: object, batch_size: int) -> Data:
        """Take ``(x, y)``, or a dict of the two.

        Raises:
            TrainingError: it is something else, or has no rows; or the batch size is not positive.
        """
        given: Sequence[object]
        if isinstance(data, Mapping):
            if set(data) != {"x", "y"}:
                raise TrainingError(f"data has the keys {sorted(map(str, data))}; {_ACCEPTED}")
            given = (data["x"], data["y"])
        elif isinstance(data, (tuple, list)) and len(data) == 2:
            given = data
        else:
            raise TrainingError(f"data is a {type(data).__name__}; {_ACCEPTED}")
        x, y = (np.asarray(part) for part in given)
        if x.dtype == object or y.dtype == object:
            raise TrainingError(f"data holds objects that are no numbers; {_ACCEPTED}")
        if x.ndim < 1 or y.ndim < 1 or len(x) != len(y) or not len(x):
            raise TrainingError(f"data has the shapes {x.shape} and {y.shape}; {_ACCEPTED}")
        if batch_size < 1:
            raise TrainingError(f"batch_size={batch_size}; accepted: 1 or more")
        return cls(x, y, batch_size)

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Both."""
        return self.x, self.y

    @property
    def batches(self) -> int:
        """How many steps an epoch has."""
        return -(-len(self.x) // self.batch_size)

    def rows(self, step: int) -> int:
        """How many rows the batch of a step has."""
        start = step % self.batches * self.batch_size
        return min(self.batch_size, len(self.x) - start)

    def batch(self, step: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The batch of a step."""
        start = step % self.batches * self.batch_size
        return self.x[start : start + self.batch_size], self.y[start : start + self.batch_size]

    def evened(self, replicas: int) -> Data:
        """The same with a last batch that can be divided by ``replicas``; without one where nothing is left of it."""
        left = len(self.x) % self.batch_size
        rows = len(self.x) - left % replicas
        return Data(self.x[:rows], self.y[:rows], self.batch_size)

    def dataset(self) -> Any:
        """The batches, epoch after epoch, for ever; TensorFlow divides each among the workers."""
        import tensorflow as tf

        made = tf.data.Dataset.from_tensor_slices(self.arrays).batch(self.batch_size).repeat()
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        return made.with_options(options)


def digests(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[str, ...]:
    """A short text for each row, the same for the same row."""
    return tuple(_digests(x, y))


def _digests(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Iterator[str]:
    for one, other in zip(x, y, strict=True):
        yield hashlib.blake2b(np.ascontiguousarray(one).tobytes() + other.tobytes(), digest_size=8).hexdigest()
