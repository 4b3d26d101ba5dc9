"""A clock for limits that stands until a process hangs: no limit depends on how long a busy machine takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

#: How far the clock leaps when a process has hung for a moment, in seconds: past every limit that runs by then.
_MOMENT_S, _LEAP_S = 1.0, 100_000.0


class WaitingClock:
    """The module ``time``, of which ``monotonic`` only runs while the process whose id is in ``file`` lives."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._now = time.monotonic()
        self._looked_at = self._now
        #: The process that hangs, and for how long it has been seen to.
        self._hangs, self._seen_s = "", 0.0

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        real = time.monotonic()
        pid = self._file.read_text() if self._file.exists() else ""
        if pid and Path(f"/proc/{pid}").exists():
            passed_s = real - self._looked_at if pid == self._hangs else 0.0
            before_s = self._seen_s if pid == self._hangs else 0.0
            self._hangs, self._seen_s = pid, before_s + passed_s
            self._now += passed_s + (_LEAP_S if before_s < _MOMENT_S <= self._seen_s else 0.0)
        self._looked_at = real
        return self._now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file into which a process writes its id when it begins to hang.

    The limits that its parent holds are over a moment later; for all other processes they stand still.
    """
    file = tmp_path / "begun"
    clock = WaitingClock(file)
    for module in ("harness.checking.run", "harness.parallel.task_processes", "harness.runner.process"):
        monkeypatch.setattr(f"{module}.time", clock)
    monkeypatch.setenv("PLANTED_BEGUN", str(file))
    return file
