"""Waits until what was started on devices is done, and proves that a result lies where it belongs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.errors import EvidenceError


def in_host_memory(device: Device) -> bool:
    """Whether a device is a CPU of this process: its ops are done when they return."""
    return device.parsed.kind == "CPU" and device.parsed.job in (None, "localhost")


def settle(tensors: Iterable[Any], device: Device) -> None:
    """Wait until tensors of ``device`` are there, by reading an element of each.

    The op that takes the element runs on the device after everything that the tensor depends on. TensorFlow's own
    waiting (``sync_devices``) would wait for the other devices too, which have nothing to do with this one.
    """
    import tensorflow as tf

    if in_host_memory(device):
        return
    for tensor in tensors:
        if tensor.shape.num_elements():
            rank = tensor.shape.rank
            with tf.device(device.name):
                tf.raw_ops.Slice(input=tensor, begin=[0] * rank, size=[1] * rank).numpy()


def require_on(tensors: Iterable[Any], device: Device) -> None:
    """Refuse results that lie elsewhere than on ``device``.

    TensorFlow keeps int32 and strings in the memory of the first CPU: those of a GPU always, those of another CPU where
    they come from a ``tf.function``. Where they are proves nothing.

    Raises:
        EvidenceError: names where the result is and where it should be.
    """
    import tensorflow as tf

    for tensor in tensors:
        if tensor.dtype in (tf.int32, tf.string):
            continue
        found = tensor.backing_device
        if found != device.name and DeviceName.parse(found) != device.parsed:
            short = DeviceName.parse(found).short
            raise EvidenceError(f"an op that was to run on {device.parsed.short} left its result on {short}")
