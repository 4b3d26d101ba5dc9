"""A missing library is one finding: what later checks report because of it refers to the check that found it."""

from __future__ import annotations

import re
from dataclasses import replace

from harness.records import CheckResult, Finding, Verdict, overall

#: How TensorFlow's errors name a library, where not by its own name.
_NAMED = {"cudnn": r"cudnn|\bdnn (library|support)"}


class MissingLibraries:
    """The libraries that were found missing so far, each with the check that found it."""

    def __init__(self) -> None:
        #: By the short name of the library: how texts call it, and the check that found it missing.
        self._found: dict[str, tuple[str, str]] = {}

    def judged(self, result: CheckResult) -> CheckResult:
        """Return the result without findings about a library that an earlier check reported."""
        again = {id(each): library for each in result.findings if (library := self._reported(each)) is not None}
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

    def _reported(self, finding: Finding) -> str | None:
        if finding.kind not in ("software", "error"):
            return None
        for library in self._found:
            pattern = _NAMED.get(library, rf"\b(lib)?{re.escape(library)}\b")
            if finding.subject.lower() == library or re.search(pattern, finding.message, re.IGNORECASE):
                return library
        return None
