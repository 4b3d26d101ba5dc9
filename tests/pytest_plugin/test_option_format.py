"""``--harness-format``: findings of failing tests at their lines, as services of code review read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

_TEST = """
import pytest
from harness import Exercised, Finding, Verdict, session
from harness.judgement.verification import Verification

def judged(message):
    finding = Finding("value", "output", None, "1", "2", message)
    found = Verification(Verdict.FAIL, message, (finding,), Exercised(1, 1, 0, 1, 0, ("CPU:0",)))
    for observe in session.observers:
        observe(found)
    return found

def test_it(devices):
    assert judged("Rows are lost (src/model.py:20)").passed

def test_fault(devices):
    assert not judged("Rows are lost (src/other.py:20)").passed

@pytest.mark.xfail
def test_known(devices):
    assert judged("Rows are lost (src/third.py:20)").passed
"""


def _project(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_TEST)
    pytester.mkdir("src").joinpath("model.py").touch()


_SAID = "::error file=src/model.py,line=20,title=H104 value::Rows are lost (src/model.py:20)"


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_in_github_actions_what_fails_a_test_is_at_its_line(
    pytester: pytest.Pytester,
    inner_pytest: Callable[..., pytest.RunResult],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
) -> None:
    _project(pytester)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
    said = _SAID.replace("file=", f"file={pytester.path.name}/")
    for _ in range(2):  # another step adds to the summary
        done = inner_pytest("--harness-devices=cpu:2", *options)
        assert [line for line in done.outlines if line.startswith("::")] == [said]
        assert "[Findings]" not in done.stdout.str()
    summary = (pytester.path / "summary.md").read_text(encoding="utf-8")
    assert summary.count("### Device placement: FAIL: 1 finding\n") == 2


def test_reports_for_gitlab_sarif_and_junit(
    pytester: pytest.Pytester, inner_pytest: Callable[..., pytest.RunResult]
) -> None:
    _project(pytester)
    forms = ("--harness-format=sarif:out/found.sarif", "--harness-format=gitlab")
    done = inner_pytest("--harness-devices=cpu:2", "-v", "--junitxml=junit.xml", *forms)
    assert not [line for line in done.outlines if line.startswith("::")]
    (run,) = json.loads(Path("out/found.sarif").read_text(encoding="utf-8"))["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["H104"]
    (entry,) = json.loads(Path("gl-code-quality-report.json").read_text(encoding="utf-8"))
    assert entry["location"]["path"] == "src/model.py"
    properties = Path("junit.xml").read_text(encoding="utf-8").count('name="harness-finding"')
    assert properties == 1
    assert inner_pytest("--harness-format=none").ret == pytest.ExitCode.TESTS_FAILED


def test_an_unknown_format_is_refused_and_a_file_that_cannot_be_written_costs_nothing(
    pytester: pytest.Pytester, inner_pytest: Callable[..., pytest.RunResult]
) -> None:
    _project(pytester)
    refused = inner_pytest("--harness-format=gitea", apart=True)
    refused.stderr.fnmatch_lines(["*--harness-format=gitea; accepted: github, gitlab*:FILE*, sarif*:FILE*, none*"])
    done = inner_pytest("--harness-devices=cpu:2", "--harness-format=sarif:/dev/full")
    done.stdout.fnmatch_lines(["harness: /dev/full was not written: No space left on device"])
    done.assert_outcomes(failed=1, passed=1, xfailed=1)
