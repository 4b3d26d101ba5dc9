"""``--known-failures``: what an entry covers, and what it does not."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InvalidKnownFailures
from harness.judgement.known_failures import KnownFailure, accept_known, load_known_failures, no_longer_failing
from harness.records import CheckResult, Exercised, Finding, Verdict

TODAY = date(2026, 11, 21)
SLOW = Finding("rate", "copy", "/job:localhost/replica:0/task:0/device:GPU:3", "20", "5", "slow")


def result(*findings: Finding, verdict: Verdict = Verdict.FAIL) -> CheckResult:
    return CheckResult("copies", verdict, "slow", "look", Exercised(values=1), findings)


def entry(**given: Any) -> KnownFailure:
    return KnownFailure(**{"check": "copies", "reason": "eight lanes", **given})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"device": "GPU:3"},
        {"device": "/job:localhost/replica:0/task:0/device:GPU:3", "kind": "rate"},
        {"until": date(2026, 11, 22)},
    ],
)
def test_a_failure_that_is_known_counts_as_a_warning_that_says_so(given: dict[str, Any]) -> None:
    known = accept_known(result(SLOW), [entry(**given)], TODAY)
    assert known.verdict is Verdict.WARN
    assert known.accepted_as is not None
    assert "eight lanes" in known.accepted_as
    assert known.findings == (SLOW,)
    assert no_longer_failing([entry(**given)], [known]) == ()


@pytest.mark.parametrize(
    "given",
    [{"check": "memory"}, {"device": "GPU:1"}, {"device": "GPU:30"}, {"kind": "corruption"}, {"until": TODAY}],
)
def test_what_no_entry_covers_stays_a_failure(given: dict[str, Any]) -> None:
    assert accept_known(result(SLOW), [entry(**given)], TODAY).verdict is Verdict.FAIL


def test_a_second_finding_that_is_not_known_keeps_the_failure() -> None:
    other = Finding("corruption", "copy", "GPU:3", "", "", "")
    known = [entry(kind="rate")]
    assert accept_known(result(SLOW, other), known, TODAY).verdict is Verdict.FAIL
    assert accept_known(result(SLOW, other), [*known, entry(kind="corruption")], TODAY).verdict is Verdict.WARN


def test_an_entry_whose_check_passes_is_told_and_one_that_did_not_run_is_not() -> None:
    passed = result(verdict=Verdict.PASS)
    assert no_longer_failing([entry(), entry(check="memory")], [passed]) == ("copies: eight lanes",)
    assert no_longer_failing([entry()], [result(verdict=Verdict.UNKNOWN)]) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[known]]\ncheck = "copies"\nreason = "x"\n', "schema_version is missing"),
        (
            'schema_version = 1\n[known]\ncheck = "copies"\nreason = "x"\n',
            "known = {'check': 'copies', 'reason': 'x'}; accepted: a list of tables, each headed [[known]]",
        ),
        (
            'schema_version = 1\n[[known]]\ncheck = "copy"\nreason = "x"\n',
            "known[0].check = 'copy'; accepted: one of",
        ),
        ('schema_version = 1\n[[known]]\ncheck = "copies"\n', "known[0].reason is missing"),
        ('schema_version = 1\n[[known]]\ncheck = "copies"\nreason = "x"\nkind = "speed"\n', "known[0].kind = 'speed'"),
        (
            'schema_version = 1\n[[known]]\nchek = "copies"\nreason = "x"\n',
            "known[0].chek = 'copies'; accepted: only the keys check",
        ),
        ("schema_version = ", "TOML syntax"),
    ],
)
def test_a_broken_file_is_refused_in_a_line_that_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "known.toml"
    file.write_text(text)
    with pytest.raises(InvalidKnownFailures) as raised:
        load_known_failures(file, ("copies",))
    assert str(raised.value).startswith("known failures ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text('schema_version = 1\n[[known]]\ncheck = "copies"\nreason = "x"\nuntil = 2027-01-31\n')
    assert load_known_failures(file, ("copies",)) == (
        KnownFailure(check="copies", reason="x", until=date(2027, 1, 31)),
    )
    with pytest.raises(InvalidKnownFailures, match="No such file"):
        load_known_failures(tmp_path / "none.toml", ("copies",))
