"""The task that traces a user's function, with a stand-in for TensorFlow's part of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.devices.device import Devices
from harness.errors import DevicesAlreadyConfigured, EvidenceError, HarnessError
from harness.evidence.process import run
from harness.runner.messages import Answer, Message, Refusal, Refused

SOURCE = """
from harness.errors import DevicesAlreadyConfigured
def fine(): return 1
def deep(): raise ValueError("mine")
def fails(): return deep()
def leaves(): raise SystemExit(0)
def configures(): raise DevicesAlreadyConfigured("cpu:4", "cpu:3")
def needs(x): return x
"""


class FakeTrace:
    def __init__(self, outputs: object) -> None:
        self.outputs = outputs
        self.ops = ("an op", "another")

    def save(self, path: Path) -> Path:
        path.write_text("saved")
        return path

    def conclusion(self, devices: Devices) -> list[str]:
        return [f"concluded for {devices.reason}"]


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import harness.devices.runtime
    import harness.evidence.tracing

    def trace(fn: Callable[[], Any]) -> FakeTrace:
        return FakeTrace(fn())

    monkeypatch.setattr(harness.devices.runtime, "configure", lambda spec: Devices([], spec=spec, reason="asked"))
    monkeypatch.setattr(harness.evidence.tracing, "trace", trace)
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def said(tmp_path: Path, function: str, source: str = SOURCE) -> list[Message]:
    file = tmp_path / "users_program.py"
    file.write_text(source)
    sent: list[Message] = []
    arguments: dict[str, object] = {
        "spec": "cpu:2",
        "file": str(file),
        "function": function,
        "save": str(tmp_path / "trace.json"),
    }
    try:
        run(arguments, sent.append)
    except Refusal as refusal:  # a worker sends it, as harness.runner.worker does
        sent.append(refusal.refused)
    return sent


def test_a_function_is_traced_and_the_trace_is_saved(tmp_path: Path) -> None:
    answer = {"ops": 2, "reason": "asked", "conclusion": ["concluded for asked"]}
    assert said(tmp_path, "fine") == [Answer(answer)]
    assert (tmp_path / "trace.json").read_text() == "saved"


def test_an_exception_of_the_users_comes_with_the_users_frames_alone(tmp_path: Path) -> None:
    (refused,) = said(tmp_path, "fails")
    assert isinstance(refused, Refused)
    assert refused.message == "users_program.py:fails raised ValueError: mine"
    assert "in fails" in refused.details
    assert "in deep" in refused.details
    assert "harness/" not in refused.details
    assert refused.details.endswith("ValueError: mine\n")


def test_a_function_that_exits_is_refused(tmp_path: Path) -> None:
    (refused,) = said(tmp_path, "leaves")
    assert isinstance(refused, Refused)
    assert "raised SystemExit: 0" in refused.message


def test_a_file_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    (refused,) = said(tmp_path, "fine", "def fine(:\n")
    assert isinstance(refused, Refused)
    assert "SyntaxError" in refused.message


def test_an_error_of_the_harness_in_the_users_code_is_the_users(tmp_path: Path) -> None:
    (refused,) = said(tmp_path, "configures")
    assert isinstance(refused, Refused)
    assert refused.error == DevicesAlreadyConfigured.__name__
    assert "in configures" in refused.details


def test_a_function_that_needs_arguments_is_refused_as_such(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="needs the arguments x"):
        said(tmp_path, "needs")


def test_missing_evidence_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(fn: Callable[[], Any]) -> FakeTrace:
        raise EvidenceError("no graphs were collected")

    monkeypatch.setattr("harness.evidence.tracing.trace", blind)
    with pytest.raises(EvidenceError, match="no graphs"):
        said(tmp_path, "fine")
