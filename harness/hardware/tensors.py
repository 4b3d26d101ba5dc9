"""Tensors on a card: waited for until they are computed, proven to be where they belong, and sent to other cards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.errors import EvidenceError
from harness.lazy import tf


@dataclass(eq=False)
class TensorBuffer:
    """Tensors on one card that form one buffer: one tensor with a shape, or pieces of int64 words in order.

    ``keeper`` lives as long as the buffer: it holds the host memory that is lent to it.
    """

    card: str
    pieces: tuple[Any, ...] = field(repr=False)
    keeper: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def size_bytes(self) -> int:
        """The size of all pieces together."""
        return sum(piece.dtype.size * int(piece.shape.num_elements()) for piece in self.pieces)

    def words(self) -> Iterator[Any]:
        """Yield the pieces as int64 words ``[n]``, without copying."""
        for piece in self.pieces:
            if piece.dtype == tf.int64:
                yield tf.reshape(piece, [-1])
                continue
            each = 8 // piece.dtype.size
            yield tf.bitcast(tf.reshape(piece, [-1] if each == 1 else [-1, each]), tf.int64)


def in_host_memory(device: Device) -> bool:
    """Return whether a device is a CPU of this process, whose ops are done when they return."""
    return device.parsed.kind == "CPU" and device.parsed.in_this_process


def settle(tensors: Iterable[Any], device: Device) -> None:
    """Wait until tensors of ``device`` are computed, by reading an element of each.

    The op that takes the element runs on the device after everything that the tensor depends on. TensorFlow's own
    waiting (``sync_devices``) would wait for unrelated devices too.
    """
    if in_host_memory(device):
        return
    for tensor in tensors:
        if tensor.shape.num_elements():
            rank = tensor.shape.rank
            with tf.device(device.name):
                tf.raw_ops.Slice(input=tensor, begin=[0] * rank, size=[1] * rank).numpy()


def require_on(tensors: Iterable[Any], device: Device) -> None:
    """Refuse results that are not on ``device``: raise EvidenceError.

    TensorFlow keeps int32 and strings in the memory of the first CPU: those of a GPU always, those of another CPU if
    they come from a ``tf.function``. Where they are proves nothing.
    """
    for tensor in tensors:
        if tensor.dtype in (tf.int32, tf.string):
            continue
        found = tensor.backing_device
        if found != device.name and DeviceName.parse(found) != device.parsed:
            short = DeviceName.parse(found).short
            raise EvidenceError(f"an op placed on {device.parsed.short} left its result on {short}")


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
