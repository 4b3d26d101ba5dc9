"""Holds back the signals that end a run while something is started that would be lost with the exception they raise."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have ^C and SIGTERM wait until the body has ended, if Python handles them, as it does in the main thread alone.

    ``subprocess.Popen`` forgets a process that it has just started if a handler raises an exception.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:  # of several, the first: what it raises ends the run
            signal.raise_signal(came[0])
