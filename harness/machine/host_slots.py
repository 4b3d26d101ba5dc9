"""Memory of the host that copies are written into, kept from one copy to the next.

On logical CPUs TensorFlow's ``Identity`` copies nothing: both devices then share one buffer. And an op that makes a new
buffer of some MiB spends most of its time on pages that the kernel hands out one by one, which is no figure of the
memory. So a copy is written into memory that is there already: by ``ResourceScatterUpdate``, which copies a whole row
with ``memmove``, into a variable of one row. ``DisableCopyOnRead`` then lets the variable be read without another copy;
should anybody still hold the earlier content, TensorFlow gives the variable new memory, so that nothing is overwritten.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

#: Memory that is kept while nobody uses it: more than that is let go.
_KEPT_BYTES = 512 * 1024 * 1024
#: TensorFlow's ops end the process when a tensor lies at another multiple (EIGEN_MAX_ALIGN_BYTES).
_ALIGNMENT = 64


class Lease:
    """Holds a slot for as long as it is referred to."""


class HostSlots:
    """Slots by what they hold; taken for a copy, and given back when the :class:`Lease` is gone."""

    def __init__(self) -> None:
        self._free: dict[tuple[object, ...], list[tuple[Any, int]]] = {}
        self._kept_bytes = 0
        # Reentrant: what gives a slot back may run wherever Python collects what nobody refers to.
        self._lock = threading.RLock()

    def copy(self, tensor: Any, device: str) -> tuple[Any, Lease]:
        """A copy of a tensor of this host on another of its CPU devices, and what keeps its memory."""
        import tensorflow as tf

        words = int(tensor.shape.num_elements() or 0)
        key = (device, tensor.dtype.name, words)
        variable = self._take(key)
        with tf.device(device):
            if variable is None:
                variable = tf.Variable(tf.zeros([1, words], tensor.dtype), trainable=False)
            row = tf.reshape(tensor, [1, words])
            tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=_ROW, updates=row)
            tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
            copied = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tensor.dtype)
            lease = Lease()
            weakref.finalize(lease, self._give_back, key, variable, words * tensor.dtype.size).atexit = False
            return tf.reshape(copied, tensor.shape), lease

    def tensor_of(self, array: npt.NDArray[Any], device: str) -> Any | None:
        """``array``, copied once into memory that a tensor of the CPU device then lies in; ``None`` if it cannot be.

        The memory is handed to TensorFlow by DLPack, which knows no bfloat16, float8 or text of NumPy's.
        """
        import tensorflow as tf

        if array.dtype.kind not in "biufc" or array.dtype.isbuiltin != 1 or not array.size:
            return None
        key = ("array", array.dtype.str, array.size)
        block = self._take(key)
        if block is None:
            block = _aligned(array.dtype, array.size)
        lent = block.reshape(array.shape)
        np.copyto(lent, array)
        with tf.device(device):
            tensor = tf.identity(tf.experimental.dlpack.from_dlpack(lent.__dlpack__()))
        # TensorFlow refers to this very array until the last tensor that lies in its memory is gone.
        weakref.finalize(lent, self._give_back, key, block, array.nbytes).atexit = False
        return tensor

    def array_of(self, tensor: Any) -> npt.NDArray[Any] | None:
        """The content of a tensor of this host in an array of the caller's, or ``None`` where it has no NumPy form."""
        try:
            view = np.asarray(memoryview(tensor))
        except (ValueError, BufferError, TypeError):
            return None
        key = ("array", view.dtype.str, view.size)
        block = self._take(key)
        if block is None:
            block = _aligned(view.dtype, view.size)
        shaped = block.reshape(view.shape)
        np.copyto(shaped, view)
        lent = _Lent(shaped)
        weakref.finalize(lent, self._give_back, key, block, view.nbytes).atexit = False
        return np.asarray(lent)

    def drop(self) -> None:
        """Let go of all memory that nobody uses."""
        with self._lock:
            self._free.clear()
            self._kept_bytes = 0

    def _take(self, key: tuple[object, ...]) -> Any | None:
        with self._lock:
            there = self._free.get(key)
            if not there:
                return None
            slot, size_bytes = there.pop()
            self._kept_bytes -= size_bytes
            return slot

    def _give_back(self, key: tuple[object, ...], slot: Any, size_bytes: int) -> None:
        with self._lock:
            if self._kept_bytes + size_bytes <= _KEPT_BYTES:
                self._free.setdefault(key, []).append((slot, size_bytes))
                self._kept_bytes += size_bytes


_ROW = np.zeros(1, np.int32)


class _Lent:
    """What an array of a slot has for its base: the slot goes back when the last view of it is gone."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


def _aligned(dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    """``[size]`` of zeros where a tensor may lie. Written once, so that its pages are there."""
    raw = np.zeros(size * dtype.itemsize + _ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % _ALIGNMENT
    made: npt.NDArray[Any] = raw[offset : offset + size * dtype.itemsize].view(dtype)
    made[...] = 0
    return made
