"""What an error of the driver means, and what to do: one table for NVML, one for ``cuInit``, both with the context.

The advice depends on where the error comes from. A container cannot load a driver or reboot a node, and only GPUs on
NVSwitches have a fabric manager. The first row with the code whose context is there counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.hardware.finding import REPLACE, RESET

LOST = (
    "read the kernel's log (dmesg | grep -i xid), power the node off and on, reseat the card, and replace it if it is "
    "lost again"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the advice depends on; ``None`` is unknown. ``fabric`` is whether NVSwitches join the GPUs.

    ``driver`` is the version of the driver, and ``module`` whether its kernel module is loaded.
    """

    container: bool = False
    fabric: bool | None = None
    driver: str | None = None
    module: bool | None = None


#: A host of which nothing is known.
UNKNOWN = Surroundings()

Context = Callable[[Surroundings], bool]


def _anywhere(_: Surroundings) -> bool:
    return True


def _in_container(around: Surroundings) -> bool:
    return around.container


def _without_fabric(around: Surroundings) -> bool:
    return around.fabric is False


def _with_hmm(around: Surroundings) -> bool:
    # Since this version the open kernel modules use the kernel's heterogeneous memory management.
    major = (around.driver or "").partition(".")[0]
    return major.isdigit() and int(major) >= 535


class Row(NamedTuple):
    """An error in a context: the end of its name, its usual cause, and what to do."""

    code: int
    context: Context
    name: str
    cause: str
    step: str


_CONTAINER = (
    "restart the container with its GPUs (docker run --gpus all; in Kubernetes, delete the pod): a container loses "
    "them when the host reloads systemd or its driver"
)
_PERMISSIONS = "look at CUDA_VISIBLE_DEVICES, and at the permissions of /dev/nvidia*"
_ALLOW = "allow this process to use /dev/nvidiactl and all of /dev/nvidia*"
_GIVE = "give the container these GPUs (docker run --gpus all), or its user the right to open /dev/nvidia*"
_LOADED = "read dmesg, and run 'modprobe nvidia-uvm' or reboot the node"
_MPS = "restart the MPS server with nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY"
FABRIC = "look at 'systemctl status nvidia-fabricmanager', and install the version that matches the driver"
_NO_FABRIC = (
    "no NVSwitch joins these GPUs, so there is nothing for a fabric manager to set up: read dmesg and reboot the node; "
    "if the GPUs are in confidential computing mode, run 'nvidia-smi conf-compute -srs 1'"
)
_HMM = (
    "switch off HMM: put 'options nvidia_uvm uvm_disable_hmm=1' into /etc/modprobe.d/nvidia-uvm.conf and load "
    "nvidia-uvm again (rmmod nvidia_uvm; modprobe nvidia-uvm); if cuInit still fails, read dmesg and reboot the node"
)
_HMM_ON_HOST = (
    f"{_CONTAINER}; if cuInit still fails, on the host set uvm_disable_hmm=1 for nvidia-uvm, and load it again"
)
_MIXED = "reboot the node, so that the kernel loads the module of the driver that is installed"
_MIXED_IN_CONTAINER = (
    "restart the container after an update of the host's driver, and remove the driver's libraries (libcuda, "
    "libnvidia-ml) from its image: it gets those of the host"
)
_LOAD = (
    "install or load NVIDIA's driver (modprobe nvidia; look at dmesg, at 'dkms status' after an update of the kernel, "
    "and at Secure Boot, which refuses modules without a signature)"
)
_LIBRARIES = "install the driver's libraries (libnvidia-ml, libcuda) in the version of the kernel module"
_KERNEL_LOG = "read the kernel's log (dmesg | grep -i -e nvrm -e xid), and reboot the node"
_POWER = "look at its power cables and at the power supply"

#: The errors of cuInit (CUDA driver API, CUresult).
CUDA_ROWS = (
    Row(3, _in_container, "NOT_INITIALIZED", "the driver has failed", _HMM_ON_HOST),
    Row(3, _with_hmm, "NOT_INITIALIZED", "nvidia-uvm has failed, often in HMM", _HMM),
    Row(3, _anywhere, "NOT_INITIALIZED", "the driver has failed", _LOADED),
    Row(
        34,
        _anywhere,
        "STUB_LIBRARY",
        "LD_LIBRARY_PATH leads to a stub of libcuda.so",
        "remove the folder with the stub from LD_LIBRARY_PATH",
    ),
    Row(
        46,
        _anywhere,
        "DEVICE_UNAVAILABLE",
        "another process uses the GPU exclusively",
        "look at nvidia-smi, and stop that process",
    ),
    Row(100, _in_container, "NO_DEVICE", "the container has no GPU, or has lost it", _CONTAINER),
    Row(100, _anywhere, "NO_DEVICE", "no GPU is visible", _PERMISSIONS),
    Row(304, _in_container, "OPERATING_SYSTEM", "the container may not use the GPU", _GIVE),
    Row(304, _anywhere, "OPERATING_SYSTEM", "the operating system refuses a call", _PERMISSIONS),
    Row(802, _without_fabric, "SYSTEM_NOT_READY", "the driver is not ready", _NO_FABRIC),
    Row(
        802,
        _in_container,
        "SYSTEM_NOT_READY",
        "the NVSwitch fabric is not set up",
        f"on the host, {FABRIC}; then restart the container",
    ),
    Row(802, _anywhere, "SYSTEM_NOT_READY", "the NVSwitch fabric is not set up", FABRIC),
    Row(
        803,
        _in_container,
        "SYSTEM_DRIVER_MISMATCH",
        "the container's driver library and the host's kernel module do not match",
        _MIXED_IN_CONTAINER,
    ),
    Row(
        803,
        _anywhere,
        "SYSTEM_DRIVER_MISMATCH",
        "the driver's library and kernel module do not match",
        "reboot the node",
    ),
    Row(
        804,
        _anywhere,
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "CUDA's compatibility package does not support this card",
        "remove CUDA's compatibility package from LD_LIBRARY_PATH",
    ),
    *(Row(code, _anywhere, "MPS", "the MPS server does not answer", _MPS) for code in range(805, 810)),
    Row(999, _in_container, "UNKNOWN", "the container has lost its GPUs, or the driver has failed", _CONTAINER),
    Row(999, _anywhere, "UNKNOWN", "the kernel module nvidia-uvm is not loaded, or the driver has failed", _LOADED),
)
_OTHER_CUDA = Row(
    0, _anywhere, "", "CUDA does not start", "look up the error under CUresult in the CUDA driver API, and read dmesg"
)

