"""Compares versions of drivers and libraries."""

from __future__ import annotations

import re


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: ``12.5.1`` is ``(12, 5, 1)``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def older(version: str, than: str) -> bool:
    """Return whether ``version`` is below ``than``, number by number; missing numbers are zeros."""
    left, right = numbers(version), numbers(than)
    length = max(len(left), len(right))
    return left + (0,) * (length - len(left)) < right + (0,) * (length - len(right))


def major(version: str) -> str:
    """Return the first number."""
    return version.partition(".")[0]


def major_minor(version: str) -> str:
    """Return the first two numbers: ``12.5.1`` is ``12.5``."""
    return ".".join(version.split(".")[:2])
