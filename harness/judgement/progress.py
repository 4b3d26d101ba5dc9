"""Shows on a terminal what ``verify`` is doing, once it has taken a while."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import AbstractContextManager
from typing import TextIO

#: Calls that take less show nothing.
_AFTER_S = 5.0
_CLEAR = "\r\x1b[K"


class Progress(AbstractContextManager["Progress"]):
    """One line on ``stream``, which is gone at the end; nothing where the stream is no terminal."""

    def __init__(self, stream: TextIO | None = None, after_s: float = _AFTER_S) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._after_s = after_s
        self._stage = ""
        self._shown = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if self._stream.isatty():
            self._timer = threading.Timer(self._after_s, self._begin)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._shown:
                self._stream.write(_CLEAR)
                self._stream.flush()

    def __call__(self, stage: str) -> None:
        """Note that ``stage`` has begun, and show it."""
        with self._lock:
            self._stage = stage
            if self._shown:
                self._show()

    def _begin(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._shown = True
                self._show()

    def _show(self) -> None:
        self._stream.write(f"{_CLEAR}verify: {self._stage} ({time.monotonic() - self._began:.0f} s so far)")
        self._stream.flush()
