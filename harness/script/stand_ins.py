"""Lets other devices stand in for those that a script names: a CPU core for ``/GPU:1`` on a machine without GPUs.

It changes what the script sees of TensorFlow, ``tf.device`` and the lists of ``tf.config``. TensorFlow keeps its
devices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from harness._tensorflow import interface
from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.errors import InvalidDeviceName
from harness.lazy import tf


def missing_kind(named: Mapping[str, int], devices: Sequence[Device]) -> str | None:
    """The kind that a script names (``GPU`` before ``CPU``) and ``devices`` are not of; ``None`` if they are."""
    kind = "GPU" if "GPU" in named else "CPU" if "CPU" in named else None
    if kind is None or all(device.parsed.in_this_process and device.parsed.kind == kind for device in devices):
        return None
    return kind


@contextmanager
def standing_in(devices: Sequence[Device], kind: str) -> Iterator[None]:
    """Let the n-th of ``devices`` be what the program calls ``/GPU:n`` (``kind``).

    As where there are such devices, variables that are created outside of any scope are on the first one.
    """
    scope = tf.device
    stand_ins: dict[int | None, str] = {number: device.name for number, device in enumerate(devices)}

    def device(name: Any) -> AbstractContextManager[None]:
        opened: AbstractContextManager[None] = scope(stand_ins.get(_number(name, kind), name))
        return opened

    def created(create: Callable[..., Any], **how: Any) -> Any:
        if not tf.executing_eagerly() or interface().context.context().device_name:
            return create(**how)
        with scope(devices[0].name):
            return create(**how)

    # The script has the module itself, not what loads it.
    unconverted = tf.autograph.experimental.do_not_convert(device)
    with patch.object(sys.modules["tensorflow"], "device", unconverted), tf.variable_creator_scope(created):
        yield


@contextmanager
def listed(devices: Sequence[Device], kind: str) -> Iterator[None]:
    """Let ``tf.config`` list as many devices of ``kind`` as there are ``devices``."""
    logical = [tf.config.LogicalDevice(f"/device:{kind}:{number}", kind) for number in range(len(devices))]
    physical = [tf.config.PhysicalDevice(f"/physical_device:{kind}:{number}", kind) for number in range(len(devices))]
    growth = tf.config.experimental.set_memory_growth

    def grown(device: Any, enable: bool) -> None:
        if device not in physical:
            growth(device, enable)

    def with_others(original: Callable[[Any], Any], ones: list[Any]) -> Callable[..., list[Any]]:
        def found(device_type: str | None = None) -> list[Any]:
            if device_type == kind:
                return list(ones)
            return [*original(device_type), *(ones if device_type is None else ())]

        return found

    every = with_others(tf.config.list_physical_devices, physical)
    with (
        patch.object(tf.config, "list_logical_devices", with_others(tf.config.list_logical_devices, logical)),
        patch.object(tf.config, "list_physical_devices", every),
        patch.object(tf.config.experimental, "list_physical_devices", every),
        patch.object(tf.config.experimental, "set_memory_growth", grown),
    ):
        yield


def _number(name: Any, kind: str) -> int | None:
    text = name.to_string() if hasattr(name, "to_string") else getattr(name, "name", name)
    if not isinstance(text, str):
        return None
    try:
        wanted = DeviceName.parse(text)
    except InvalidDeviceName:
        return None
    return wanted.index if wanted.in_this_process and wanted.kind == kind else None
