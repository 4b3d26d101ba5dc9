"""Reads, compares and applies the part of TensorFlow's configuration that is fixed when its runtime starts.

Only public setters and getters are used. They answer before and after the start, and start nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from harness.devices.name import DeviceName


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """One visible GPU. ``limits_mib`` has an entry for each logical GPU on it, none where it is not split.

    ``growth`` is ``None`` where it was not set.
    """

    physical: str
    limits_mib: tuple[int, ...] = ()
    growth: bool | None = None

    def __str__(self) -> str:
        short = DeviceName.parse(self.physical.removeprefix("/physical_device:")).short
        if self.limits_mib:
            how = "limited to" if len(self.limits_mib) == 1 else "split into"
            return f"{short} {how} {' + '.join(str(limit) for limit in self.limits_mib)} MiB"
        return f"{short} with memory growth" if self.growth else short


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The settings that TensorFlow fixes at its start. A thread count of 0 is TensorFlow's choice, ``None`` is any."""

    logical_cpus: int = 1
    gpus: tuple[GpuSettings, ...] = ()
    intra_op_threads: int | None = None
    inter_op_threads: int | None = None

    def describe(self) -> str:
        """Describe the settings in one line."""

        def threads(count: int | None) -> str:
            return "any" if count is None else "TensorFlow's choice" if count == 0 else str(count)

        gpus = ", ".join(str(gpu) for gpu in self.gpus) or "none"
        return (
            f"CPU devices: {self.logical_cpus}; visible GPUs: {gpus}; "
            f"intra-op threads: {threads(self.intra_op_threads)}; inter-op threads: {threads(self.inter_op_threads)}"
        )

    def met_by(self, found: RuntimeSettings) -> bool:
        """Whether a runtime that has started with ``found`` meets these settings."""
        return (
            self.logical_cpus == found.logical_cpus
            and self.intra_op_threads in (None, found.intra_op_threads)
            and self.inter_op_threads in (None, found.inter_op_threads)
            and len(self.gpus) == len(found.gpus)
            and all(
                wanted.physical == actual.physical
                and wanted.limits_mib == actual.limits_mib
                and (wanted.growth is None or wanted.growth == bool(actual.growth))
                for wanted, actual in zip(self.gpus, found.gpus, strict=True)
            )
        )


def runtime_started(tensorflow: Any) -> bool:
    """Whether TensorFlow's runtime has started.

    There is no getter for it. Changing a thread count is refused after the start; before, it is accepted and set back.
    """
    threading = tensorflow.config.threading
    before = threading.get_inter_op_parallelism_threads()
    try:
        threading.set_inter_op_parallelism_threads(before + 1)
    except RuntimeError:
        return True
    threading.set_inter_op_parallelism_threads(before)
    return False


def read_settings(tensorflow: Any) -> RuntimeSettings:
    """Read the present settings, whoever set them."""
    config = tensorflow.config
    gpus = []
    for device in config.get_visible_devices("GPU"):
        logical = config.get_logical_device_configuration(device) or []
        limits = tuple(int(part.memory_limit) for part in logical)
        gpus.append(GpuSettings(device.name, limits, config.experimental.get_memory_growth(device)))
    cpus = 0
    for device in config.get_visible_devices("CPU"):
        cpus += len(config.get_logical_device_configuration(device) or [None])
    return RuntimeSettings(
        cpus,
        tuple(gpus),
        config.threading.get_intra_op_parallelism_threads(),
        config.threading.get_inter_op_parallelism_threads(),
    )


def irrevocable(tensorflow: Any, wanted: RuntimeSettings) -> str | None:
    """Name a setting of other code that contradicts ``wanted`` and cannot be undone, or ``None``."""
    config = tensorflow.config
    by_name = {device.name: device for device in config.list_physical_devices("GPU")}
    for gpu in wanted.gpus:
        if not gpu.limits_mib and config.get_logical_device_configuration(by_name[gpu.physical]) is not None:
            return f"logical GPUs on {gpu.physical} (not by the harness), which TensorFlow cannot undo"
    cpu = config.list_physical_devices("CPU")[0]
    growth = any(gpu.growth for gpu in wanted.gpus)
    if growth and config.get_logical_device_configuration(cpu) is not None:
        return "logical CPUs (not by the harness), which make TensorFlow ignore memory growth"
    return None


def apply_settings(tensorflow: Any, wanted: RuntimeSettings) -> None:
    """Apply all settings, before the start.

    If TensorFlow refuses a value, restore the settings, and raise its RuntimeError or ValueError.
    """
    before = read_settings(tensorflow)
    try:
        _set(tensorflow, wanted)
    except (RuntimeError, ValueError):
        # The first refusal is the one to report; a second one would say the same.
        with suppress(RuntimeError, ValueError):
            _set(tensorflow, before)
        raise


def _set(tensorflow: Any, wanted: RuntimeSettings) -> None:
    config = tensorflow.config
    cpu = config.list_physical_devices("CPU")[0]
    by_name = {device.name: device for device in config.list_physical_devices("GPU")}
    config.set_visible_devices([cpu] if wanted.logical_cpus else [], "CPU")
    config.set_visible_devices([by_name[gpu.physical] for gpu in wanted.gpus], "GPU")
    for gpu in wanted.gpus:
        device = by_name[gpu.physical]
        if gpu.limits_mib:
            parts = [config.LogicalDeviceConfiguration(memory_limit=limit) for limit in gpu.limits_mib]
            config.set_logical_device_configuration(device, parts)
        elif gpu.growth is not None:
            config.experimental.set_memory_growth(device, gpu.growth)
    # Unchanged where one CPU is requested and nothing was set: TensorFlow ignores memory growth as soon as any device
    # has a logical configuration.
    if wanted.logical_cpus > 1 or config.get_logical_device_configuration(cpu) is not None:
        parts = [config.LogicalDeviceConfiguration() for _ in range(max(wanted.logical_cpus, 1))]
        config.set_logical_device_configuration(cpu, parts)
    for count, setter in (
        (wanted.intra_op_threads, config.threading.set_intra_op_parallelism_threads),
        (wanted.inter_op_threads, config.threading.set_inter_op_parallelism_threads),
    ):
        if count is not None:
            setter(count)
