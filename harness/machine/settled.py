"""Waits until what was started on devices is done, and proves that a result lies where it belongs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.devices.name import DeviceName
from harness.errors import EvidenceError


def settle(tensors: Iterable[Any]) -> None:
    """Wait for all devices, and read an element of each tensor that is not in this process's own memory.

    TensorFlow's own waiting covers the devices of this process; reading an element covers others and other streams.
    """
    import tensorflow as tf

    tf.test.experimental.sync_devices()
    for tensor in tensors:
        if "/job:localhost" in tensor.backing_device and "device:CPU" in tensor.backing_device:
            continue
        if tensor.shape.num_elements():
            with tf.device(tensor.backing_device):
                tf.reshape(tensor, [-1])[0].numpy()


def require_on(tensors: Iterable[Any], device: str) -> None:
    """Refuse results that lie elsewhere than on ``device`` (a full name).

    TensorFlow keeps int32 and strings of a GPU in host memory whatever it is told, so that they prove nothing.

    Raises:
        EvidenceError: names where the result is and where it should be.
    """
    import tensorflow as tf

    wanted = DeviceName.parse(device)
    for tensor in tensors:
        if wanted.kind != "CPU" and tensor.dtype in (tf.int32, tf.string):
            continue
        found = DeviceName.parse(tensor.backing_device)
        if found != wanted:
            raise EvidenceError(f"an op that was to run on {wanted.short} left its result on {found.short}")
