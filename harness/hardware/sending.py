"""Copies of tensors from one device to another, each of which has to cross."""

from __future__ import annotations

from typing import Any

from harness.devices.device import Device
from harness.lazy import tf


def renewed(tensor: Any, device: Device) -> Any:
    """Return the tensor by a new handle, without copying.

    TensorFlow caches copies of a tensor on other devices with its handle, and would not copy again.
    """
    with tf.device(device.name):
        return tf.identity(tensor)


class Sending:
    """Sends tensors. Several copies between GPUs are one call, so that their time does not depend on Python's."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[Any, ...], Any] = {}

    def send(self, tensor: Any, source: Device, target: Device, repeats: int) -> Any:
        """Copy a tensor to another device ``repeats`` times and return the last copy."""
        # Each copy has a handle of its own, and is an argument of its own: one argument would be sent once.
        if repeats > 1 and _is_gpu(source) and _is_gpu(target):
            graph = self._graph(tensor, source, target, repeats)
            return graph(*(renewed(tensor, source) for _ in range(repeats)))[-1]
        for _ in range(repeats):
            fresh = renewed(tensor, source)
            with tf.device(target.name):
                copied = tf.identity(fresh)
        return copied

    def _graph(self, tensor: Any, source: Device, target: Device, repeats: int) -> Any:
        def copies(*tensors: Any) -> Any:
            with tf.device(target.name):
                return [tf.identity(each) for each in tensors]

        key = (source.name, target.name, tensor.dtype, tensor.shape.rank, repeats)
        if key not in self._graphs:
            spec = tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)
            self._graphs[key] = tf.function(copies, autograph=False, input_signature=[spec] * repeats)
        return self._graphs[key]


def _is_gpu(device: Device) -> bool:
    return device.parsed.kind == "GPU" and device.parsed.in_this_process
