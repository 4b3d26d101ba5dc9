"""A burn-in: what each check found over hours, kept line by line, so that a reboot loses nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.atomic_file import write_atomically
from harness.errors import InvalidRecord, ReportError
from harness.plural import plural
from harness.records import CheckResult, Exercised, Finding, Series, Verdict, overall
from harness.report.quantities import duration

#: Points of a curve; of a longer one every n-th is kept.
MOST_POINTS = 600
FILE = "burnin.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """The result of one check in one round, which ended ``at_s`` seconds after the burn-in began."""

    spec: str
    at_s: float
    round: int
    result: CheckResult
    schema_version: int = 1


class DamagedLine(InvalidRecord):
    """A line of a burn-in cannot be read."""

    MESSAGE = "{path}: {why}"

    def __init__(self, path: Path, number: int) -> None:
        remedy = f"delete line {number} to keep the other results, or start over with --restart"
        super().__init__(path, f"line {number} is damaged; {remedy}")


@dataclass(slots=True)
class BurnIn:
    """The entries so far, in a file of one line each. What an earlier run left there is continued."""

    path: Path
    spec: str
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def opened(cls, folder: Path, spec: str) -> BurnIn:
        """Read what there is of the same devices; a last line that a crash cut off does not count.

        Raise DamagedLine if another line is damaged: what follows it is not thrown away.
        """
        made = cls(folder / FILE, spec)
        adapter = TypeAdapter(Entry)
        with made._accessible():
            # Only a line feed ends a line: texts of findings may contain other line separators of Unicode.
            *lines, cut_off = made.path.read_bytes().split(b"\n") if made.path.exists() else [b""]
        for number, line in enumerate(lines, start=1):
            try:
                entry = adapter.validate_json(line)
            except ValidationError as error:
                raise DamagedLine(made.path, number) from error
            if entry.spec == spec:
                made.entries.append(entry)
        if cut_off:
            with made._accessible():
                write_atomically(made.path, b"".join(line + b"\n" for line in lines).decode())
        return made

    @property
    def elapsed_s(self) -> float:
        """How long it has run, without the time between its parts."""
        return self.entries[-1].at_s if self.entries else 0.0

    @property
    def rounds(self) -> int:
        """The rounds that have begun."""
        return self.entries[-1].round if self.entries else 0

    def is_over(self, checks: Iterable[str], elapsed_s: float, limit_s: float) -> bool:
        """Whether the time has passed, and each of ``checks`` has a result."""
        return elapsed_s >= limit_s and set(checks) <= {entry.result.check for entry in self.entries}

    def left_of_round(self, checks: Sequence[str]) -> tuple[str, ...]:
        """List those of ``checks`` that the last round lacks, if it was interrupted."""
        done = {entry.result.check for entry in self.entries if entry.round == self.rounds}
        return tuple(check for check in checks if check not in done) if done else ()

    def begin_again(self) -> None:
        """Forget what there is. Raise ReportError if the file cannot be removed."""
        self.entries.clear()
        with self._accessible():
            self.path.unlink(missing_ok=True)

    def add(self, at_s: float, number: int, result: CheckResult) -> None:
        """Keep a result on the disk before anything else happens.

        Raise ReportError if it cannot be written; it is among the results all the same.
        """
        entry = Entry(self.spec, at_s, number, result)
        self.entries.append(entry)
        line = TypeAdapter(Entry).dump_json(entry) + b"\n"
        with self._accessible(), self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    @contextlib.contextmanager
    def _accessible(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            yield
        except OSError as error:
            raise ReportError(self.path.parent, error.strerror or str(error)) from error

    def results(self) -> tuple[CheckResult, ...]:
        """Return one result for each check: its worst verdict, when each finding came, and curves of the whole time."""
        by_check: dict[str, list[Entry]] = {}
        for entry in self.entries:
            by_check.setdefault(entry.result.check, []).append(entry)
        return tuple(_joined(entries) for entries in by_check.values())


def _joined(entries: Sequence[Entry]) -> CheckResult:
    results = [entry.result for entry in entries]
    verdict = overall(result.verdict for result in results)
    worst = next(result for result in results if result.verdict is verdict)
    reason = worst.reason if verdict is not Verdict.PASS else results[-1].reason
    return replace(
        results[-1],
        verdict=verdict,
        reason=f"{plural(len(results), 'round')}: {reason}",
        next_step=worst.next_step,
        exercised=sum((result.exercised for result in results), Exercised()),
        findings=tuple(_findings(entries)),
        elapsed_s=sum(result.elapsed_s for result in results),
        series=tuple(_curves(entries)),
    )


def _findings(entries: Sequence[Entry]) -> Iterable[Finding]:
    """Yield each finding once, with when it came first and in how many rounds it came."""
    seen: dict[tuple[object, ...], list[tuple[float, Finding]]] = {}
    for entry in entries:
        for each in entry.result.findings:
            key = (each.kind, each.device, each.pair, each.subject or each.where)
            seen.setdefault(key, []).append((entry.at_s, each))
    for found in seen.values():
        first_s, first = found[0]
        fails = any(each.severity is Verdict.FAIL for _, each in found)
        times = len({at_s for at_s, _ in found})
        yield replace(
            first,
            severity=Verdict.FAIL if fails else Verdict.WARN,
            message=f"{first.message} (first after {duration(first_s)}, in {times} of {plural(len(entries), 'round')})",
        )


def _curves(entries: Sequence[Entry]) -> Iterable[Series]:
    parts: dict[tuple[str, str, str], list[list[tuple[float, float | None]]]] = {}
    for entry in entries:
        began_s = entry.at_s - entry.result.elapsed_s
        for each in entry.result.series:
            points = [(began_s + at_s, value) for at_s, value in zip(each.at_s, each.values, strict=True)]
            if points:
                parts.setdefault((each.name, each.unit, each.device), []).append(points)
    for key, each_part in parts.items():
        step = -(-sum(map(len, each_part)) // max(1, MOST_POINTS - len(each_part)))
        kept: list[tuple[float, float | None]] = []
        for points in each_part:
            if kept:
                # Nothing was read between two rounds, so that no line may join them.
                kept.append(((kept[-1][0] + points[0][0]) / 2, None))
            kept += points[::step]
        yield Series(*key, tuple(at_s for at_s, _ in kept), tuple(value for _, value in kept))
