"""Puts software GPUs into this process. TensorFlow takes such a library once, and before its runtime starts."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from harness._tensorflow import load_pluggable_device, train_keras_without_xla
from harness.errors import DevicesAlreadyConfigured, SoftwareGpusUnavailable
from harness.plural import plural
from harness.softgpu.library import build_library

#: What TensorFlow keeps for itself of a device's memory: a fixed part below 2 GiB, else a share in percent, and no less
#: than another fixed part. Measured with TensorFlow 2.21 by loading devices of 14 sizes.
_SMALL_MIB, _RESERVE_OF_SMALL_MIB = 2048, 255
_LEAST_RESERVE_MIB, _RESERVED_PERCENT = 300, 6
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SoftwareGpus:
    """How many software GPUs, and the memory in MiB that programs can use on each."""

    count: int
    memory_mib: int

    def __str__(self) -> str:
        return f"{plural(self.count, 'software GPU')} of {self.memory_mib} MiB"


_loaded: SoftwareGpus | None = None


def loaded() -> SoftwareGpus | None:
    """The software GPUs of this process, or ``None``."""
    return _loaded


def load(tensorflow: Any, gpus: SoftwareGpus) -> None:
    """Give TensorFlow these GPUs. Its runtime must not have started. Asking for the same ones again does nothing.

    Raises:
        DevicesAlreadyConfigured: this process has other software GPUs. TensorFlow would abort.
        SoftwareGpusUnavailable: the machine has real GPUs that are not hidden, or the library cannot be built.
    """
    global _loaded
    if _loaded == gpus:
        return
    if _loaded is not None:
        raise DevicesAlreadyConfigured(str(_loaded), str(gpus))
    if real := tensorflow.config.list_physical_devices("GPU"):
        why = f"TensorFlow sees {plural(len(real), 'real GPU')}, and cannot have both"
        raise SoftwareGpusUnavailable(why, "hide them with CUDA_VISIBLE_DEVICES=-1, or use them with 'gpu'")
    path = build_library(tensorflow)
    library = ctypes.CDLL(str(path))
    library.harness_softgpu_configure.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.harness_softgpu_configure.restype = None
    library.harness_softgpu_configure(gpus.count, total_mib(gpus.memory_mib) * _MIB)
    _loaded = gpus
    load_pluggable_device(path)
    train_keras_without_xla()


def total_mib(usable_mib: int) -> int:
    """The memory that a device has to state so that programs can use ``usable_mib`` of it."""
    small = usable_mib + _RESERVE_OF_SMALL_MIB
    if small < _SMALL_MIB:
        return small
    by_share = -(-usable_mib * 100 // (100 - _RESERVED_PERCENT))
    return max(usable_mib + _LEAST_RESERVE_MIB, by_share)


def missing_ops(tensorflow: Any) -> tuple[str, ...]:
    """The ops that have a kernel on a GPU and cannot run on a software GPU at all, sorted."""
    library = ctypes.CDLL(str(build_library(tensorflow)))
    library.harness_softgpu_missing_ops.restype = ctypes.c_char_p
    return tuple(library.harness_softgpu_missing_ops().decode().split())
