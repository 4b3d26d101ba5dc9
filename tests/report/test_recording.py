"""The record of a run while it grows."""

from __future__ import annotations

from pathlib import Path

from harness.records import CheckResult, Exercised, Fingerprint, Verdict
from harness.report.recording import Recording
from harness.report.storage import load_run


def result(verdict: Verdict) -> CheckResult:
    return CheckResult(f"is-{verdict.value.lower()}", verdict, "", "", Exercised(values=1))


def recording(folder: Path, planned: tuple[str, ...] = ("a", "b")) -> Recording:
    return Recording(folder, harness="0.1.0", command=("harness",), spec="cpu:2", planned=planned)


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
