"""Signals that wait until something has been started."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

from harness.speed import command
from harness.speed.command import uninterrupted


class Interrupted(BaseException):
    pass


def _raise(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interrupted


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, _raise)
    yield
    for number, each in before.items():
        signal.signal(number, each)


def test_a_signal_waits_until_the_body_has_ended() -> None:
    done = []

    def body() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            done.append(1)

    with pytest.raises(Interrupted):
        body()
    assert done == [1]


def test_without_a_signal_nothing_is_changed_and_an_ignored_one_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not _raise
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is _raise


def test_an_error_of_the_body_passes_through() -> None:
    with pytest.raises(ZeroDivisionError), uninterrupted():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGTERM) is _raise


def test_in_another_thread_nothing_waits() -> None:
    seen = []

    def body() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [_raise]


def test_a_command_that_is_interrupted_while_it_is_started_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    class Popen(subprocess.Popen[bytes]):
        """Takes its time after the start of the process, as on a busy machine."""

        def _execute_child(self, *arguments: Any) -> None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            started.append(self.pid)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    sleeper = (sys.executable, "-c", "import time; time.sleep(600)", command.PLACEHOLDER)
    with pytest.raises(Interrupted):
        command.measure(sleeper, tmp_path / "run.json")
    (pid,) = started
    assert not psutil.pid_exists(pid)
