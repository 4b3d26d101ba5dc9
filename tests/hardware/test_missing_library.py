"""A missing library is one finding, whatever later checks report because of it."""

from __future__ import annotations

from harness.hardware.software.consequences import MissingLibraries
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
