"""What each station makes of a result: pure functions, so that the same results always give the same verdicts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from harness.checking.stations import MissingLibraries, bounded, settled, through, with_more
from harness.records import CheckResult, Exercised, Finding, Verdict


def missing(library: str) -> Finding:
    return Finding(
        "software", f"lib{library}.so.2", None, "it", "none", f"could not load lib{library}", subject=library
    )


def error(message: str) -> Finding:
    return Finding("error", "check digits", None, "the check completes", "Traceback", message)


def result(check: str, *findings: Finding) -> CheckResult:
    verdict = Verdict.FAIL if findings else Verdict.PASS
    return CheckResult(check, verdict, "as it is", "", Exercised(values=1), findings)


def judged(*results: CheckResult) -> list[CheckResult]:
    libraries = MissingLibraries()
    return [libraries.judged(each) for each in results]


def test_what_later_checks_report_because_of_a_missing_library_is_no_finding_of_its_own() -> None:
    nccl, cudnn, other = missing("nccl"), missing("cudnn"), error("raised ValueError: odd")
    made = judged(
        result("software", nccl, cudnn),
        result("collectives", missing("NCCL")),
        result("mirrored-strategy", error("raised InternalError: NCCL: unable to load")),
        result("digits", error("raised UnimplementedError: DNN library is not found."), other),
        result("matpow"),
    )
    assert [each.verdict for each in made] == [
        Verdict.FAIL,
        Verdict.UNKNOWN,
        Verdict.UNKNOWN,
        Verdict.FAIL,
        Verdict.PASS,
    ]
    assert [each.findings for each in made] == [(nccl, cudnn), (), (), (other,), ()]
    assert made[1].reason == "not fully tested: libnccl.so.2 is missing (see the check 'software')"
    assert made[3].reason == "raised ValueError: odd"


def test_without_that_finding_everything_stays() -> None:
    for findings in ([missing("NCCL")], [error("raised InternalError: NCCL: unable to load")]):
        assert judged(result("collectives", *findings)) == [result("collectives", *findings)]
    # A version that does not fit is no missing library, and other errors are of their own.
    version = Finding("software", "cuDNN", None, "9.3", "9.1", "cuDNN 9.1 is loaded")
    later = result("digits", error("raised UnimplementedError: DNN library is not found."))
    assert judged(result("software", version, missing("nccl")), later)[1] == later


def test_a_check_that_runs_again_does_not_refer_to_itself() -> None:
    first, again, other = judged(*(result(check, missing("nccl")) for check in ("collectives", "collectives", "load")))
    assert first == again == result("collectives", missing("nccl"))
    assert other.verdict is Verdict.UNKNOWN


#: A result that has passed each station before has a verdict that its findings allow.
FAILING, WARNING = error("raised ValueError: odd"), replace(error("is slow"), severity=Verdict.WARN, next_step="wait")
RESULTS = [
    CheckResult("one", verdict, "as it is", "", Exercised(values=values), findings)
    for verdict, values, findings in product(Verdict, (0, 1), ((), (FAILING,), (WARNING,), (WARNING, FAILING)))
]


def test_no_verdict_is_better_than_the_findings_and_without_more_a_result_stays() -> None:
    for each in RESULTS:
        severities = {finding.severity for finding in each.findings}
        for made in (settled(each), bounded(each)):
            assert (made.verdict is Verdict.FAIL) or Verdict.FAIL not in severities
            assert made.verdict is not Verdict.PASS or not severities
            assert made.findings == each.findings
        assert settled(settled(each)) == settled(each)
        assert bounded(bounded(each)) == bounded(each)
        assert with_more(each, ()) is each
        if not each.exercised.nothing:
            assert bounded(each) == settled(each)


def test_what_was_found_besides_is_the_reason_only_if_it_changes_the_verdict() -> None:
    for each in map(bounded, RESULTS):
        made = with_more(each, (WARNING, FAILING))
        assert (made.verdict, made.findings) == (Verdict.FAIL, (*each.findings, WARNING, FAILING))
        assert made.reason == (each.reason if each.verdict is Verdict.FAIL else "is slow")
        assert made.next_step == (each.next_step or "wait")
    assert with_more(result("two"), (WARNING,)).verdict is Verdict.WARN


def test_stations_are_passed_in_their_order() -> None:
    found = through(
        result("one"),
        (lambda each: with_more(each, (WARNING,)), lambda each: replace(each, reason=f"accepted: {each.reason}")),
    )
    assert (found.verdict, found.reason) == (Verdict.WARN, "accepted: is slow")
    assert through(found, ()) is found
