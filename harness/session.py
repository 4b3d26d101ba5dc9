"""What a test session tells the library, which knows no test framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_Verification = TypeVar("_Verification")

#: The device spec that was requested for the session, if any.
devices: str | None = None
#: What the project accepts in every verification: pairs of a finding and the reason.
accept: tuple[tuple[str, str], ...] = ()
#: The folder to which the names of its tests are relative.
root: Path | None = None
#: Each is called with every verification.
observers: list[Callable[[Any], None]] = []


def observed(verification: _Verification) -> _Verification:
    """Show ``verification`` to the observers, and return it."""
    for observer in observers:
        observer(verification)
    return verification
