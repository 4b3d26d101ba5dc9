"""Judges whether memory growth, limits and logical splits did in a process what they say."""

from __future__ import annotations

from collections.abc import Iterator

from harness.hardware.advised import Advised, advised
from harness.hardware.memory_settings.setting import MemorySeen, MemorySetting
from harness.hardware.room import CONTEXT_BYTES
from harness.records import Card

_MIB = 2**20
#: Of a limit, or of what a growing process asks for, this much must be had: an allocator keeps some for itself.
LEAST_SHARE = 0.75

_DO = (
    "look whether TF_FORCE_GPU_ALLOW_GROWTH or TF_GPU_ALLOCATOR is set in the environment, and try another version of "
    "TensorFlow; programs that share this card cannot rely on the setting"
)


def described_setting(setting: MemorySetting) -> str:
    """``memory growth``, ``a limit of 256 MiB``, ``a split into 2 logical devices of 128 MiB``."""
    if setting.name == "growth":
        return "memory growth"
    if setting.name == "limit":
        return f"a limit of {setting.limit_mib} MiB"
    of = "" if setting.limit_mib is None else f" of {setting.limit_mib} MiB"
    return f"a split into {setting.parts} logical devices{of}"


def too_full(setting: MemorySetting, seen: MemorySeen) -> bool:
    """Whether others have so much of the card that the setting could not show what it does."""
    needed = CONTEXT_BYTES + (setting.limit_mib or setting.tried_mib) * setting.parts * _MIB
    return seen.free_bytes is not None and seen.free_bytes < needed


def judge_setting(card: Card, setting: MemorySetting, seen: MemorySeen | str) -> Iterator[Advised]:
    """Findings of the kind ``memory``. ``seen`` is a text where the process gave no answer."""
    name = described_setting(setting)
    if isinstance(seen, str):
        message = f"gave a process with {name} nothing to see: {seen}"
        yield _advised(card, name, "an answer", seen, message)
        return
    if len(seen.parts) != setting.parts:
        found = f"{len(seen.parts)} ({', '.join(seen.parts)})"
        message = f"with {name} is {found} to TensorFlow"
        yield _advised(card, name, f"{setting.parts} logical device(s)", found, message)
    elsewhere = [place for place in seen.placed if not place.endswith(tuple(f":{part}" for part in seen.parts))]
    if elsewhere:
        message = f"with {name}: what was asked for on {', '.join(seen.parts)} is on {', '.join(elsewhere)}"
        yield _advised(card, name, ", ".join(seen.parts), ", ".join(elsewhere), message)
    if seen.wrong:
        message = f"with {name}: {seen.wrong} buffer(s) held something else in the end than what was written"
        yield _advised(card, name, "what was written", f"{seen.wrong} buffer(s) changed", message)
    yield from _judge_amount(card, setting, seen, name)
    yield from _judge_held(card, setting, seen, name)


def _judge_amount(card: Card, setting: MemorySetting, seen: MemorySeen, name: str) -> Iterator[Advised]:
    limit = None if setting.limit_mib is None else setting.limit_mib * _MIB
    wanted = limit or setting.tried_mib * _MIB
    for part, had in zip(seen.parts, seen.had_bytes, strict=True):
        if limit is not None and had > limit:
            message = f"let a process with {name} have {_mib(had)} on its {part}"
            yield _advised(card, name, f"at most {_mib(limit)}", _mib(had), message)
        elif had < LEAST_SHARE * wanted and not too_full(setting, seen):
            message = f"let a process with {name} have {_mib(had)} alone on its {part}"
            yield _advised(card, name, f"at least {_mib(LEAST_SHARE * wanted)}", _mib(had), message)


def _judge_held(card: Card, setting: MemorySetting, seen: MemorySeen, name: str) -> Iterator[Advised]:
    """The process holds what it had, and a context, and no more: else the next program finds the card full."""
    if seen.held_bytes is None:
        return
    own = sum(seen.had_bytes) if setting.limit_mib is None else setting.limit_mib * _MIB * setting.parts
    most = CONTEXT_BYTES + 2 * own
    if seen.held_bytes > most:
        message = f"gave a process with {name} {_mib(seen.held_bytes)}, where {_mib(own)} are to be used"
        yield _advised(card, name, f"at most {_mib(most)}", _mib(seen.held_bytes), message)


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / _MIB:.0f} MiB"


def _advised(card: Card, name: str, expected: str, found: str, message: str) -> Advised:
    return advised("memory", card, name, expected, found, message, _DO)
