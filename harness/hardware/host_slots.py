"""Memory of the host that copies are written into, kept from one copy to the next.

On logical CPUs TensorFlow's ``Identity`` copies nothing: both devices then share one buffer. And an op that makes a new
buffer of some MiB spends most of its time on pages that the kernel hands out one by one, which is no figure of the
memory. So a copy is written into memory that is there already: by ``ResourceScatterUpdate``, which copies a whole row
with ``memmove``, into a variable of one row. ``DisableCopyOnRead`` then lets the variable be read without another copy;
should anybody still hold the earlier content, TensorFlow gives the variable new memory, so that nothing is overwritten.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.devices.device import Device

#: Memory that is kept while nobody uses it: beyond that, what was used longest ago is let go.
_KEPT_BYTES = 512 * 1024 * 1024
#: TensorFlow's ops end the process when a tensor lies at another multiple (EIGEN_MAX_ALIGN_BYTES).
_ALIGNMENT = 64

#: From this size on NumPy asks for large pages.
_LARGE_BYTES = 4 * 1024 * 1024

#: Raises where a device has no room for so many bytes.
RequireRoom = Callable[[Device, int], None]


class Lease:
    """Holds a slot for as long as it is referred to."""


@dataclass(slots=True)
class _Slot:
    """A variable ``[1, …]`` on a device, and the index of its row as a tensor there."""

    variable: Any
    row: Any


class HostSlots:
    """Slots by what they hold; taken for a copy, and given back when nothing refers to the copy any more."""

    def __init__(self, require_room: RequireRoom) -> None:
        self._require_room = require_room
        self._free: dict[tuple[object, ...], list[tuple[Any, int]]] = {}
        self._kept_bytes = 0
        # Reentrant: what gives a slot back may run wherever Python collects what nobody refers to.
        self._lock = threading.RLock()

    def copy(self, tensor: Any, device: Device, repeats: int = 1) -> tuple[Any, Lease]:
        """A copy of a tensor of this host on another of its CPU devices, and what keeps its memory.

        Written ``repeats`` times into the same memory.
        """
        import tensorflow as tf

        shape = tuple(tensor.shape)
        size_bytes = int(tensor.shape.num_elements() or 0) * tensor.dtype.size
        key = (device.name, tensor.dtype.name, shape)
        slot = self._take(key)
        with tf.device(device.name):
            if slot is None:
                self._require_room(device, size_bytes)
                slot = _new_slot(tensor.dtype, shape)
            handle = slot.variable.handle
            for _ in range(repeats):
                tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=slot.row, updates=tensor)
            tf.raw_ops.DisableCopyOnRead(resource=handle)
            copied = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tensor.dtype)
            copied = tf.raw_ops.Squeeze(input=copied, axis=[0])
        lease = Lease()
        weakref.finalize(lease, self._give_back, key, slot, size_bytes).atexit = False
        return copied, lease

    def tensor_of(self, array: npt.NDArray[Any], device: Device) -> Any | None:
        """``array``, copied once into memory that a tensor of the CPU device then lies in; ``None`` if it cannot be.

        The memory is handed to TensorFlow by DLPack, which knows no bfloat16, float8 or text of NumPy's.
        """
        import tensorflow as tf

        if array.dtype.kind not in "biufc" or array.dtype.isbuiltin != 1 or not array.size:
            return None
        key = ("array", array.dtype.str, array.size)
        block = self._take(key)
        if block is None:
            self._require_room(device, array.nbytes)
            block = _aligned(array.dtype, array.size)
        lent = block.reshape(array.shape)
        np.copyto(lent, array)
        with tf.device(device.name):
            tensor = tf.identity(tf.experimental.dlpack.from_dlpack(lent.__dlpack__()))
        # TensorFlow refers to this very array until the last tensor that lies in its memory is gone.
        weakref.finalize(lent, self._give_back, key, block, array.nbytes).atexit = False
        return tensor

    def array_of(self, *tensors: Any) -> npt.NDArray[Any] | None:
        """The content of a tensor of this host in an array of the caller's, or ``None`` where it has no NumPy form.

        Of several tensors of one dtype, ``[n]`` of all their elements.
        """
        views = [view for tensor in tensors if (view := view_of(tensor)) is not None]
        if len(views) < len(tensors):
            return None
        size, dtype = sum(view.size for view in views), views[0].dtype
        key = ("array", dtype.str, size)
        block = self._take(key)
        if block is None:
            block = _aligned(dtype, size)
        start = 0
        for view in views:
            np.copyto(block[start : start + view.size].reshape(view.shape), view)
            start += view.size
        lent = _Lent(block.reshape(views[0].shape) if len(views) == 1 else block)
        weakref.finalize(lent, self._give_back, key, block, block.nbytes).atexit = False
        return np.asarray(lent)

    def drop(self) -> None:
        """Let go of all memory that nobody uses."""
        with self._lock:
            self._free.clear()
            self._kept_bytes = 0

    def _take(self, key: tuple[object, ...]) -> Any | None:
        with self._lock:
            return self._pop(key) if key in self._free else None

    def _give_back(self, key: tuple[object, ...], slot: Any, size_bytes: int) -> None:
        with self._lock:
            if size_bytes > _KEPT_BYTES:
                return
            # What was used last is what is copied into next: sizes that are done with go.
            while self._kept_bytes + size_bytes > _KEPT_BYTES:
                self._pop(next(iter(self._free)))
            self._free.setdefault(key, []).append((slot, size_bytes))
            self._free[key] = self._free.pop(key)
            self._kept_bytes += size_bytes

    def _pop(self, key: tuple[object, ...]) -> Any:
        slot, size_bytes = self._free[key].pop()
        self._kept_bytes -= size_bytes
        if not self._free[key]:
            del self._free[key]
        return slot


class _Lent:
    """What an array of a slot has for its base: the slot goes back when the last view of it is gone."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


def _new_slot(dtype: Any, shape: tuple[int, ...]) -> _Slot:
    import tensorflow as tf

    empty = tf.raw_ops.Empty(shape=[1, *shape], dtype=dtype, init=False)
    _ask_for_large_pages(empty)
    return _Slot(
        variable=tf.Variable(empty, trainable=False),
        row=tf.constant(0),
    )


def view_of(tensor: Any) -> npt.NDArray[Any] | None:
    """The memory of a tensor of this host, read-only; ``None`` where NumPy has no such dtype (bfloat16).

    A tensor of another device is copied to the host first, once: TensorFlow keeps that with the tensor.
    """
    try:
        return np.asarray(memoryview(tensor))
    except (ValueError, BufferError, TypeError):
        return None


def _ask_for_large_pages(tensor: Any) -> None:
    """Ask Linux for large pages under a tensor that nobody has written to yet, as NumPy does for its arrays.

    With small ones a copy of many MiB takes some 10 % longer. Where the kernel has none, nothing changes.
    """
    view = view_of(tensor)
    if view is None:
        return
    page = mmap.PAGESIZE
    start = -(-view.ctypes.data // page) * page
    length = (view.ctypes.data + view.nbytes - start) // page * page
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None and length >= _LARGE_BYTES:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)


def _aligned(dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    """``[size]`` of zeros where a tensor may lie. Written once, so that its pages are there."""
    raw = np.zeros(size * dtype.itemsize + _ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % _ALIGNMENT
    made: npt.NDArray[Any] = raw[offset : offset + size * dtype.itemsize].view(dtype)
    made[...] = 0
    return made
