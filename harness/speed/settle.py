"""Waits until what a call has started is done, so that a clock that is read next has seen all of it (FAULTS S03).

Two things are done, because each sees what the other may miss. ``sync_devices`` waits for every device of the process
and for TensorFlow's queues. And one element of each output is read, which no device can hand out before it has computed
it: also where a server or a stream is none that ``sync_devices`` knows. One element is enough, because the op that
makes it makes the whole tensor, and it costs the same for a tensor of any size. Reducing the whole tensor would read it
once more: as much again as the work itself, where that is bound by memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from harness.devices.name import DeviceName

#: A tensor of up to a memory page is read whole: asking for a part of it would be one more round trip.
_SMALL_BYTES = 4096


def settle(outputs: Any) -> None:
    """Wait for all devices, and for each tensor of ``outputs``, a nest."""
    import tensorflow as tf

    asked = [_asked_for(tensor) for tensor in tensors_of(outputs)]
    tf.test.experimental.sync_devices()
    for read in asked:
        read()


def tensors_of(outputs: Any) -> list[Any]:
    """The eager tensors in a nest: of sparse and ragged ones all parts, of variables their values."""
    import tensorflow as tf

    leaves = tf.nest.flatten(outputs, expand_composites=True)
    # A variable, Keras' own too, is no tensor of its own, and its value is.
    return [
        leaf if hasattr(leaf, "backing_device") else tf.convert_to_tensor(leaf) for leaf in leaves if tf.is_tensor(leaf)
    ]


def _asked_for(tensor: Any) -> Callable[[], object]:
    """Ask the device of a tensor for one element, and return what waits for the answer.

    All devices are asked before any is waited for: one after the other, each round trip would be added to the time.
    """
    import tensorflow as tf

    device = DeviceName.parse(tensor.backing_device)
    here = device.job in (None, "localhost") and device.kind == "CPU"
    if here or _small(tensor):
        # In the memory of this process it is there without a copy; what is small comes whole as fast as a part of it.
        return lambda: np.asarray(tensor)
    begin, size = _corner(tensor.backing_device, tensor.shape.rank)
    with tf.device(tensor.backing_device):
        element = tf.raw_ops.Slice(input=tensor, begin=begin, size=size)
    return lambda: np.asarray(element)


def _small(tensor: Any) -> bool:
    size_bytes: int = math.prod(tensor.shape) * max(int(tensor.dtype.size), 1)
    return size_bytes <= _SMALL_BYTES


@lru_cache(maxsize=256)
def _corner(device: str, rank: int) -> tuple[Any, Any]:
    """Where the first element of a tensor of this rank lies, on the device that is to look it up: made once."""
    import tensorflow as tf

    with tf.device(device):
        return tf.zeros(rank, tf.int32), tf.ones(rank, tf.int32)
