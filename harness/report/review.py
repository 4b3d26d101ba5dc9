"""Findings of a test session for code review: annotations of GitHub, GitLab's code quality report, and SARIF 2.1.0.

The forms are those of the services' documentation: GitHub's workflow commands and job summaries, GitLab's subset of the
Code Climate specification, and the OASIS standard SARIF 2.1.0, which GitHub's code scanning reads too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.finding_kinds import KINDS
from harness.plural import plural

if TYPE_CHECKING:
    from harness.records import Finding

#: GitHub shows ten annotations of errors for each step of a workflow.
_MOST = 10
#: GitHub refuses a job summary of more than 1 MiB; this leaves room for those of others.
_MOST_BYTES = 2**19
#: A line that a message names: of a file of the project, by its way from the working directory.
_PLACE = re.compile(r"(?<![\w./-])((?:[\w.-]+/)*[\w.-]+\.py):(\d+)")


@dataclass(frozen=True, slots=True)
class Note:
    """A finding and its line: of the program if its message names one, else of the test."""

    code: str
    kind: str
    message: str
    file: str
    line: int
    test: str
    fails: bool

    @classmethod
    def of(cls, finding: Finding, test: str, place: tuple[str, int], folder: Path) -> Note:
        """The note of a finding of a test, which is at ``place``; files are relative to ``folder``.

        Lines of installed packages are named too, and lie in no file of the project.
        """
        named = ((match[1], int(match[2])) for match in _PLACE.finditer(finding.message))
        file, line = next((each for each in named if (folder / each[0]).is_file()), place)
        remedy = f"; {finding.next_step}" if finding.next_step else ""
        fails = str(finding.severity) == "FAIL"
        return cls(finding.code, finding.kind, f"{finding.message}{remedy}", file, line, test, fails)


def most_important(notes: Iterable[Note]) -> list[Note]:
    """The notes, failures first; what several tests find at one line is one note."""
    once: dict[tuple[str, str, int], Note] = {}
    for note in notes:
        once.setdefault((note.code, note.file, note.line), note)
    return sorted(once.values(), key=lambda note: not note.fails)


def github(notes: Sequence[Note]) -> list[str]:
    """Workflow commands: the ten most important findings at their lines, and one line for the rest."""
    lines = []
    for note in notes[:_MOST]:
        title = _property(f"{note.code} {note.kind}")
        place = f"file={_property(note.file)},line={note.line},title={title}"
        lines.append(f"::{'error' if note.fails else 'warning'} {place}::{_data(note.message)}")
    if (rest := len(notes) - _MOST) > 0:
        lines.append(f"::notice title=harness::and {plural(rest, 'more finding')}, see the log of the tests")
    return lines


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(notes: Sequence[Note], lines: Sequence[str]) -> str:
    """A job summary in Markdown: the status first, then a table of findings, and what the session exercised."""
    failing = sum(note.fails for note in notes)
    status = f"FAIL: {plural(failing, 'finding')}" if failing else ("WARN" if notes else "no finding")
    text = [f"### Device placement: {status}", ""]
    if notes:
        text += ["| finding | where | what |", "|---|---|---|"]
    size = 0
    for number, note in enumerate(notes):
        row = f"| {note.code} {note.kind} | `{note.file}:{note.line}` | {_cell(note.message)} |"
        size += len(row.encode()) + 1
        if size > _MOST_BYTES:
            text += ["", f"and {plural(len(notes) - number, 'more finding')}"]
            break
        text.append(row)
    # What belongs to the line before is indented, in Markdown too.
    said = (f"{'  ' if line.startswith(' ') else ''}- {_cell(line.strip())}" for line in lines)
    return "\n".join([*text, "", *said, ""])


def _cell(text: str) -> str:
    for character in "\\|<>`*_[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")


def gitlab(notes: Sequence[Note]) -> str:
    """GitLab's code quality report: a JSON array, one object for each finding."""
    return json.dumps(
        [
            {
                "description": note.message,
                "check_name": f"{note.code} {note.kind}",
                "fingerprint": _fingerprint(note),
                "severity": "major" if note.fails else "minor",
                "location": {"path": note.file, "lines": {"begin": note.line}},
            }
            for note in notes
        ],
        indent=2,
    )


def sarif(notes: Sequence[Note], version: str) -> str:
    """A SARIF 2.1.0 log with one run, and the rules that its results name."""
    codes = sorted({note.code for note in notes})
    kinds = {kind.code: kind for kind in KINDS.values()}
    rules = [
        {
            "id": code,
            "name": kinds[code].name,
            "shortDescription": {"text": kinds[code].meaning},
            "help": {"text": kinds[code].remedy},
        }
        for code in codes
    ]
    results = [
        {
            "ruleId": note.code,
            "ruleIndex": codes.index(note.code),
            "level": "error" if note.fails else "warning",
            "message": {"text": note.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": note.file},
                        "region": {"startLine": max(note.line, 1)},
                    }
                }
            ],
            "partialFingerprints": {"harness/v1": _fingerprint(note)},
        }
        for note in notes
    ]
    driver = {"name": "tf-placement-harness", "version": version, "rules": rules}
    log: dict[str, Any] = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2)


def _fingerprint(note: Note) -> str:
    """The same for the same finding of a test when lines move."""
    return hashlib.sha256("\0".join((note.code, note.file, note.test)).encode()).hexdigest()
