"""``harness report`` and ``harness diff``: what is written and printed, and the exit code. TensorFlow is blocked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sample_records as samples
from command_line import run_process

from harness.records import RunRecord, Verdict
from harness.report.run_schema import run_schema
from harness.report.storage import save_run

Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs the command line where TensorFlow cannot be imported."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "tensorflow.py").write_text("raise ImportError('blocked')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(blocked), os.environ.get("PYTHONPATH")])))

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = run_process(tmp_path, *arguments)
        assert "Traceback" not in done.stderr
        return done

    return start


def kept(folder: Path, **records: RunRecord) -> None:
    for name, record in records.items():
        save_run(record, folder / name)


def test_a_run_is_rendered_again_beside_its_record(tmp_path: Path, ask: Ask) -> None:
    kept(tmp_path, one=samples.failing())
    done = ask("report", "one/run.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "FAIL on cpu:2: 7 checks in " in done.stdout
    assert done.stdout.endswith("Report: one/report.html\n")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["junit.xml", "report.html", "report.md", "run.json"]


def test_several_runs_are_laid_side_by_side_where_it_is_said(tmp_path: Path, ask: Ask) -> None:
    whole = samples.eight_cards()
    kept(tmp_path, first=whole, second=whole, third=replace(whole, results=whole.results[:2], verdict=Verdict.UNKNOWN))
    done = ask("report", "first", "second/run.json", "third", "--output", "all")
    assert (done.returncode, done.stderr) == (0, "")
    for word in (
        "first",
        "second",
        "third",
        "no result (differs)",
        "Outliers: with three",
        "Report: all/comparison.html",
    ):
        assert word in done.stdout
    assert "3 runs side by side" in (tmp_path / "all" / "comparison.html").read_text(encoding="utf-8")


def test_the_schema_is_printed(ask: Ask) -> None:
    assert ask("report", "--schema").stdout == run_schema()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report"], "no run given; accepted: one or more RUN.json"),
        (["report", "absent.json"], "absent.json: No such file or directory"),
        (["report", "broken.json"], "broken.json: is not JSON"),
        (
            ["report", "one", "--output", "broken.json/x"],
            "broken.json/x cannot be written: Not a directory; name another folder with --output",
        ),
        (["diff", "one", "absent.json"], "absent.json: No such file or directory"),
        (["diff", "one", "empty"], "the runs cannot be compared: they have no check in common"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, ask: Ask, arguments: Sequence[str], message: str
) -> None:
    kept(tmp_path, one=samples.clean(), empty=samples.empty())
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    done = ask(*arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("harness: error: ")
    assert message in line


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        (samples.clean(), samples.clean(), 0, "NOTHING WORSE: 0 differences (3 checks"),
        (samples.incomplete(), samples.clean(), 0, "better  run         was incomplete, is complete"),
        (samples.clean(), samples.incomplete(), 1, "worse   verdict     matpow: PASS → no result"),
    ],
    ids=["same", "better", "worse"],
)
def test_the_exit_code_of_diff_says_whether_anything_is_worse(
    tmp_path: Path, ask: Ask, old: RunRecord, new: RunRecord, code: int, said: str
) -> None:
    kept(tmp_path, old=old, new=new)
    done = ask("diff", "old", "new/run.json")
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout
