"""Findings that the caller of ``verify`` accepts, each with a reason: they stay visible, and fail nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import UsageError
from harness.finding_kinds import KINDS, find_kind
from harness.records import Finding, Verdict

#: A kind of finding, its code, or a part of its place (an op, a variable, a device, ``file.py:12``); and the reason.
Acceptance = tuple[str, str]


def known_acceptances(accept: Any) -> tuple[Acceptance, ...]:
    """The argument of ``verify``.

    Raise UsageError if it is not a sequence of pairs of texts, or names a code that no kind of finding has.
    """
    form = (
        "pairs such as ('gradient-placement', 'why this is right here'): a kind, code or place of findings, and the "
        "reason"
    )
    if isinstance(accept, str) or not isinstance(accept, Iterable):
        raise UsageError(f"accept={accept!r}; accepted: {form}")
    pairs = list(accept)
    for each in pairs:
        pair = isinstance(each, (tuple, list)) and len(each) == 2
        if not pair or not all(isinstance(text, str) and text.strip() for text in each):
            raise UsageError(f"accept= contains {each!r}; accepted: {form}")
        if each[0].upper()[:1] == "H" and each[0][1:].isdigit() and find_kind(each[0]) is None:
            raise UsageError(
                f"accept= contains {each[0]!r}; accepted codes: {', '.join(kind.code for kind in KINDS.values())}"
            )
    return tuple((what.strip(), reason.strip()) for what, reason in pairs)


def accepted(
    findings: Sequence[Finding], acceptances: Sequence[Acceptance], standing: Sequence[Acceptance] = ()
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """The findings, those that are accepted as warnings; and the acceptances that no finding needs any more.

    ``standing`` acceptances are needed elsewhere, if not here.
    """
    needed: set[Acceptance] = set()
    found = []
    for finding in findings:
        entry = next((each for each in (*acceptances, *standing) if _covers(each[0], finding)), None)
        if entry is not None:
            needed.add(entry)
            message = f"accepted ({entry[1]}): {finding.message}"
            finding = replace(finding, severity=Verdict.WARN, message=message)
        found.append(finding)
    return tuple(found), tuple(f"{what} ({reason})" for what, reason in acceptances if (what, reason) not in needed)


def accepts(finding: Finding, acceptances: Sequence[Acceptance]) -> bool:
    """Whether a finding is accepted, whatever its cause may be."""
    return any(_covers(what, finding) for what, _ in acceptances)


def _covers(what: str, finding: Finding) -> bool:
    kind = find_kind(what)
    if kind is not None:
        return kind.name == finding.kind
    return any(what in text for text in (finding.where, finding.message, finding.device or ""))
