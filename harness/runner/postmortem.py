"""Makes a result of a lost process from its stacks and the end of its log."""

from __future__ import annotations

import re
from pathlib import Path

from harness.records import CheckResult, Exercised, Finding, Verdict
from harness.runner.job import WorkerFiles

_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x")

#: How much of them a finding keeps: the stacks from their start, the log from its end.
STACKS_CHARACTERS = 40_000
LOG_LINES = 60


def remains(files: WorkerFiles) -> str:
    """The Python stacks and the end of the log, as one text of several lines."""
    # Python's report ends with a page of extension modules.
    stacks = _text(files.stacks).partition("\nExtension modules:")[0][:STACKS_CHARACTERS].strip()
    log = "\n".join(_text(files.log).splitlines()[-LOG_LINES:]).strip()
    parts = []
    if stacks:
        parts.append(f"Python stacks ({files.stacks}):\n{stacks}")
    parts.append(f"Last lines of {files.log}:\n{log}" if log else f"{files.log} is empty")
    return "\n\n".join(parts)


def innermost(stacks: str) -> str | None:
    """Find where the running thread was: ``FILE:LINE in FUNCTION``; ``None`` without a stack.

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


def describe_loss(how: str, files: WorkerFiles) -> tuple[str, str]:
    """Return how a process was lost, with the place, and its :func:`remains`."""
    place = innermost(_text(files.stacks))
    return f"{how}, at {place}" if place else how, remains(files)


def lost(check: str, how: str, files: WorkerFiles, *, elapsed_s: float, spec: str) -> CheckResult:
    """Make the result of ``check``, whose process was lost; ``how`` says how."""
    message, found = describe_loss(how, files)
    finding = Finding("error", f"check {check}", None, "the check completes", found, message)
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
    """Make the result of ``check``, which was not run because the process for ``after`` never started."""
    return CheckResult(
        check=check,
        verdict=Verdict.UNKNOWN,
        reason=f"not run: the process for {spec} did not start",
        next_step=f"see the result of {after}, and {files.log}",
        exercised=Exercised(),
        spec=spec,
        log=str(files.log),
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
