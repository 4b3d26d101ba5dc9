"""Shows the progress of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.records import CheckResult, Verdict
from harness.report.terminal import print_line
from harness.report.verdicts import STYLES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


def is_interactive(console: Console, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a bar can be drawn: on a terminal that can move its cursor, and not in CI, whose log keeps redraws."""
    ci = environment.get("CI", "").lower() not in ("", "0", "false")
    return console.file.isatty() and not console.is_dumb_terminal and not ci


def display(console: Console, typical_s: Sequence[float]) -> LineDisplay | BarDisplay:
    """Choose the display for ``console``. ``typical_s`` has the typical seconds of each check."""
    return BarDisplay(console, typical_s) if is_interactive(console) else LineDisplay(console, len(typical_s))


class LineDisplay:
    """A line when a check begins and one when it ends, in plain text."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._number = 0

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def note(self, text: str) -> None:
        """Show a line that stays."""
        print_line(self._console, text)
        self._console.file.flush()

    def started(self, check: str, title: str, typical_s: float) -> None:
        """A check begins."""
        self._number += 1
        self._total = max(self._total, self._number)
        self.note(f"[{self._number}/{self._total}] {check}: {title} (about {max(1, typical_s):.0f} s)")

    def finished(self, result: CheckResult) -> None:
        """A check has its result."""
        basis = str(result.exercised) if result.verdict is Verdict.PASS else " ".join(result.reason.split())
        self.note(f"      {result.verdict} {result.check} after {result.elapsed_s:.1f} s: {basis}")


class BarDisplay:
    """A bar with the current check, removed at the end, and a line for each result."""

    def __init__(self, console: Console, typical_s: Sequence[float]) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = console
        self._progress: Progress = Progress(
            SpinnerColumn("line"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID = self._progress.add_task("starting TensorFlow", total=len(typical_s))
        self._left_s = list(typical_s)
        #: What runs now, by check: two at most.
        self._running: dict[str, str] = {}

    def __enter__(self) -> BarDisplay:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        """Show a line that stays."""
        print_line(self._console, text)

    def started(self, check: str, title: str, typical_s: float) -> None:
        """A check begins."""
        left = f"about {sum(self._left_s):.0f} s left"
        self._running[check] = f"{check}: {title} (about {max(1, typical_s):.0f} s; {left})"
        self._progress.update(self._task, description=self._running[check])

    def finished(self, result: CheckResult) -> None:
        """A check has its result."""
        from rich.text import Text

        del self._left_s[:1]
        self._running.pop(result.check, None)
        self._progress.update(self._task, advance=1, description=next(iter(self._running.values()), "next check"))
        line = Text.assemble(
            (f"{result.verdict!s:<7}", STYLES[result.verdict]), f" {result.check} ({result.elapsed_s:.1f} s)"
        )
        self._console.print(line)
