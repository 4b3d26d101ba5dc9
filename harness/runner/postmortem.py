"""Makes a result from what a lost process left behind: its stacks and the end of its log."""

from __future__ import annotations

import re
from pathlib import Path

from harness.records import CheckResult, Exercised, Finding, Verdict
from harness.runner.job import WorkerFiles

_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x")

#: How much of what is left is kept in a finding: the stacks from their start, the log from its end.
STACKS_CHARACTERS = 40_000
LOG_LINES = 60


def remains(files: WorkerFiles) -> str:
    """The Python stacks and the end of the log, as one text of several lines."""
    # Python ends its own account with a list of all extension modules: a page that nobody reads.
    stacks = _text(files.stacks).partition("\nExtension modules:")[0][:STACKS_CHARACTERS].strip()
    log = "\n".join(_text(files.log).splitlines()[-LOG_LINES:]).strip()
    parts = []
    if stacks:
        parts.append(f"Python stacks ({files.stacks}):\n{stacks}")
    parts.append(f"Last lines of {files.log}:\n{log}" if log else f"{files.log} is empty")
    return "\n\n".join(parts)


def innermost(stacks: str) -> str | None:
    """Where the thread that ran was: ``FILE:LINE in FUNCTION``; ``None`` where no stack is there.

    A fatal error marks that thread as the current one; a dump of all threads ends with the main thread.
    """
    frames: list[str | None] = []
    current: int | None = None
    for line in stacks.splitlines():
        if _THREAD.match(line):
            if line.startswith("Current thread"):
                current = len(frames)
            frames.append(None)
        elif frames and frames[-1] is None and (match := _FRAME.match(line)):
            frames[-1] = f"{match['file']}:{match['line']} in {match['function']}"
    if not frames:
        return None
    return frames[current if current is not None else -1]


def lost(check: str, what: str, files: WorkerFiles, *, elapsed_s: float, spec: str) -> CheckResult:
    """The result of ``check``, whose process was lost; ``what`` says how it ended."""
    place = innermost(_text(files.stacks))
    message = f"{what}, at {place}" if place else what
    finding = Finding(
        kind="error",
        where=f"check {check}",
        device=None,
        expected="the check completes",
        found=remains(files),
        message=message,
    )
    return CheckResult(
        check=check,
        verdict=Verdict.FAIL,
        reason=message,
        next_step=f"read {files.log}; rerun with --only {check}",
        exercised=Exercised(),
        findings=(finding,),
        elapsed_s=elapsed_s,
        spec=spec,
        log=str(files.log),
    )


def not_run(check: str, after: str, files: WorkerFiles, *, spec: str) -> CheckResult:
    """The result of ``check``, which was not run because the process for ``after`` never started."""
    return CheckResult(
        check=check,
        verdict=Verdict.UNKNOWN,
        reason=f"not run: the process for {spec} did not start",
        next_step=f"see {after}, and {files.log}",
        exercised=Exercised(),
        spec=spec,
        log=str(files.log),
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
