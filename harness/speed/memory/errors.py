"""The errors of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.errors import HarnessError, UsageError


class InvalidSize(UsageError, ValueError):
    """A size of memory cannot be used. ``given`` is what was given."""

    def __init__(self, given: object) -> None:
        self.given = given
        super().__init__(
            f"size {given!r} is not valid; accepted: a number with a unit (B, kB, MB, GB, TB, KiB, MiB, GiB or TiB), "
            "such as '16GB' or '1.5 GiB', or in Python an int of bytes"
        )


class MemoryUnknown(HarnessError, RuntimeError):
    """The memory of a device cannot be measured. ``device`` is its short name, ``why`` the reason."""

    def __init__(self, device: str, why: str) -> None:
        self.device = device
        self.why = why
        super().__init__(f"the memory of {device} cannot be measured: {why}")


class MemoryGrows(AssertionError, HarnessError):
    """Memory grows from step to step. ``leaks`` (``leaks.Leak``) say where, by how much, and what keeps it."""

    def __init__(self, message: str, leaks: Sequence[Any] = ()) -> None:
        self.leaks = tuple(leaks)
        super().__init__(message)
