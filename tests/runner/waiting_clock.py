"""A clock for limits that only runs while a file is there: no limit depends on how long a busy machine takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest


class WaitingClock:
    """The module ``time``, of which ``monotonic`` only runs while ``file`` exists."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stood_s = 0.0
        self._looked_at = time.monotonic()

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        now = time.monotonic()
        if not self._file.exists():
            self._stood_s += now - self._looked_at
        self._looked_at = now
        return now - self._stood_s

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a process makes when it begins to hang; the limits that its parent holds run while it is there."""
    file = tmp_path / "begun"
    clock = WaitingClock(file)
    for module in ("harness.checking.run", "harness.runner.process"):
        monkeypatch.setattr(f"{module}.time", clock)
    monkeypatch.setenv("PLANTED_BEGUN", str(file))
    return file
