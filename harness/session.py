"""What a test session tells the library, which knows no test framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_Verification = TypeVar("_Verification")


@dataclass(frozen=True)
class Cases:
    """``keep`` is called with the case of each verification that fails, and with its size in bytes.

    The case is a ``SavedCase``, or ``None`` where its inputs and variables take more than ``most_bytes``.
    """

    keep: Callable[[Any, int], None]
    most_bytes: int | None = None


#: The device spec that was requested for the session, if any.
devices: str | None = None
#: What the project accepts in every verification: pairs of a finding and the reason.
accept: tuple[tuple[str, str], ...] = ()
#: The folder to which the names of its tests are relative.
root: Path | None = None
#: The folder that it was started in, and the options that one of its tests needs when it is started again.
started_in: Path | None = None
options: tuple[str, ...] = ()
#: What keeps the cases of verifications that fail, if anything does.
cases: Cases | None = None
#: Each is called with every verification.
observers: list[Callable[[Any], None]] = []


def observed(verification: _Verification) -> _Verification:
    """Show ``verification`` to the observers, and return it."""
    for observer in observers:
        observer(verification)
    return verification
