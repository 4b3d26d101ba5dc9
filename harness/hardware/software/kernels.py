"""Whether the kernels in a wheel run on a card.

Machine code (SASS) for capability ``X.y`` runs on cards of ``X.z`` with ``z >= y``; PTX for ``X.y`` is compiled by the
driver for any card of that capability or a later one, when it is first used (NVIDIA, CUDA C++ Programming Guide,
sections "Binary Compatibility" and "PTX Compatibility"). A name with a letter, such as ``9.0a``, runs on that
capability only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kernels(Enum):
    """What a wheel has for a card."""

    CODE = "machine code"
    COMPILED = "PTX that the driver compiles"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class _Architecture:
    version: tuple[int, int]
    alone: bool


def capability(text: str | None) -> tuple[int, int] | None:
    """Return ``9.0`` as numbers, ``None`` if unknown."""
    found = _parsed(text)
    return found.version if found is not None else None


def kernels_for(card: str | None, sass: Iterable[str], ptx: Iterable[str]) -> Kernels | None:
    """Return what the wheel has for a card of that capability; ``None`` if the capability is unknown."""
    own = capability(card)
    if own is None:
        return None
    code = [each for each in map(_parsed, sass) if each is not None]
    if any(own == each.version or (not each.alone and _runs(each.version, own)) for each in code):
        return Kernels.CODE
    source = [each for each in map(_parsed, ptx) if each is not None]
    if any(own == each.version or (not each.alone and each.version <= own) for each in source):
        return Kernels.COMPILED
    return Kernels.NOTHING


def _runs(built: tuple[int, int], own: tuple[int, int]) -> bool:
    return built[0] == own[0] and built[1] <= own[1]


def _parsed(text: str | None) -> _Architecture | None:
    match = re.fullmatch(r"(\d+)\.(\d+)([a-z]?)", text or "")
    return _Architecture((int(match[1]), int(match[2])), bool(match[3])) if match else None
