"""How a process may have the memory of a card, and what it could then have of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from harness.hardware.own_process import ask_each

#: How long all processes may take, in seconds. Each loads TensorFlow, which waits 10 s before it refuses memory.
LIMIT_S = 150.0
#: What is asked for at a time, in MiB.
CHUNK_MIB = 16


@dataclass(frozen=True, slots=True)
class MemorySetting:
    """A setting of TensorFlow's: ``growth``, a ``limit``, or a ``split`` into logical devices with a limit each.

    ``parts`` is how many logical devices it makes of the card, ``limit_mib`` what each may have (``None``: no limit),
    ``tried_mib`` what is asked for on each.
    """

    name: str
    parts: int
    limit_mib: int | None
    tried_mib: int


#: Small, so that there is room for them beside whatever else is on a card.
GROWTH = MemorySetting("growth", 1, None, 64)
LIMIT = MemorySetting("limit", 1, 256, 512)
SPLIT = MemorySetting("split", 2, 128, 256)
#: TensorFlow knows neither growth nor limits of a CPU.
CPU_SPLIT = MemorySetting("split", 2, None, 64)


@dataclass(frozen=True, slots=True)
class MemorySeen:
    """What a process with a setting saw.

    ``parts`` are the logical devices of the card, as short names; ``had_bytes`` is what could be had on each, all held
    until the end; ``placed`` is where that was; ``wrong`` counts the buffers that held something else in the end;
    ``free_bytes`` was free on the card before, and ``held_bytes`` is what the process held of it at the end, both as
    the driver says (``None``: it does not).
    """

    parts: tuple[str, ...]
    had_bytes: tuple[int, ...]
    placed: tuple[str, ...]
    wrong: int
    free_bytes: int | None
    held_bytes: int | None


def see_each(trials: Sequence[tuple[str | None, MemorySetting]]) -> list[MemorySeen | str]:
    """What each setting did in a process of its own, all at once; a text says why nothing was heard of one.

    A trial names a GPU by its UUID; ``None`` stands for the CPU.
    """
    told = [
        {
            "uuid": uuid,
            "growth": setting.name == "growth",
            "parts": setting.parts,
            "limit_mib": setting.limit_mib,
            "tried_mib": setting.tried_mib,
            "chunk_mib": CHUNK_MIB,
        }
        for uuid, setting in trials
    ]
    return [_read(heard, why) for heard, why in ask_each(trial_module(), told, LIMIT_S)]


def trial_module() -> str:
    """The module that runs in each process."""
    return "harness.hardware.memory_settings.trial"


def _read(heard: str | None, why: str) -> MemorySeen | str:
    if heard is None:
        return why
    try:
        return TypeAdapter(MemorySeen).validate_json(heard)
    except ValidationError as error:
        return f"it said something else: {error.errors()[0]['msg']}"
