"""What a worker tells its parent survives the way."""

from __future__ import annotations

import json
import math

import pytest

from harness.records import CheckResult, Exercised, Finding, Fingerprint, GpuFacts, Verdict
from harness.runner.job import Job
from harness.runner.messages import Answer, Done, Finished, Message, Ready, Refused, Started, decode, encode

RESULT = CheckResult(
    check="matpow",
    verdict=Verdict.WARN,
    reason="two\nlines, and ünïcode \udc80",
    next_step="",
    exercised=Exercised(1, 2, 3, 4, 5, ("/device:CPU:0",)),
    findings=(Finding("value", "y", None, "1", "2", "off", Verdict.WARN),),
    elapsed_s=1.5,
    spec="cpu:2",
    measured={"error_ulp": 0.5, "share_of_bound": math.inf},
)
FINGERPRINT = Fingerprint(
    "2.21", "3.1", "2.4", "3.11", True, "a cpu", 2, 1, 4096, "linux", gpus=(GpuFacts("a card"),), devices=("CPU:0",)
)


@pytest.mark.parametrize(
    "message",
    [
        Ready(("/device:CPU:0",), "as asked", FINGERPRINT),
        Started("matpow"),
        Finished(RESULT),
        Answer({"a": [1, 2.5, None, "b"], "c": {"d": True}}),
        Refused("InvalidSpec", "one line", "frames\nof the user"),
        Done(),
    ],
)
def test_a_message_is_one_line_and_comes_back_as_it_was(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message


def test_figures_that_json_does_not_know_survive() -> None:
    result = CheckResult("a", Verdict.PASS, "", "", Exercised(), measured={"x": math.nan, "y": -math.inf})
    line = encode(Finished(result))
    json.loads(line, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    back = decode(line)
    assert isinstance(back, Finished)
    assert math.isnan(back.result.measured["x"])
    assert back.result.measured["y"] == -math.inf


@pytest.mark.parametrize(
    "line",
    [b"", b"chatter\n", b"{}\n", b"[]\n", b'{"message": "No", "body": {}}\n', b'{"message": "Started", "body": {}}\n'],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of json, of pydantic or our own: all are ValueErrors
        decode(line)


def test_a_job_comes_back_as_it_was() -> None:
    job = Job("module:function", {"spec": "cpu:2", "checks": ["a", "b"]}, 5.0, "/a/file", 7)
    assert Job.decode(job.encode()) == job
