"""What a person reads at the end of a run."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.records import Card, CheckResult, Exercised, Finding, RunRecord, Verdict, exit_code, overall
from harness.report.markdown import report_markdown
from harness.report.terminal import FINDINGS_SHOWN, print_report, stdout_console

CPU1 = "/job:localhost/replica:0/task:0/device:CPU:1"
PASSED = CheckResult("vector-add", Verdict.PASS, "the same bits", "", Exercised(2, 300000, ops=8, devices=("a", "b")))
FINDING = Finding("value", "output [bold]y[/bold]", CPU1, "1", "2", "off by [red]one[/red]\nin two lines")
FAILED = CheckResult(
    "matpow", Verdict.FAIL, "1 finding: [/nonsense]", "look at [y]", Exercised(values=5), (FINDING,), elapsed_s=1.26
)


def record(*results: CheckResult, complete: bool = True) -> RunRecord:
    verdict = overall(result.verdict for result in results)
    planned = tuple(result.check for result in results) + (() if complete else ("missing",))
    code = int(exit_code(verdict))
    return RunRecord("now", "0", (), "cpu:2", verdict, code, complete, results, planned, elapsed_s=9.5)


def printed(run: RunRecord, path: Path | None = Path("report/run.json"), width: int = 120) -> str:
    stream = io.StringIO()
    print_report(Console(file=stream, width=width, highlight=False), run, path)
    return stream.getvalue()


def test_each_check_has_its_line_with_verdict_exercise_time_and_reason() -> None:
    text = printed(record(PASSED, FAILED))
    (line,) = [line for line in text.splitlines() if line.strip().startswith("vector-add")]
    assert "PASS" in line
    assert "2 programs, 300,000 values, 8 ops on 2 devices" in line
    assert "the same bits" in line
    (line,) = [line for line in text.splitlines() if line.strip().startswith("matpow")]
    assert "FAIL" in line
    assert "1.3 s" in line


def test_each_finding_has_one_line_and_the_next_step_follows() -> None:
    lines = printed(record(PASSED, FAILED)).splitlines()
    at = lines.index("FAIL matpow")
    assert (
        lines[at + 1]
        == "  - H104 value: output [bold]y[/bold] on CPU:1: off by [red]one[/red] in two lines (expected 1, found 2)"
    )
    assert lines[at + 2] == "  next: look at [y]"


def test_facts_of_many_lines_are_left_to_the_record() -> None:
    crashed = replace(FAILED, findings=(replace(FINDING, found="stacks\nof all threads"),))
    assert "of all threads" not in printed(record(crashed))


def test_a_plain_pass_has_no_further_lines() -> None:
    assert "PASS vector-add" not in printed(record(PASSED))


def test_a_check_without_findings_says_its_reason_again_beside_the_next_step() -> None:
    unknown = replace(FAILED, verdict=Verdict.UNKNOWN, findings=(), reason="nothing was exercised")
    lines = printed(record(unknown)).splitlines()
    at = lines.index("UNKNOWN matpow")
    assert lines[at + 1] == "  nothing was exercised"


def test_markup_in_texts_of_users_is_shown_as_it_is() -> None:
    text = printed(record(FAILED))
    assert "1 finding: [/nonsense]" in text
    assert "[bold]y[/bold]" in text


def test_too_many_findings_are_counted_not_shown() -> None:
    many = replace(FAILED, findings=tuple(replace(FINDING, where=f"y{index}") for index in range(FINDINGS_SHOWN + 5)))
    text = printed(record(many))
    assert f"y{FINDINGS_SHOWN - 1} " in text
    assert f"y{FINDINGS_SHOWN} " not in text
    assert "and 5 more findings, in the record" in text


def test_the_last_lines_are_the_verdict_and_the_place_of_the_record() -> None:
    *_, verdict, place = printed(record(PASSED, FAILED)).splitlines()
    assert verdict == "FAIL on cpu:2: 2 checks in 9.5 s (1 PASS, 1 FAIL)"
    assert place == "Record: report/run.json"


def test_a_run_that_was_cut_short_says_so() -> None:
    text = printed(record(PASSED, complete=False))
    assert "1 of 2 checks" in text
    assert "INTERRUPTED" in text
    assert "INTERRUPTED" not in printed(record(PASSED))


def test_no_place_is_named_where_there_is_no_record() -> None:
    assert "Record" not in printed(record(PASSED), path=None)


def test_nothing_is_cut_off_on_a_narrow_terminal() -> None:
    long = replace(PASSED, reason="q" * 300)
    text = printed(record(long), width=80)
    assert text.count("q") == 300
    assert max(len(line) for line in text.splitlines()) <= 80


def test_where_there_is_no_terminal_the_width_is_fixed_and_there_is_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    console = stdout_console()
    assert console.width == 120
    assert not console.is_terminal


def test_exercise_reads_as_counts_without_zeros() -> None:
    assert str(Exercised()) == "nothing"
    assert str(Exercised(1, 1, 1, 1, 1, ("a",))) == (
        "1 program, 1 value, 1 gradient value, 1 op, 1 gradient op on 1 device"
    )
    assert str(Exercised(values=1234567)) == "1,234,567 values"


def test_checks_that_were_skipped_for_one_reason_are_told_together() -> None:
    skipped = [replace(PASSED, check=name, verdict=Verdict.SKIP, reason="no GPU") for name in ("one", "two")]
    other = replace(skipped[0], check="three", reason="no NCCL")
    lines = printed(record(*skipped, other)).splitlines()
    assert lines[lines.index("SKIP one, two") + 1] == "  no GPU"
    assert lines[lines.index("SKIP three") + 1] == "  no NCCL"


def test_the_verdict_says_which_devices_there_were_where_the_spec_leaves_them_to_the_machine() -> None:
    cards = (
        *(Card(f"CPU:{number}", "a processor", device=f"/device:CPU:{number}") for number in range(2)),
        Card("nvml:0", "a GPU"),
    )
    for spec, expected in (("auto", "auto (2 CPUs)"), ("gpu", "gpu (2 CPUs)"), ("cpu:2", "cpu:2")):
        run = replace(record(PASSED), spec=spec, cards=cards)
        assert f"PASS on {expected}: 1 check in " in printed(run)
        assert report_markdown(run).startswith(f"# PASS on {expected}\n")
    assert "PASS on auto: 1 check in " in printed(replace(record(PASSED), spec="auto"))
