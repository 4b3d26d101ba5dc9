"""Versions of drivers and libraries, and which driver a CUDA version needs."""

from __future__ import annotations

import re

#: By major version of CUDA, the first driver for Linux with which programs built for any of its minor versions run
#: (NVIDIA, CUDA Compatibility, "Minor Version Compatibility", table 1, and CUDA Toolkit release notes, table 2).
MINIMUM_DRIVERS = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}

#: By CUDA version, the driver that comes with it, from which on PTX made by it can be compiled: an older one of the
#: same major version runs machine code alone (NVIDIA, CUDA Toolkit release notes, table 3; CUDA Compatibility,
#: "Application Considerations for Minor Version Compatibility").
TOOLKIT_DRIVERS = {
    "12.0": "525.60.13",
    "12.1": "530.30.02",
    "12.2": "535.54.03",
    "12.3": "545.23.06",
    "12.4": "550.54.14",
    "12.5": "555.42.02",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
}


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``12.5.1`` is ``(12, 5, 1)``; empty where it begins with none."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def older(version: str, than: str) -> bool:
    """Whether ``version`` is below ``than``, number by number; missing numbers are zeros."""
    left, right = numbers(version), numbers(than)
    length = max(len(left), len(right))
    return left + (0,) * (length - len(left)) < right + (0,) * (length - len(right))


def major(version: str) -> str:
    """The first number."""
    return version.partition(".")[0]


def major_minor(version: str) -> str:
    """The first two numbers: ``12.5.1`` is ``12.5``."""
    return ".".join(version.split(".")[:2])
