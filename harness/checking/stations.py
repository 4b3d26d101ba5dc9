"""The stations that the result of a check passes on its way into the record: each takes a result and returns one.

A check adds up what it found in a ``Tally``, and :func:`harness.checking.execute.execute` sends the result through
:func:`bounded`, a second pass (:func:`confirmed`) and :func:`of_description`. The command that runs the checks sends it
on: through what the cards have counted meanwhile (``harness.hardware.watch``), through :class:`MissingLibraries`, and
through what is known and accepted (``harness.judgement.known_failures``). No station runs anything, so that the same
results always give the same verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from harness.records import CheckResult, Finding, Verdict, overall

Station: TypeAlias = Callable[[CheckResult], CheckResult]

#: Kinds of finding about wrong bits.
WRONG_BITS = frozenset({"corruption", "memory", "nondeterminism", "arithmetic"})
#: How TensorFlow's errors name a library, where not by its own name.
_NAMED = {"cudnn": r"cudnn|\bdnn (library|support)"}


def through(result: CheckResult, stations: Iterable[Station]) -> CheckResult:
    """Return what is left of a result after all stations, in their order."""
    for station in stations:
        result = station(result)
    return result


def settled(result: CheckResult) -> CheckResult:
    """Return the result with the verdict that its findings allow: none is better than they are."""
    worst = {finding.severity for finding in result.findings}
    if Verdict.FAIL in worst:
        return replace(result, verdict=Verdict.FAIL)
    return replace(result, verdict=Verdict.WARN) if worst and result.verdict is Verdict.PASS else result


def with_more(result: CheckResult, found: Sequence[Finding]) -> CheckResult:
    """Return the result with more findings. If they change the verdict, the first of them is the reason."""
    if not found:
        return result
    made = settled(replace(result, findings=(*result.findings, *found)))
    reason = result.reason if made.verdict is result.verdict else found[0].message
    return replace(made, reason=reason, next_step=result.next_step or found[0].next_step)


def bounded(result: CheckResult) -> CheckResult:
    """Return the result with the verdict that its findings and its exercise allow."""
    failed = any(finding.severity is Verdict.FAIL for finding in result.findings)
    if failed or result.verdict in (Verdict.SKIP, Verdict.UNKNOWN) or not result.exercised.nothing:
        return settled(result)
    return replace(
        result,
        verdict=Verdict.UNKNOWN,
        reason=f"nothing was exercised, although the check reported {result.verdict}: {result.reason}",
        next_step="the check itself is faulty: report this result with the check's log",
    )


def confirmed(first: CheckResult, second: CheckResult) -> CheckResult:
    """Join the result of a failed hardware check with that of its second pass.

    A busy machine looks slow for a moment, so a failure that does not recur becomes a warning. Wrong bits stay a FAIL:
    rare corruption is worse, not better.
    """
    failed = second.verdict is Verdict.FAIL
    failures = [finding for finding in second.findings if failed and finding.severity is Verdict.FAIL]
    again = {(finding.kind, finding.device) for finding in failures}
    kept = tuple(_weakened(finding, again) for finding in first.findings)
    if any(finding.severity is Verdict.FAIL for finding in kept):
        note = "confirmed by a second pass" if failed else "intermittent: not found in a second pass"
        return replace(first, findings=kept, reason=f"{first.reason} ({note})")
    if failed:
        new = tuple(each for each in kept if each not in second.findings)
        return replace(
            second,
            findings=(*second.findings, *new),
            reason=f"{second.reason} (second pass; the first pass failed differently)",
        )
    return replace(first, verdict=Verdict.WARN, findings=kept, reason=f"not confirmed by a second pass: {first.reason}")


def certain(result: CheckResult) -> bool:
    """Whether each failure is of a lasting kind, so that a second pass would change nothing."""
    failures = [each for each in result.findings if each.severity is Verdict.FAIL]
    return bool(failures) and all(map(_lasts, failures))


def _lasts(finding: Finding) -> bool:
    return finding.lasting or finding.kind in WRONG_BITS


def _weakened(finding: Finding, again: Collection[tuple[str, str | None]]) -> Finding:
    """Make ``finding`` a warning unless it came ``again`` or is of a lasting kind."""
    if _lasts(finding) or (finding.kind, finding.device) in again:
        return finding
    return replace(finding, severity=Verdict.WARN)


def of_description(result: CheckResult, read: Collection[object]) -> CheckResult:
    """Say that what was ``read`` from a description has tested how the check reads and judges it, and no card."""
    if not read or result.verdict in (Verdict.SKIP, Verdict.UNKNOWN):
        return result
    note = f"described, not read from hardware: {' and '.join(map(str, read))}"
    reason = f"{result.reason}; {note}" if result.verdict is Verdict.PASS else result.reason
    return replace(result, reason=reason, scope=(*result.scope, note))


class MissingLibraries:
    """The libraries that were found missing so far: what other checks report because of them refers to that check."""

    def __init__(self) -> None:
        #: By the short name of the library: how texts call it, and the check that found it missing.
        self._found: dict[str, tuple[str, str]] = {}

    def judged(self, result: CheckResult) -> CheckResult:
        """Return the result without findings about a library that another check reported."""
        again = {id(each): library for each in result.findings if (library := self._reported(each, result.check))}
        for each in result.findings:
            if each.kind == "software" and each.subject and id(each) not in again:
                name = each.where if ".so" in each.where else each.subject
                self._found.setdefault(each.subject.lower(), (name, result.check))
        if not again:
            return result
        kept = tuple(each for each in result.findings if id(each) not in again)
        verdict = overall([Verdict.UNKNOWN, *(each.severity for each in kept)])
        lost = (self._found[each] for each in sorted(set(again.values())))
        why = "; ".join(f"not fully tested: {name} is missing (see the check '{check}')" for name, check in lost)
        step = "install the missing library and run this check again"
        failed = verdict is Verdict.FAIL
        return replace(
            result,
            verdict=verdict,
            findings=kept,
            reason=kept[0].message if failed else why,
            next_step=kept[0].next_step if failed else step,
            scope=(*result.scope, why),
        )

    def _reported(self, finding: Finding, check: str) -> str | None:
        if finding.kind not in ("software", "error"):
            return None
        for library, (_, finder) in self._found.items():
            pattern = _NAMED.get(library, rf"\b(lib)?{re.escape(library)}\b")
            named = finding.subject.lower() == library or re.search(pattern, finding.message, re.IGNORECASE)
            if named and finder != check:  # a burn-in runs a check again
                return library
        return None
