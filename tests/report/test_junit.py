"""junit.xml: a test case for each check, and nothing that a CI system could take for a pass where it is none."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import sample_records as samples

from harness.records import Exercised, RunRecord
from harness.report.junit import MOST_FINDINGS, junit_xml


def read(record: RunRecord) -> ET.Element:
    return ET.fromstring(junit_xml(record).encode())


def ends(record: RunRecord) -> dict[str, list[str]]:
    return {
        case.attrib["name"]: [child.tag for child in case if child.tag != "system-out"]
        for case in read(record).iter("testcase")
    }


def test_each_verdict_ends_its_test_case_in_its_own_way() -> None:
    assert ends(samples.failing()) == {
        "vector-add": [],
        "towers": ["failure"],
        "crash": ["failure"],
        "slow": [],
        "silent": ["error"],
        "many": ["skipped"],
        "known": [],
    }


def test_the_counts_are_those_of_the_cases() -> None:
    (suite,) = read(samples.failing()).iter("testsuite")
    facts = {name: suite.attrib[name] for name in ("tests", "failures", "errors", "skipped")}
    assert facts == {"tests": "7", "failures": "2", "errors": "1", "skipped": "1"}


def test_the_suite_has_the_name_of_the_command_that_was_run() -> None:
    for command in ("burnin", "validate"):
        made = read(samples.run(samples.passed(), command=("harness", command)))
        assert [each.get("name") for each in made.iter("testsuite")] == [f"harness {command}"]


def test_a_check_that_never_ran_is_an_error() -> None:
    assert ends(samples.incomplete()) == {"vector-add": [], "matpow": ["error"], "pipeline": ["error"]}


def test_a_pass_that_exercised_nothing_is_an_error_and_one_that_did_is_none() -> None:
    record = samples.run(samples.passed(), samples.passed("vacuous", exercised=Exercised()))
    assert ends(record) == {"vector-add": [], "vacuous": ["error"]}


def test_a_run_without_results_has_no_case_that_passes() -> None:
    assert ends(samples.empty()) == {"vector-add": ["error"]}


def test_a_failure_says_its_findings_and_how_to_replay_it() -> None:
    (failure,) = (
        case.find("failure") for case in read(samples.failing()).iter("testcase") if case.attrib["name"] == "towers"
    )
    assert failure is not None
    assert failure.attrib == {"message": "2 findings", "type": "gradient-placement"}
    assert failure.text is not None
    for said in ("ran beside the tape", "next: use make_parallel", "replay: harness validate --only towers"):
        assert said in failure.text


def test_any_text_of_a_user_can_be_written_and_read_again() -> None:
    root = read(samples.hostile())
    text = "".join(root.itertext())
    for shown in ("<script>alert(1)</script>", "]]><b>", "\\x1b[31mred\\x00\\x07", "\\u202e", "\\ud800 alone", "اسم"):
        assert shown in text


def test_of_many_findings_the_first_are_written_and_the_rest_are_counted() -> None:
    (failure,) = read(samples.many_findings(10_000)).iter("failure")
    assert failure.text is not None
    assert f"and {10_000 - MOST_FINDINGS:,} more findings, in run.json" in failure.text
