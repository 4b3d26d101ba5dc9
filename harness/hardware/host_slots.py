"""Reusable memory of the host that copies are written into.

On logical CPUs TensorFlow's ``Identity`` copies nothing: both devices share one buffer. An op that makes a new buffer
of some MiB spends most of its time on new pages, which says nothing about the memory. So a copy is written into
existing memory: by ``ResourceScatterUpdate``, which copies a whole row with ``memmove``, into a variable of one row.
``DisableCopyOnRead`` then lets the variable be read without another copy;
if the earlier content is still referenced, TensorFlow gives the variable new memory, so nothing is overwritten.
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
from harness.lazy import tf

#: Unused memory that is kept: beyond that, what was used longest ago is freed.
_KEPT_BYTES = 512 * 1024 * 1024
#: TensorFlow's ops abort the process if a tensor is not aligned to this (EIGEN_MAX_ALIGN_BYTES).
_ALIGNMENT = 64

#: From this size on NumPy asks for large pages.
_LARGE_BYTES = 4 * 1024 * 1024

#: Raises if a device lacks memory for that many bytes.
RequireRoom = Callable[[Device, int], None]


class Lease:
    """Holds a slot as long as it is referenced."""


@dataclass(slots=True)
class _Slot:
    """A variable ``[1, …]`` on a device, and the index of its row as a tensor there."""

    variable: Any
    row: Any


class HostSlots:
    """Slots by content type: taken for a copy, and returned when the copy is no longer referenced."""

    def __init__(self, require_room: RequireRoom) -> None:
        self._require_room = require_room
        self._free: dict[tuple[object, ...], list[tuple[Any, int]]] = {}
        self._kept_bytes = 0
        # Reentrant, because a slot may be returned wherever Python collects garbage.
        self._lock = threading.RLock()

    def copy(self, tensor: Any, device: Device, repeats: int = 1) -> tuple[Any, Lease]:
        """Copy a tensor to another CPU device of this host ``repeats`` times, and return the copy with its lease."""
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
        """Copy ``array`` once into the memory of a tensor of the CPU device; ``None`` if the dtype does not allow it.

        The memory is passed to TensorFlow by DLPack, which lacks bfloat16, float8 and text.
        """
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
        # TensorFlow references this array until the last tensor in its memory is gone.
        weakref.finalize(lent, self._give_back, key, block, array.nbytes).atexit = False
        return tensor

    def array_of(self, *tensors: Any) -> npt.NDArray[Any] | None:
        """Copy a tensor of this host to an array, or return ``None`` for a dtype without a NumPy form.

        Several tensors of one dtype become ``[n]`` of all their elements.
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
        """Free all unused memory."""
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
            # The size used last is likely to be used next, so the others go first.
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
    """The base of an array of a slot, which returns the slot when the last view is gone."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


def _new_slot(dtype: Any, shape: tuple[int, ...]) -> _Slot:
    empty = tf.raw_ops.Empty(shape=[1, *shape], dtype=dtype, init=False)
    _ask_for_large_pages(empty)
    return _Slot(variable=tf.Variable(empty, trainable=False), row=tf.constant(0))


def view_of(tensor: Any) -> npt.NDArray[Any] | None:
    """Return a read-only view of a tensor of this host; ``None`` if NumPy lacks the dtype (bfloat16).

    A tensor of another device is copied to the host first; TensorFlow caches that copy with the tensor.
    """
    try:
        return np.asarray(memoryview(tensor))
    except (ValueError, BufferError, TypeError):
        return None


def _ask_for_large_pages(tensor: Any) -> None:
    """Ask Linux for large pages under a new tensor, as NumPy does for its arrays.

    With small pages a copy of many MiB takes some 10 % longer.
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
    """Return ``[size]`` of zeros, aligned for a tensor and written once, so that its pages exist."""
    raw = np.zeros(size * dtype.itemsize + _ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % _ALIGNMENT
    made: npt.NDArray[Any] = raw[offset : offset + size * dtype.itemsize].view(dtype)
    made[...] = 0
    return made
