"""GPUs that are on the PCI bus of this machine, or of a described one, whether or not a driver knows them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from harness.devices import nvidia
from harness.devices.nvml import NO_DRIVER
from harness.softgpu import DescribedGpus, SoftwareGpus, loaded

_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


def on_bus(machine: SoftwareGpus | DescribedGpus | None) -> tuple[str, ...] | None:
    """Return the addresses of NVIDIA's GPUs that no driver has, or NVIDIA's.

    ``machine`` are the software GPUs of this process. ``None`` in a container, which sees the whole bus of its host and
    only its own GPUs, and with software GPUs of no described machine.
    """
    if machine is not None and not isinstance(machine, DescribedGpus):
        return None
    if _contained(machine):
        return None
    if isinstance(machine, DescribedGpus):
        return tuple(dict(machine.driver)["bus"].split())
    return nvidia.cards_on_bus()


def contained() -> bool:
    """Whether this process is in a container, or the described machine is one."""
    return _contained(loaded())


def _contained(machine: SoftwareGpus | DescribedGpus | None) -> bool:
    if isinstance(machine, DescribedGpus):
        return dict(machine.driver).get("container") == "1"
    return nvidia.in_container()


def module_loaded() -> bool:
    """Whether the driver's kernel module is loaded."""
    machine = loaded()
    if isinstance(machine, DescribedGpus):
        return dict(machine.driver).get("error.nvmlInit") != str(NO_DRIVER[0])
    return _KERNEL_MODULE.exists()


def without_driver() -> tuple[str, ...]:
    """Return the addresses of the GPUs of a machine whose driver is not loaded or not installed, in the bus's order.

    Those that nouveau has count: it cannot compute. Those that are given to virtual machines do not.
    """
    error = nvidia.nvml_code()
    # Without nvidia-ml-py the driver cannot be asked whether there is one.
    unasked = error is None and find_spec("pynvml") is None and not module_loaded()
    if error not in NO_DRIVER and not unasked:
        return ()
    found = on_bus(loaded())
    return () if found is None else found or nvidia.cards_on_bus(driver="nouveau")