#: The errors of NVML (nvml.h). What is in no row is a failure of the card or of the driver.
NVML_ROWS = (
    Row(4, _in_container, "NO_PERMISSION", "the container may not ask", _GIVE),
    Row(4, _anywhere, "NO_PERMISSION", "this process may not ask", _ALLOW),
    Row(8, _anywhere, "INSUFFICIENT_POWER", "its power cables are not connected properly", _POWER),
    Row(
        9,
        _in_container,
        "DRIVER_NOT_LOADED",
        "the host's driver is not loaded",
        f"on the host, {_LOAD}; if it is loaded there, start the container with its GPUs (docker run --gpus all)",
    ),
    Row(9, _anywhere, "DRIVER_NOT_LOADED", "NVIDIA's driver is not loaded", _LOAD),
    Row(11, _anywhere, "IRQ_ISSUE", "its interrupts do not arrive", _KERNEL_LOG),
    Row(12, _in_container, "LIBRARY_NOT_FOUND", "the driver's libraries are missing", _CONTAINER),
    Row(12, lambda around: bool(around.module), "LIBRARY_NOT_FOUND", "the driver's libraries are missing", _LIBRARIES),
    Row(12, _anywhere, "LIBRARY_NOT_FOUND", "NVIDIA's driver is not loaded", _LOAD),
    *(
        Row(code, _anywhere, name, "the driver and nvidia-ml-py do not fit together", step)
        for code, name, step in (
            (13, "FUNCTION_NOT_FOUND", "update the driver, or install the nvidia-ml-py of its version"),
            (25, "ARGUMENT_VERSION_MISMATCH", "install the nvidia-ml-py of the driver's version"),
            (26, "DEPRECATED", "install the nvidia-ml-py of the driver's version"),
        )
    ),
    Row(14, _anywhere, "CORRUPTED_INFOROM", "its infoROM is damaged", REPLACE),
    Row(15, _anywhere, "GPU_IS_LOST", "it has fallen off the bus", LOST),
    Row(16, _anywhere, "RESET_REQUIRED", "it needs a reset", RESET),
    Row(17, _in_container, "OPERATING_SYSTEM", "the container may not use it", _GIVE),
    Row(17, _anywhere, "OPERATING_SYSTEM", "the operating system refuses a call", _PERMISSIONS),
    Row(
        18,
        _in_container,
        "LIB_RM_VERSION_MISMATCH",
        "the container's libraries and the host's kernel module do not match",
        _MIXED_IN_CONTAINER,
    ),
    Row(18, _anywhere, "LIB_RM_VERSION_MISMATCH", "the driver's libraries and kernel module do not match", _MIXED),
    Row(999, _in_container, "UNKNOWN", "the container has lost its GPUs, or the driver has failed", _CONTAINER),
)
_OTHER_NVML = Row(0, _anywhere, "", "it does not work properly", LOST)
NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 4, 9, 12
#: Errors that say more of the software or of permissions than of a card.
OF_SOFTWARE = (NO_PERMISSION, 13, 17, 18, 25, 26)
#: nvidia-ml-py has texts of its own for these, older releases and NVML others.
_TEXTS = {
    4: "Insufficient Permissions",
    8: "Insufficient External Power",
    9: "Driver Not Loaded",
    11: "Interrupt Request Issue",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    14: "Corrupted infoROM",
    15: "GPU is lost",
    16: "GPU requires re",
    17: "The operating system has blocked the request",
    18: "mismatch",
    25: "The argument version does not match",
    26: "The requested functionality has been deprecated",
    999: "Unknown Error",
}


def of_cuinit(code: int, around: Surroundings) -> Row:
    """Return what an error of ``cuInit`` means there."""
    return _row(CUDA_ROWS, code, around) or _OTHER_CUDA


def of_nvml(error: int | str, around: Surroundings) -> Row:
    """Return what an error of NVML means there: its number, or its text."""
    code = error if isinstance(error, int) else code_of(error)
    return _row(NVML_ROWS, code, around) or _OTHER_NVML


def code_of(text: str) -> int:
    """Return the number of an error of NVML by its text; 0 if it is in no row."""
    return next((code for code, known in _TEXTS.items() if known.lower() in text.lower()), 0)


def _row(rows: Sequence[Row], code: int, around: Surroundings) -> Row | None:
    return next((row for row in rows if row.code == code and row.context(around)), None)
