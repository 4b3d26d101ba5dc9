"""Calls that may never return, each given up after a while."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, TimeoutError as NotYet
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from harness.hardware.machine import NeverReturns

_T = TypeVar("_T")
_Call = tuple[Callable[[], _T], "Future[_T]"]


class Limited(Generic[_T]):
    """Runs calls in a thread that is kept for all of them, because starting one would be timed with the call."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call[_T]] | None = None

    def run(self, call: Callable[[], _T], limit_s: float) -> _T:
        """Return what the call returns, or raise what it raises, or NeverReturns. Its thread is then left alone."""
        if self._calls is None:
            self._calls = SimpleQueue()
            # A process ends without waiting for it.
            Thread(target=_work, args=(self._calls,), name="harness-limited", daemon=True).start()
        future: Future[_T] = Future()
        self._calls.put((call, future))
        try:
            return future.result(limit_s)
        except NotYet:
            if future.done():
                raise  # the call itself raised it
            self._calls = None
            raise NeverReturns(limit_s) from None


def _work(calls: SimpleQueue[_Call[_T]]) -> None:
    while True:
        call, future = calls.get()
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the call was made
            future.set_exception(error)
        del call, future  # the tensors in them, until the next call comes
