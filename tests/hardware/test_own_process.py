"""Processes of checks: each answer is returned, and each failure, also one that follows the answer."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import asdict, dataclass

import pytest

from harness.hardware.own_process import ask_each
from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.worker import Send

TASK = f"{__name__}:run"
_LIMIT_S = 300.0


@dataclass(frozen=True)
class Seen:
    number: int


@typed_task
def run(send: Send, number: int, after: str) -> None:
    """Answer unless ``after`` is "nothing", and then end in the way that it names."""
    if after != "nothing":
        send(Answer(asdict(Seen(number))))
    sys.stderr.write("the last line\n")
    sys.stderr.flush()
    if after == "abort":
        os.kill(os.getpid(), signal.SIGABRT)
    if after == "exit":
        os._exit(3)


def test_each_process_answers() -> None:
    assert ask_each(Seen, TASK, [{"number": each, "after": ""} for each in range(2)], _LIMIT_S) == [Seen(0), Seen(1)]


@pytest.mark.parametrize(
    ("after", "said"),
    [("nothing", "exit code 0"), ("abort", "killed by SIGABRT"), ("exit", "exit code 3")],
)
def test_a_process_that_crashes_has_failed_even_if_it_has_answered(after: str, said: str) -> None:
    failed, answered = ask_each(Seen, TASK, [{"number": 0, "after": after}, {"number": 1, "after": ""}], _LIMIT_S)
    assert failed == f"{said}: the last line"
    assert answered == Seen(1)
