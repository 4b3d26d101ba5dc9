"""Software GPUs of a described machine: what its driver says, and the faults that act in what TensorFlow executes."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InvalidDescription
from harness.softgpu.drivers import Drivers

#: What TensorFlow keeps for itself of a device's memory: a fixed part below 2 GiB, else a share in percent, and no less
#: than another fixed part. Measured with TensorFlow 2.21 by loading devices of 14 sizes.
_SMALL_MIB, _RESERVE_OF_SMALL_MIB = 2048, 255
_LEAST_RESERVE_MIB, _RESERVED_PERCENT = 300, 6


def total_mib(usable_mib: int) -> int:
    """The memory that a device has to state so that programs can use ``usable_mib`` of it."""
    small = usable_mib + _RESERVE_OF_SMALL_MIB
    if small < _SMALL_MIB:
        return small
    by_share = -(-usable_mib * 100 // (100 - _RESERVED_PERCENT))
    return max(usable_mib + _LEAST_RESERVE_MIB, by_share)


@dataclass(frozen=True, slots=True)
class DescribedGpus:
    """``count`` software GPUs as TensorFlow sees them, the answers of the driver's libraries, and lines of faults.

    ``numbers`` are the driver's numbers of the GPUs in TensorFlow's order, and ``sizes_mib`` their memory; ``visible``
    is ``CUDA_VISIBLE_DEVICES``. ``log`` are lines that TensorFlow writes when it looks for GPUs.
    """

    count: int
    sizes_mib: tuple[int, ...]
    name: str
    driver: tuple[tuple[str, str], ...]
    faults: tuple[str, ...]
    numbers: tuple[int, ...]
    visible: str | None = None
    log: tuple[str, ...] = ()

    def memory_of(self, number: int) -> int:
        """The memory of a GPU, in MiB."""
        return self.sizes_mib[number]

    def __str__(self) -> str:
        return f"the software GPUs of {Path(self.name).stem}"


_drivers: Drivers | None = None


def silence_driver() -> Drivers:
    """Let this process have no driver until :func:`install_driver`: TensorFlow then finds no real GPU.

    Raises:
        SoftwareGpusUnavailable: the process has loaded a real driver, or the stand-ins cannot be compiled.
    """
    global _drivers
    if _drivers is None:
        _drivers = Drivers.install()
    return _drivers


def install_driver(machine: DescribedGpus) -> Drivers:
    """Let the driver's libraries of this process answer as those of the machine; a later call changes the answers."""
    _drivers = silence_driver()
    _drivers.write(dict(machine.driver))
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if machine.visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = machine.visible
    return _drivers


def plant_faults(library: ctypes.CDLL, machine: DescribedGpus) -> None:
    """Replace the faults that act in this process. ``library`` is that of the software GPUs.

    Raises:
        InvalidDescription: a fault names an op on which none can act.
    """
    library.harness_softgpu_faults.argtypes = [ctypes.c_char_p]
    library.harness_softgpu_faults.restype = ctypes.c_char_p
    problem = library.harness_softgpu_faults("\n".join(machine.faults).encode())
    if problem is not None:
        raise InvalidDescription(
            machine.name, "fault", problem.decode(), "ops that compute something on a GPU, such as MatMul"
        )
    drivers = install_driver(machine)
    for line in machine.log:
        os.write(2, f"{line}\n".encode())  # as TensorFlow does, past Python's own stream
    library.harness_softgpu_share_work(str(drivers.work_path).encode())
    for device, number in enumerate(machine.numbers):
        library.harness_softgpu_number_card(device, number)
