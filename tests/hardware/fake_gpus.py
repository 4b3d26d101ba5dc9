"""A TensorFlow with GPUs, as far as the machine asks it about devices and their memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.devices.device import Device, Devices

PREFIX = "/job:localhost/replica:0/task:0/device:"


def fake_gpus(
    count: int = 2, *, growth: bool = False, limits_mib: tuple[int, ...] = (), used: int | None = 0
) -> SimpleNamespace:
    """``count`` physical GPUs, each split as ``limits_mib`` says; ``used`` bytes of each are in use."""
    physical = [SimpleNamespace(name=f"/physical_device:GPU:{index}") for index in range(count)]
    parts = [SimpleNamespace(memory_limit=limit) for limit in limits_mib] or None

    def memory(name: str) -> dict[str, int]:
        if used is None:
            raise ValueError(name)
        return {"current": used, "peak": used}

    experimental = SimpleNamespace(
        get_memory_info=memory,
        get_memory_growth=lambda device: growth,
        get_device_details=lambda device: {"device_name": "NVIDIA H100 80GB HBM3", "compute_capability": (9, 0)},
    )
    config = SimpleNamespace(
        list_physical_devices=lambda kind: physical if kind == "GPU" else [],
        get_visible_devices=lambda kind: physical if kind == "GPU" else [],
        get_logical_device_configuration=lambda device: parts,
        experimental=experimental,
    )
    return SimpleNamespace(config=config)


def gpus(count: int = 2, parts: int = 1) -> Devices:
    """Devices of ``count`` GPUs, each split into ``parts``."""
    kind: Any = "gpu" if parts == 1 else "logical-gpu"
    return Devices(
        (
            Device(f"{PREFIX}GPU:{index}", kind, f"/physical_device:GPU:{index // parts}")
            for index in range(count * parts)
        ),
        spec="gpu",
    )
