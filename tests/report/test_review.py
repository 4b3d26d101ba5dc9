"""Findings as annotations of code review: the forms, what is escaped, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Finding, Verdict
from harness.report import review
from harness.report.review import Note

PLACE = ("tests/test_model.py", 7)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the files that the findings name."""
    (tmp_path / "src" / "model").mkdir(parents=True)
    for name in ("src/model/__init__.py", "a.py", "b.py"):
        (tmp_path / name).touch()
    return tmp_path


def finding(kind: str = "value", message: str = "Rows are lost (src/model/__init__.py:20)", **given: Any) -> Finding:
    return Finding(kind, "output", None, "1", "2", message, **given)


def test_a_note_is_at_the_line_at_fault_or_else_at_the_test(project: Path) -> None:
    note = Note.of(finding(next_step="keep them"), "test_a", PLACE, project)
    assert (note.file, note.line, note.fails) == ("src/model/__init__.py", 20, True)
    assert note.message == "Rows are lost (src/model/__init__.py:20); keep them"
    assert Note.of(finding(message="Rows are lost"), "test_a", PLACE, project).file == "tests/test_model.py"
    # The first line is of an installed package, which is no part of the project.
    both = Note.of(finding(message="Rows are lost (keras/layers.py:3, called at a.py:8)"), "test_a", PLACE, project)
    assert (both.file, both.line) == ("a.py", 8)
    elsewhere = Note.of(finding(message="Rows are lost (/usr/lib/a.py:3)"), "test_a", PLACE, project)
    assert elsewhere.file == "tests/test_model.py"
    assert Note.of(finding(message="Rows are lost (In[3]:12)"), "test_a", PLACE, project).line == 7


def test_ten_findings_and_a_line_for_the_rest_failures_first_and_each_once(project: Path) -> None:
    warning = finding("gradient-placement", "moved (b.py:1)", severity=Verdict.WARN)
    found = [warning, *(finding(message=f"Rows (a.py:{line})") for line in range(12) for _ in range(2))]
    notes = review.most_important(Note.of(each, "test_a", PLACE, project) for each in found)
    assert [note.line for note in notes] == [*range(12), 1]
    lines = review.github(notes)
    assert len(lines) == 11
    assert lines[0] == "::error file=a.py,line=0,title=H104 value::Rows (a.py:0)"
    assert lines[-1] == "::notice title=harness::and 3 more findings, see the log of the tests"
    assert review.github(notes[-1:])[0].startswith("::warning file=b.py,line=1,")


def test_properties_and_messages_are_escaped() -> None:
    note = Note("H104", "a,b:c", "50 %\nof <b>all</b> | `rows`", "a,b.py", 3, "test_a", True)
    assert review.github([note]) == [
        "::error file=a%2Cb.py,line=3,title=H104 a%2Cb%3Ac::50 %25%0Aof <b>all</b> | `rows`"
    ]
    row = review.summary([note], []).splitlines()[4]
    assert row == r"| H104 a,b:c | `a,b.py:3` | 50 % of \<b\>all\</b\> \| \`rows\` |"


def test_a_job_summary_begins_with_the_status_and_stays_below_the_limit(project: Path) -> None:
    note = Note.of(finding(), "test_a", PLACE, project)
    assert review.summary([note], ["4 verifications"]).startswith("### Device placement: FAIL: 1 finding\n")
    lines = ["4 verifications", "2 of them did not pass:", "  2 in test_a"]
    assert review.summary([], lines) == (
        "### Device placement: no finding\n\n\n- 4 verifications\n- 2 of them did not pass:\n  - 2 in test\\_a\n"
    )
    text = review.summary([Note.of(finding(message="x" * 100_000), "test_a", PLACE, project)] * 30, [])
    assert len(text.encode()) < 2**20
    assert "\nand 25 more findings\n" in text


def test_reports_of_gitlab_and_sarif_have_the_line_and_a_fingerprint_that_stays(project: Path) -> None:
    note = Note.of(finding(), "test_a", PLACE, project)
    moved = Note.of(finding(message="Rows are lost (src/model/__init__.py:25)"), "test_a", PLACE, project)
    (entry,) = json.loads(review.gitlab([note]))
    assert entry["location"] == {"path": "src/model/__init__.py", "lines": {"begin": 20}}
    assert entry["fingerprint"] == json.loads(review.gitlab([moved]))[0]["fingerprint"]
    (run,) = json.loads(review.sarif([note], "1.2.3"))["runs"]
    assert run["tool"]["driver"]["rules"][run["results"][0]["ruleIndex"]]["id"] == "H104"
    where = run["results"][0]["locations"][0]["physicalLocation"]
    assert where == {"artifactLocation": {"uri": "src/model/__init__.py"}, "region": {"startLine": 20}}
