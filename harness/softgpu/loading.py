"""Puts software GPUs into this process. TensorFlow takes such a library once, and before its runtime starts."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness._tensorflow import context_started, follow_splits, load_pluggable_device, train_keras_without_xla
from harness.errors import DevicesAlreadyConfigured, SoftwareGpusUnavailable
from harness.plural import plural
from harness.softgpu.described import DescribedGpus, install_driver, plant_faults, silence_driver, total_mib
from harness.softgpu.library import build_library, open_library

_MIB = 1024 * 1024
#: What machine.h maps at once; what TensorFlow and its threads map for each device besides (12, measured with 1 to 200
#: devices of TensorFlow 2.21); and as many as the program may add.
_PIECE_MIB, _OF_DEVICE, _SPARE = 16, 16, 2048
#: TensorFlow's allocator writes a number of 8 bytes for each 256 bytes of a device that is used.
_TABLE = 32
_MOST_MAPPINGS = Path("/proc/sys/vm/max_map_count")


@dataclass(frozen=True, slots=True)
class SoftwareGpus:
    """How many software GPUs, and the memory in MiB that programs can use on each."""

    count: int
    memory_mib: int

    def __str__(self) -> str:
        return f"{plural(self.count, 'software GPU')} of {self.memory_mib} MiB"

    def memory_of(self, number: int) -> int:  # noqa: ARG002 - all are alike
        """The memory of a GPU, in MiB."""
        return self.memory_mib


_loaded: SoftwareGpus | DescribedGpus | None = None
_library: ctypes.CDLL | None = None


def loaded() -> SoftwareGpus | DescribedGpus | None:
    """The software GPUs of this process, or ``None``."""
    return _loaded


def load(tensorflow: Any, gpus: SoftwareGpus | DescribedGpus) -> None:
    """Give TensorFlow these GPUs. Its runtime must not have started. Asking for the same ones again does nothing.

    Raises:
        DevicesAlreadyConfigured: this process has other software GPUs, and TensorFlow would abort; or TensorFlow has
            started without them.
        SoftwareGpusUnavailable: the machine has real GPUs that are not hidden, or too little memory, or the library
            cannot be built.
    """
    global _loaded, _library
    if _loaded == gpus:
        return
    if _loaded is not None:
        raise DevicesAlreadyConfigured(str(_loaded), str(gpus))
    if isinstance(gpus, DescribedGpus) and not gpus.count:
        install_driver(gpus)  # the driver alone knows of its cards
        _loaded = gpus
        return
    prepare(gpus)
    if real := tensorflow.config.list_physical_devices("GPU"):
        why = f"TensorFlow sees {plural(len(real), 'real GPU')}, and cannot use real and software GPUs in one process"
        raise SoftwareGpusUnavailable(
            why, "hide the real ones with CUDA_VISIBLE_DEVICES=-1, or select them with the device spec 'gpu'"
        )
    if context_started():
        raise DevicesAlreadyConfigured("devices without software GPUs", str(gpus))
    path = build_library(tensorflow)
    library = open_library(path)
    _arrange(library, gpus, [(card, None) for card in range(gpus.count)])
    _loaded, _library = gpus, library
    load_pluggable_device(path)
    follow_splits(lambda parts: _arrange(library, _loaded or gpus, parts))
    train_keras_without_xla()


def prepare(gpus: SoftwareGpus | DescribedGpus) -> None:
    """Do what has to be done before TensorFlow looks for real GPUs, and loads the driver that it then keeps.

    Raises:
        SoftwareGpusUnavailable: this machine has too little memory, or this process has loaded a real driver.
    """
    import psutil

    available_mib = psutil.virtual_memory().available // _MIB
    refuse_too_large(gpus, int(_MOST_MAPPINGS.read_text(encoding="ascii")), available_mib)
    if isinstance(gpus, DescribedGpus):
        silence_driver()


def refuse_too_large(gpus: SoftwareGpus | DescribedGpus, most_mappings: int, available_mib: int) -> None:
    """Raise SoftwareGpusUnavailable if a program that used all GPUs would be killed, or TensorFlow would abort."""
    sizes = [gpus.memory_of(number) for number in range(gpus.count)]
    mappings = sum(-(-size // _PIECE_MIB) + _OF_DEVICE for size in sizes) + _SPARE
    for needed, there, what in (
        (mappings, most_mappings, "memory mappings, but Linux allows a process only {} (sysctl vm.max_map_count)"),
        (sum(sizes) // _TABLE, available_mib, "MiB for the tables of TensorFlow's allocator, but {} MiB are available"),
    ):
        if needed > there:
            why = f"{gpus}, {sum(sizes):,} MiB in all, need about {needed:,} {what.format(f'{there:,}')}"
            raise SoftwareGpusUnavailable(why, "use fewer or smaller ones; softgpu:NxM makes N of M MiB each")


def _arrange(
    library: ctypes.CDLL, gpus: SoftwareGpus | DescribedGpus, parts: Sequence[tuple[int, float | None]]
) -> None:
    """Make a device of each part: the card that it is on, and the MiB that programs can use of it, or all."""
    count = len(parts)
    cards = (ctypes.c_int * count)(*(card for card, _ in parts))
    whole = [gpus.memory_of(card) for card, _ in parts]
    usable = (size if limit is None else min(int(limit), size) for size, (_, limit) in zip(whole, parts, strict=True))
    sizes = (ctypes.c_int64 * count)(*(total_mib(each) * _MIB for each in usable))
    library.harness_softgpu_configure(count, cards, sizes)
    if isinstance(gpus, DescribedGpus):
        plant_faults(library, gpus)


def switch(machine: DescribedGpus) -> None:
    """Let the software GPUs of this process behave as those of another description with no more of them.

    TensorFlow's devices stay as they are: of a smaller machine, use the first ones.

    Raises:
        DevicesAlreadyConfigured: this process has fewer or smaller software GPUs, or none.
        InvalidDescription: a fault names an op on which none can act.
    """
    global _loaded
    here = _loaded
    if (
        _library is None
        or here is None
        or machine.count > here.count
        or any(machine.memory_of(number) != here.memory_of(number) for number in range(machine.count))
    ):
        raise DevicesAlreadyConfigured(str(here or "devices without software GPUs"), str(machine))
    # CUDA has to count as many GPUs as TensorFlow; those that the machine lacks are unknown to the driver.
    spare = {f"cuda.{at}.uuid": f"GPU-{at:08x}-0000-0000-0000-{0:012x}" for at in range(machine.count, here.count)}
    driver = {**dict(machine.driver), "cuda_devices": str(here.count), **spare}
    sizes = tuple(here.memory_of(number) for number in range(here.count))
    _loaded = replace(machine, count=here.count, driver=tuple(driver.items()), sizes_mib=sizes)
    plant_faults(_library, _loaded)
