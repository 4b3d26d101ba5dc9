"""Judges whether memory growth, limits and logical splits did what they should in a process."""

from __future__ import annotations

from collections.abc import Iterator

from harness.hardware.finding import finding
from harness.hardware.memory_settings.setting import MemorySeen, MemorySetting
from harness.hardware.room import CONTEXT_BYTES
from harness.plural import plural
from harness.records import Card, Finding

_MIB = 2**20
#: Share of a limit, or of what a growing process asks for, that must be allocated: an allocator keeps some for itself.
LEAST_SHARE = 0.75
_ENVIRONMENT = "look for TF_FORCE_GPU_ALLOW_GROWTH and TF_GPU_ALLOCATOR in the environment, and "


def setting_name(setting: MemorySetting) -> str:
    """Describe a setting: ``memory growth``, ``a limit of 256 MiB``, ``a split into 2 logical devices of 128 MiB``."""
    if setting.name == "growth":
        return "memory growth"
    if setting.name == "limit":
        return f"a limit of {setting.limit_mib} MiB"
    of = "" if setting.limit_mib is None else f" of {setting.limit_mib} MiB"
    return f"a split into {setting.parts} logical devices{of}"


def too_full(setting: MemorySetting, seen: MemorySeen) -> bool:
    """Return whether others use so much of the card that the setting could not be tested."""
    needed = CONTEXT_BYTES + (setting.limit_mib or setting.tried_mib) * setting.parts * _MIB
    return seen.free_bytes is not None and seen.free_bytes < needed


def judge_setting(card: Card, setting: MemorySetting, seen: MemorySeen | str) -> Iterator[Finding]:
    """Yield findings of the kind ``memory``. ``seen`` is a text if the process gave no answer."""
    name = setting_name(setting)
    if isinstance(seen, str):
        yield _finding(card, name, "an answer", seen, f"could not be tested with {name}: the process failed: {seen}")
        return
    if len(seen.parts) != setting.parts:
        message = f"with {name} gives {plural(len(seen.parts), 'logical device')}: {', '.join(seen.parts)}"
        yield _finding(card, name, plural(setting.parts, "logical device"), str(len(seen.parts)), message)
    elsewhere = [place for place in seen.placed if not place.endswith(tuple(f":{part}" for part in seen.parts))]
    if elsewhere:
        message = f"with {name} places tensors for {', '.join(seen.parts)} on {', '.join(elsewhere)}"
        yield _finding(card, name, ", ".join(seen.parts), ", ".join(elsewhere), message)
    if seen.wrong:
        message = f"with {name} changed the content of {plural(seen.wrong, 'buffer')}"
        yield _finding(card, name, "what was written", f"{plural(seen.wrong, 'buffer')} changed", message)
    limit = None if setting.limit_mib is None else setting.limit_mib * _MIB
    least = LEAST_SHARE * (limit or setting.tried_mib * _MIB)
    for part, had in zip(seen.parts, seen.had_bytes, strict=True):
        message = f"with {name} lets a process allocate "
        if limit is not None and had > limit:
            yield _finding(card, name, f"at most {_mib(limit)}", _mib(had), f"{message}{_mib(had)} on its {part}")
        elif had < least and not too_full(setting, seen):
            message += f"only {_mib(had)} on its {part}"
            yield _finding(card, name, f"at least {_mib(least)}", _mib(had), message)
    # The process holds what it allocated and a context, and no more: otherwise the next program finds the card full.
    own = sum(seen.had_bytes) if limit is None else limit * setting.parts
    most = CONTEXT_BYTES + 2 * own
    if seen.held_bytes is not None and seen.held_bytes > most:
        message = f"with {name} reserves {_mib(seen.held_bytes)} for a process that uses {_mib(own)}"
        yield _finding(card, name, f"at most {_mib(most)}", _mib(seen.held_bytes), message)


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / _MIB:,.0f} MiB"


def _finding(card: Card, name: str, expected: str, found: str, message: str) -> Finding:
    return finding(
        "memory",
        card,
        name,
        expected=expected,
        found=found,
        message=message,
        next_step=(_ENVIRONMENT if card.is_gpu else "")
        + "try another version of TensorFlow; programs that share this device cannot rely on the setting",
    )
