"""Finds threads that hand arguments in host memory to one GPU at the same time.

TensorFlow hands such an argument (a shape, an axis) from the CPU to the GPU under one key for all calls of eager ops
that take it at the same position (tensorflow 123980), so two calls at once may read one another's. A trace has threads
take turns, so that what it records is right; but a thread is held back in such an op until another one has come to run
one too, or some time has passed. Where a lock, a join or a queue keeps them apart, none comes. Once two have met, none
is held back any more.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.evidence.steps import RecordedOp

#: How long a thread is held back, in seconds, and how often.
_HOLD_S, _HOLDS = 0.1, 5
#: Numbers of the dtypes of arguments that ops on a GPU read in host memory: int32 and string.
_HANDED = frozenset({3, 7})


class Handing:
    """The ops that hand such arguments over, and which of them did so at the same time."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._change = threading.Condition()
        #: The op that each thread is in, by the thread's number.
        self._inside: dict[int, RecordedOp] = {}
        self._held: Counter[int] = Counter()
        self._found = False

    def begin(self, step: RecordedOp, inputs: Sequence[Any]) -> None:
        """An eager op has run, in a thread that has yet to return from it."""
        if ":GPU:" not in (step.device or ""):
            return
        if not any(tensor._datatype_enum() in _HANDED for tensor in inputs):
            return
        me = threading.get_ident()
        step.handed_by = me
        with self._change:
            for other, theirs in self._inside.items():
                if other != me and theirs.device == step.device:
                    theirs.at_once = step.at_once = self._found = True
                    self._change.notify_all()
            self._inside[me] = step

    def end(self) -> None:
        """This thread is about to return from an op, and no longer keeps others from running theirs."""
        me = threading.get_ident()
        step = self._inside.get(me)
        if step is None:
            return
        with self._change:
            # A program that runs in one thread is not held up.
            others = self._held.keys() - {me} or me != self._main
            self._held[me] += 1
            if others and self._held[me] <= _HOLDS:
                self._change.wait_for(lambda: self._found, _HOLD_S)
            del self._inside[me]


def shared(steps: Sequence[RecordedOp]) -> dict[str, bool]:
    """The ops that several threads handed such arguments to on one GPU, by name, and whether at the same time."""
    threads: dict[str | None, set[int]] = {}
    for step in steps:
        if step.handed_by is not None:
            threads.setdefault(step.device, set()).add(step.handed_by)
    return {step.label: step.at_once for step in steps if step.handed_by is not None and len(threads[step.device]) > 1}
