"""Runs in a separate process: takes one card with one memory setting, and allocates as much as it can.

Started as ``python -m harness.hardware.memory_settings.measure`` with one argument, JSON: a setting, and the ``uuid``
of a GPU or null.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from harness.devices.nvidia import free_bytes, memory_by_process
from harness.hardware.own_process import answer
from harness.lazy import tf

_MIB = 1024 * 1024


def main() -> None:
    """Configure the card, allocate until there is enough or no more, and print what there was."""
    given = json.loads(sys.argv[1])
    uuid = given["uuid"]
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1" if uuid is None else uuid
    free = free_bytes(uuid)
    tf.config.set_soft_device_placement(False)
    kind = "CPU" if uuid is None else "GPU"
    cards = tf.config.list_physical_devices(kind)
    if not cards:
        sys.exit(f"TensorFlow sees no {kind}")
    card = cards[0]
    if given["growth"]:
        tf.config.experimental.set_memory_growth(card, True)
    if given["limit_mib"] is not None or given["parts"] > 1:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=given["limit_mib"])
        tf.config.set_logical_device_configuration(card, [part] * given["parts"])
    parts = tf.config.list_logical_devices(kind)
    had: list[list[Any]] = [[] for _ in parts]
    for number, device in enumerate(parts):
        while len(had[number]) * given["chunk_mib"] < given["tried_mib"]:
            chunk = _chunk(device.name, given["chunk_mib"], _value(number, len(had[number])))
            if chunk is None:
                break
            had[number].append(chunk)
    answer(
        {
            "parts": [device.name.removeprefix("/device:") for device in parts],
            "had_bytes": [sum(chunk.shape[0] * 4 for chunk in chunks) for chunks in had],
            "placed": sorted({chunk.backing_device for chunks in had for chunk in chunks}),
            "wrong": sum(
                bool((chunk.numpy() != _value(number, index)).any())
                for number, chunks in enumerate(had)
                for index, chunk in enumerate(chunks)
            ),
            "free_bytes": free,
            "held_bytes": _held_bytes(uuid, free),
        }
    )


def _chunk(device: str, size_mib: int, value: int) -> Any | None:
    """Allocate ``size_mib`` filled with ``value``; ``None`` if TensorFlow refuses."""
    try:
        with tf.device(device):
            return tf.fill([size_mib * _MIB // 4], tf.constant(value, tf.float32))
    except tf.errors.ResourceExhaustedError:
        return None


def _value(part: int, index: int) -> int:
    """Return the content of a buffer: different for each, and exact in float32."""
    return 1000 * part + index + 1


def _held_bytes(uuid: str | None, free_before: int | None) -> int | None:
    """Return what this process holds of the card; in a container, where ids differ, what is no longer free."""
    mib = memory_by_process().get((uuid or "", os.getpid()))
    if mib is not None:
        return mib * _MIB
    free = free_bytes(uuid)
    return None if free is None or free_before is None else max(free_before - free, 0)


if __name__ == "__main__":
    main()
