"""The signals that end a run: ^C and SIGTERM."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ended(BaseException):
    """The user or the system ends the run: SIGINT or SIGTERM."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)

    @property
    def exit_code(self) -> int:
        """128 and the number of the signal, as a shell says it."""
        return 128 + self.number


def heed_signals() -> None:
    """Let SIGINT and SIGTERM raise :class:`Ended`, save where a shell has made this process ignore them."""
    for number in _ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # a shell makes its background jobs ignore ^C
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the interpreter gives it
    for each in _ENDING_SIGNALS:  # a second ^C must not cut short the ending of the worker
        signal.signal(each, signal.SIG_IGN)
    raise Ended(number)
