"""Separate processes that each take one card with one memory setting, and allocate as much as they can."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.devices.nvidia import free_bytes, memory_by_process
from harness.hardware.memory_settings.setting import CHUNK_MIB, MemorySeen, MemorySetting
from harness.hardware.own_process import ask_each
from harness.lazy import tf
from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.worker import Send

_MIB = 1024 * 1024
#: How long all processes may take, in seconds. Each loads TensorFlow, which waits 10 s before it refuses memory.
LIMIT_S = 150.0
#: The task of each process.
TASK = f"{__name__}:run"


def see_each(trials: Sequence[tuple[str | None, MemorySetting]]) -> list[MemorySeen | str]:
    """Try each setting in a separate process, all at once; a text says why there is no answer.

    A trial names a GPU by its UUID; ``None`` stands for the CPU.
    """
    arguments = [{"uuid": uuid, "setting": setting} for uuid, setting in trials]
    return ask_each(MemorySeen, TASK, arguments, LIMIT_S)


@typed_task
def run(send: Send, uuid: str | None, setting: MemorySetting) -> None:
    """Take the GPU with this UUID (``None``: the CPU), allocate until there is enough or no more, and report it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1" if uuid is None else uuid
    free = free_bytes(uuid)
    tf.config.set_soft_device_placement(False)
    kind = "CPU" if uuid is None else "GPU"
    cards = tf.config.list_physical_devices(kind)
    if not cards:
        sys.exit(f"TensorFlow sees no {kind}")
    card = cards[0]
    if setting.name == "growth":
        tf.config.experimental.set_memory_growth(card, True)
    if setting.limit_mib is not None or setting.parts > 1:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=setting.limit_mib)
        tf.config.set_logical_device_configuration(card, [part] * setting.parts)
    parts = tf.config.list_logical_devices(kind)
    had: list[list[Any]] = [[] for _ in parts]
    for number, device in enumerate(parts):
        while len(had[number]) * CHUNK_MIB < setting.tried_mib:
            chunk = _chunk(device.name, _value(number, len(had[number])))
            if chunk is None:
                break
            had[number].append(chunk)
    seen = MemorySeen(
        parts=tuple(device.name.removeprefix("/device:") for device in parts),
        had_bytes=tuple(sum(chunk.shape[0] * 4 for chunk in chunks) for chunks in had),
        placed=tuple(sorted({chunk.backing_device for chunks in had for chunk in chunks})),
        wrong=sum(
            bool((chunk.numpy() != _value(number, index)).any())
            for number, chunks in enumerate(had)
            for index, chunk in enumerate(chunks)
        ),
        free_bytes=free,
        held_bytes=_held_bytes(uuid, free),
    )
    send(Answer(asdict(seen)))


def _chunk(device: str, value: int) -> Any | None:
    """Allocate ``CHUNK_MIB`` filled with ``value``; ``None`` if TensorFlow refuses."""
    try:
        with tf.device(device):
            return tf.fill([CHUNK_MIB * _MIB // 4], tf.constant(value, tf.float32))
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
