"""Synchronises with all devices, so that the time of a call includes its work (FAULTS S03), and warms programs up.

``sync_devices`` waits for every device of the process and for TensorFlow's queues. Reading one element of each output
also waits for servers and streams that ``sync_devices`` does not know. One element is enough, because an op makes its
whole tensor at once; reducing the tensor would read it once more, which costs as much as memory-bound work itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from harness.devices.name import DeviceName
from harness.judgement.fields import in_fields
from harness.lazy import tf

#: A tensor of up to a memory page is read whole: slicing it would cost a round trip.
_SMALL_BYTES = 4096
#: The usual and the largest number of calls to warm up.
WARM_UP, MOST_WARM_UP = 3, 8


def synchronise(outputs: Any) -> None:
    """Wait for all devices, and for each tensor of ``outputs``, a nest."""
    requests = [_request(tensor) for tensor in tensors_of(outputs)]
    tf.test.experimental.sync_devices()
    for read in requests:
        read()


def warm_up(traces: Any, *programs: Callable[[], Any]) -> None:
    """Call ``programs`` until nothing is traced any more, which ``traces`` counts.

    The first call traces, and the second may again: TensorFlow traces a function twice that makes its variables. A
    program that is traced at every call is given up on.
    """
    for calls in range(1, MOST_WARM_UP + 1):
        before = traces.times
        for program in programs:
            synchronise(program())
        if traces.times == before and calls >= WARM_UP - 1:
            return


def tensors_of(outputs: Any) -> list[Any]:
    """List the eager tensors in a nest: all parts of sparse and ragged ones, the fields of objects.

    A variable (of Keras too) is converted to its value.
    """
    found = []
    for leaf in tf.nest.flatten(outputs, expand_composites=True):
        if tf.is_tensor(leaf):
            found.append(leaf if hasattr(leaf, "backing_device") else tf.convert_to_tensor(leaf))
        elif (fields := in_fields(leaf)) is not leaf:
            found += tensors_of(fields)
    return found


def _request(tensor: Any) -> Callable[[], object]:
    """Request one element from the tensor's device, and return a function that waits for it.

    All requests are sent before any is waited for, so that their round trips do not add up.
    """
    device = DeviceName.parse(tensor.backing_device)
    size_bytes = math.prod(tensor.shape) * max(int(tensor.dtype.size), 1)
    if (device.in_this_process and device.kind == "CPU") or size_bytes <= _SMALL_BYTES:
        # In this process there is nothing to copy; a small tensor comes whole as fast as a part of it.
        return lambda: np.asarray(tensor)
    begin, size = _corner(tensor.backing_device, tensor.shape.rank)
    with tf.device(tensor.backing_device):
        element = tf.raw_ops.Slice(input=tensor, begin=begin, size=size)
    return lambda: np.asarray(element)


@lru_cache(maxsize=256)
def _corner(device: str, rank: int) -> tuple[Any, Any]:
    """Make the begin and size of a slice with the first element, once for each device and rank."""
    with tf.device(device):
        return tf.zeros(rank, tf.int32), tf.ones(rank, tf.int32)
