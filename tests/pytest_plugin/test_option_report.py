"""``--harness-report``: the verifications of a session as a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

_TEST = """
from harness import Exercised, Finding, Verdict, session
from harness.judgement.verification import Verification

def judged(verdict, *findings):
    found = Verification(verdict, "told", findings, Exercised(1, 1, 0, 1, 0, ("CPU:0",)))
    for observe in session.observers:
        observe(found)
    return found

def test_it(devices):
    assert judged(Verdict.PASS).passed
    assert judged(Verdict.FAIL, Finding("value", "output", None, "1", "2", "Rows are lost")).passed

def test_another(devices):
    assert judged(Verdict.PASS).passed
"""


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_the_page_has_every_verification_by_its_test(
    pytester: pytest.Pytester, inner_pytest: Callable[..., pytest.RunResult], options: list[str]
) -> None:
    pytester.makepyfile(_TEST)
    done = inner_pytest("--harness-devices=cpu:2", "--harness-report=out/page", *options)
    assert any(line == "harness: report of 3 verifications: out/page/report.html" for line in done.outlines)
    run = json.loads(Path("out/page/run.json").read_text(encoding="utf-8"))
    file = "test_the_page_has_every_verification_by_its_test.py"
    assert {result["check"]: result["verdict"] for result in run["results"]} == {
        f"{file}::test_it (1)": "PASS",
        f"{file}::test_it (2)": "FAIL",
        f"{file}::test_another": "PASS",
    }
    assert (run["spec"], run["verdict"]) == ("cpu:2", "FAIL")
    assert "Rows are lost" in Path("out/page/report.html").read_text(encoding="utf-8")
    if options:
        return
    refused = inner_pytest("--harness-report=out/page/run.json")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["ERROR: --harness-report=out/page/run.json; accepted: a folder*"])
    none = inner_pytest("--harness-devices=cpu:2", "--harness-report=none", "-k", "absent")
    none.stdout.fnmatch_lines(["harness: no verification ran, so *none has no report"])
