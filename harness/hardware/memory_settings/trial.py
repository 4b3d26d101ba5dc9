"""What runs in a process of its own: it takes one card with one memory setting, and sees what it can have.

Started with ``python -m harness.hardware.memory_settings.trial`` and one argument, JSON: a setting, and
the ``uuid`` of a GPU or null.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from harness.hardware.own_process import answer

_MIB = 1024 * 1024


def main() -> None:
    """Take the card, set it up, ask for memory until there is no more or enough, and say what there was."""
    told = json.loads(sys.argv[1])
    uuid = told["uuid"]
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1" if uuid is None else uuid
    free = _free_bytes(uuid)
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    kind = "CPU" if uuid is None else "GPU"
    cards = tf.config.list_physical_devices(kind)
    if not cards:
        sys.exit(f"TensorFlow sees no {kind} there")
    card = cards[0]
    if told["growth"]:
        tf.config.experimental.set_memory_growth(card, True)
    if told["limit_mib"] is not None or told["parts"] > 1:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=told["limit_mib"])
        tf.config.set_logical_device_configuration(card, [part] * told["parts"])
    parts = tf.config.list_logical_devices(kind)
    had: list[list[Any]] = [[] for _ in parts]
    for number, device in enumerate(parts):
        while len(had[number]) * told["chunk_mib"] < told["tried_mib"]:
            chunk = _chunk(tf, device.name, told["chunk_mib"], _value(number, len(had[number])))
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


def _chunk(tf: Any, device: str, size_mib: int, value: int) -> Any | None:
    """``size_mib`` of the device's memory, filled with ``value``; ``None`` where TensorFlow refuses."""
    try:
        with tf.device(device):
            return tf.fill([size_mib * _MIB // 4], tf.constant(value, tf.float32))
    except tf.errors.ResourceExhaustedError:
        return None


def _value(part: int, index: int) -> int:
    """What a buffer is filled with: each with something else, and exact in float32."""
    return 1000 * part + index + 1


def _free_bytes(uuid: str | None) -> int | None:
    """What is free on the card, as its driver says."""
    from harness.devices.nvidia import read_cards

    return next((card.free_mib * _MIB for card in read_cards() if card.uuid == uuid), None)


def _held_bytes(uuid: str | None, free_before: int | None) -> int | None:
    """What this process holds of the card; where the driver names it by another id, what is no longer free."""
    from harness.devices.nvidia import memory_by_process

    mib = memory_by_process().get((uuid or "", os.getpid()))
    if mib is not None:
        return mib * _MIB
    free = _free_bytes(uuid)
    return None if free is None or free_before is None else max(free_before - free, 0)


if __name__ == "__main__":
    main()
