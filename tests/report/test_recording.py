"""The record of a run while it grows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.records import CheckResult, Exercised, Fingerprint, Verdict
from harness.report.recording import RunRecording
from harness.report.storage import load_run


def result(verdict: Verdict) -> CheckResult:
    return CheckResult(f"is-{verdict.value.lower()}", verdict, "", "", Exercised(values=1))


def recording(folder: Path, planned: tuple[str, ...] = ("a", "b")) -> RunRecording:
    return RunRecording(folder, harness="0.1.0", command=("harness",), spec="cpu:2", planned=planned)


def test_a_run_that_has_just_begun_is_stored_as_incomplete_and_unknown(tmp_path: Path) -> None:
    recording(tmp_path)
    stored = load_run(tmp_path)
    assert (stored.complete, stored.verdict, stored.exit_code) == (False, Verdict.UNKNOWN, 3)
    assert stored.planned == ("a", "b")


def test_each_result_is_stored_at_once(tmp_path: Path) -> None:
    kept = recording(tmp_path)
    kept.devices_are("as asked", Fingerprint("2", None, "2", "3", None, None, None, None, None, "linux"))
    kept.add(result(Verdict.PASS))
    stored = load_run(tmp_path)
    assert [each.check for each in stored.results] == ["is-pass"]
    assert stored.spec_reason == "as asked"
    assert stored.fingerprint is not None
    assert (stored.complete, stored.verdict) == (False, Verdict.UNKNOWN)


def test_a_run_that_goes_on_counts_the_time_before_its_interruption(tmp_path: Path) -> None:
    kept = RunRecording(tmp_path, harness="0.1.0", command=(), spec="gpu", planned=(), earlier_s=3600.0)
    kept.complete()
    assert 3600 <= load_run(tmp_path).elapsed_s < 7200


def test_only_a_complete_run_can_pass(tmp_path: Path) -> None:
    kept = recording(tmp_path)
    kept.add(result(Verdict.PASS))
    kept.complete()
    stored = load_run(tmp_path)
    assert (stored.complete, stored.verdict, stored.exit_code) == (True, Verdict.PASS, 0)


def test_a_failure_counts_before_the_run_is_complete(tmp_path: Path) -> None:
    kept = recording(tmp_path)
    kept.add(result(Verdict.FAIL))
    stored = load_run(tmp_path)
    assert (stored.complete, stored.verdict, stored.exit_code) == (False, Verdict.FAIL, 1)


def test_skips_alone_are_unknown(tmp_path: Path) -> None:
    kept = recording(tmp_path)
    kept.add(result(Verdict.SKIP))
    kept.complete()
    assert load_run(tmp_path).exit_code == 3


def test_a_run_that_was_cut_short_keeps_its_results_and_its_exit_code(tmp_path: Path) -> None:
    kept = recording(tmp_path)
    kept.add(result(Verdict.PASS))
    kept.cut_short(130)
    stored = load_run(tmp_path)
    assert (stored.complete, stored.verdict, stored.exit_code) == (False, Verdict.UNKNOWN, 130)
    assert len(stored.results) == 1


def test_a_folder_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = recording(tmp_path / "file" / "report")
    assert kept.problem is not None
    kept.add(result(Verdict.PASS))
    kept.complete()
    assert kept.record.verdict is Verdict.PASS
    assert kept.path is None
    assert "cannot be written" in str(kept.problem)


def test_a_folder_that_can_be_written_again_holds_everything(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = recording(tmp_path / "file" / "report")
    kept.add(result(Verdict.PASS))
    (tmp_path / "file").unlink()
    kept.complete()
    assert kept.problem is None
    assert kept.path == tmp_path / "file" / "report" / "run.json"
    assert len(load_run(tmp_path / "file" / "report").results) == 1


def test_what_people_and_ci_read_is_written_when_the_run_is_complete(tmp_path: Path) -> None:
    kept = recording(tmp_path, ("is-pass",))
    kept.add(result(Verdict.PASS))
    assert (kept.page, sorted(path.name for path in tmp_path.iterdir())) == (None, ["run.json"])
    kept.complete()
    assert kept.page == tmp_path / "report.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["junit.xml", "report.html", "report.md", "run.json"]
    assert "Incomplete." not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_that_was_cut_short_leaves_a_report_that_says_so(tmp_path: Path) -> None:
    kept = recording(tmp_path)
    kept.add(result(Verdict.PASS))
    kept.cut_short(130)
    assert "<strong>Incomplete.</strong>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "**INCOMPLETE**" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert 'errors="2"' in (tmp_path / "junit.xml").read_text(encoding="utf-8")


def test_the_report_of_an_earlier_run_does_not_outlive_the_beginning_of_the_next(tmp_path: Path) -> None:
    first = recording(tmp_path)
    first.complete()
    (tmp_path / "notes.txt").write_text("mine")
    recording(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "run.json"]


@pytest.mark.parametrize("name", ["junit.xml", "report.md", "report.html"])
def test_a_file_that_cannot_be_written_is_said_and_the_verdict_stands(tmp_path: Path, name: str) -> None:
    kept = recording(tmp_path)
    kept.add(result(Verdict.PASS))
    (tmp_path / name).mkdir()
    (tmp_path / name / "in the way").write_text("")
    kept.complete()
    assert "cannot be written: Is a directory" in str(kept.problem)
    assert (kept.record.verdict, load_run(tmp_path).verdict) == (Verdict.PASS, Verdict.PASS)
    assert kept.page is None


def test_a_full_disk_is_said_and_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = recording(tmp_path)
    kept.add(result(Verdict.FAIL))

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    kept.complete()
    assert "cannot be written: No space left on device" in str(kept.problem)
    assert kept.record.verdict is Verdict.FAIL
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_fault_of_the_renderer_does_not_cost_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> str:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("harness.report.html.page.report_page", broken)
    kept = recording(tmp_path)
    kept.add(result(Verdict.PASS))
    kept.complete()
    assert "could not be rendered: ZeroDivisionError: planted; run.json is complete" in str(kept.problem)
    assert kept.record.verdict is Verdict.PASS
    assert (tmp_path / "junit.xml").exists()
