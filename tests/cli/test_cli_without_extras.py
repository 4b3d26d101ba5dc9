"""The core alone: what an extra installs is missing, and each thing that needs it says so in one line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import IMPORT_ROOT, run_process
from fresh_programs import use_the_core

from harness.extras import EXTRAS
from harness.records import Verdict
from harness.report.storage import load_run

#: Python runs this file in every process, before anything else.
_BLOCKER = f"""
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {tuple(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def _line(package: str, extra: str) -> str:
    return f"{package} is not installed; run: python -m pip install 'tf-placement-harness[{extra}]'"


@pytest.fixture
def core_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path that new processes take the blocker from."""
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(_BLOCKER, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(blocker), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    return blocker


def test_validate_checks_what_the_core_can_check(tmp_path: Path, core_alone: Path) -> None:
    only = ("--only", "vector-add", "--only", "generated-programs")
    done = run_process(tmp_path, "validate", "--devices", "cpu:2", *only, planted=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr == f"harness: report.html was not written: {_line('jinja2', 'report')}\n"
    folder = tmp_path / "harness-report"
    passed, skipped = load_run(folder).results
    assert (passed.check, passed.verdict) == ("vector-add", Verdict.PASS)
    assert (skipped.check, skipped.verdict) == ("generated-programs", Verdict.SKIP)
    assert skipped.reason == _line("hypothesis", "generate")
    assert {path.name for path in folder.iterdir()} == {"run.json", "report.md", "junit.xml", "logs"}
    again = run_process(tmp_path, "report", "harness-report")
    assert (again.returncode, again.stderr) == (2, f"harness: error: {_line('jinja2', 'report')}\n")


def test_the_library_verifies_with_the_core_and_what_needs_an_extra_names_it(
    core_alone: Path, fresh_process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    # What the fixture puts first was read before the blocker was there.
    done = fresh_process(use_the_core, PYTHONPATH=os.pathsep.join([str(core_alone), str(IMPORT_ROOT)]))
    speed, report = _line("scipy", "speed"), _line("matplotlib", "report")
    assert done.stdout.splitlines() == [_line("hypothesis", "generate"), speed, "[]"]
    lines = [line for line in done.stderr.splitlines() if line.startswith("harness:")]
    assert lines == [f"harness: error: {line}" for line in (speed, speed, speed, report)]
    assert "Traceback" not in done.stderr
