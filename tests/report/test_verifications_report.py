"""``harness.write_report``: verifications as the page and the record of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from html_rules import Page

from harness import Exercised, Finding, UsageError, Verdict, Verification, write_report
from harness.errors import ReportError
from harness.evidence.trace import Trace
from harness.report.storage import load_run

_ALL = Exercised(2, 8, 0, 27, 15, ("/device:CPU:0", "/device:CPU:1"))


def found(verdict: Verdict, *findings: Finding) -> Verification:
    return Verification(verdict, findings[0].message if findings else "all is well", findings, _ALL, traces={})


MISPLACED = Finding("gradient-placement", "TanhGrad", "CPU:0", "CPU:1", "CPU:0", "backward ops are on CPU:0")


def test_verifications_have_the_page_and_the_files_of_a_run(tmp_path: Path) -> None:
    both = {"by hand": found(Verdict.FAIL, MISPLACED), "colocated": found(Verdict.PASS)}
    written = write_report(both, tmp_path / "out")
    assert written == tmp_path / "out" / "report.html"
    page = Page(written.read_text(encoding="utf-8"))
    assert page.problems == []
    assert page.headings[0][1].startswith("FAIL")
    assert "backward ops are on CPU:0" in page.text
    assert "harness validate" not in page.text
    record = load_run(tmp_path / "out")
    assert [(result.check, result.verdict) for result in record.results] == [("by hand", "FAIL"), ("colocated", "PASS")]
    assert record.complete
    assert sorted(path.name for path in written.parent.iterdir()) == [
        "junit.xml",
        "report.html",
        "report.md",
        "run.json",
    ]

    write_report(found(Verdict.PASS), tmp_path / "out")
    (result,) = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))["results"]
    assert result["check"] == "verification"


def test_what_cannot_be_reported_is_one_line(tmp_path: Path) -> None:
    wrong: list[Any] = [{}, [found(Verdict.PASS)], Trace((), ())]
    for given in wrong:
        with pytest.raises(UsageError, match=r"^write_report: .*what harness\.verify returned") as caught:
            write_report(given, tmp_path)
        assert "\n" not in str(caught.value)
    (tmp_path / "file").touch()
    with pytest.raises(ReportError):
        write_report(found(Verdict.PASS), tmp_path / "file")


def test_a_failure_has_ten_lines_at_most_whatever_its_findings_have() -> None:
    long = Finding(
        "value", "result", None, "1.0", "2.0\nin a program\nof lines", "rows are lost", next_step="keep them"
    )
    many = [replace(long, where=f"result[{number}]") for number in range(6)]
    for findings in (many[:1], many[:3], many):
        text = str(found(Verdict.FAIL, *findings))
        assert len(text.splitlines()) <= 10, text
        assert text.count("next: keep them") >= 1
    assert "and 3 more findings" in str(found(Verdict.FAIL, *many))
    assert "of lines" in "\n".join(found(Verdict.FAIL, *many).lines(everything=True))
    evident = replace(long, found="2.0", follows=("one line", "another", "a third"))
    told = found(Verdict.FAIL, *[replace(evident, where=f"result[{number}]") for number in range(6)])
    assert len(str(told).splitlines()) <= 10, str(told)
    assert "and 4 more findings" in str(told)
