"""Prints a run when it ends: the table, the findings, the verdict, and the paths of the record and the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from harness.plural import plural
from harness.records import CheckResult, Finding, RunRecord, Verdict
from harness.report.card_verdicts import verdict_lines
from harness.report.printable import device_label, one_line, shortened
from harness.report.verdicts import STYLES, finished, spec_and_devices

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: Findings shown of one check; the record has all of them.
FINDINGS_SHOWN = 20
#: Longer facts, such as stacks, are only in the record.
FACTS_SHOWN_CHARACTERS = 300
#: Characters of a cell of the table where the findings stand above it.
SHORT_CELL = 36
#: Width of the output without a terminal, in columns.
PLAIN_WIDTH = 120


def stdout_console() -> Console:
    """Open a console on standard output, as wide as the terminal, or of a fixed width without one."""
    from rich.console import Console

    width = PLAIN_WIDTH if not sys.stdout.isatty() and "COLUMNS" not in os.environ else None
    return Console(width=width, highlight=False, emoji=False)


def print_report(console: Console, record: RunRecord, path: Path | None, page: Path | None = None) -> None:
    """Print the results, the findings and the verdict. ``path`` is the stored record, ``page`` the HTML report."""
    verdicts = list(verdict_lines(record))
    for number, line in enumerate(verdicts):
        if number < 2:
            console.print()
        print_line(console, line)
    if record.results:
        console.print()
        console.print(_table(record.results, short=bool(verdicts)))
    shown = [each for each in record.results if not verdicts or not _all_about_gpus(each)]
    for result in shown:
        alike = [each for each in shown if _same_skip(each, result)] or [result]
        if result is alike[0]:
            _print_details(console, result, ", ".join(each.check for each in alike))
    for result in record.results:
        for text in (each for each in result.scope if each.startswith("hint: ")):
            print_line(console, f"{result.check}: {one_line(text)}")
    for entry in record.passes_again:
        print_line(
            console, f"known failure no longer occurs: {entry}; remove this entry from the file of known failures"
        )
    console.print()
    print_verdict(console, record)
    if path is not None:
        print_line(console, f"Record: {path}")
    if page is not None:
        print_line(console, f"Report: {page}")


def _same_skip(one: CheckResult, other: CheckResult) -> bool:
    """Whether both were skipped for the same reason, which is then said once."""
    reasons = {(each.verdict, each.reason, each.next_step) for each in (one, other)}
    return one.verdict is Verdict.SKIP and len(reasons) == 1


def _all_about_gpus(result: CheckResult) -> bool:
    """Whether the lines on top say what the findings come to. The record has each."""
    return bool(result.findings) and all(
        each.pair or each.devices or device_label(each.device).startswith(("GPU:", "nvml:", "pci:"))
        for each in result.findings
    )


def _table(results: tuple[CheckResult, ...], *, short: bool = False) -> Table:
    """Return a row for each result; ``short``: of one line."""
    from rich.text import Text

    longest = SHORT_CELL if short else sys.maxsize
    rows = (
        (
            result.check,
            Text(str(result.verdict), style=STYLES[result.verdict]),
            shortened(str(result.exercised), longest),
            f"{result.elapsed_s:.1f} s",
            shortened(result.reason, longest),
        )
        for result in results
    )
    return make_table(
        ("check", "verdict", "exercised", "time", "reason"), rows, right=("time",), long=("exercised", "reason")
    )


def make_table(
    head: Sequence[str],
    rows: Iterable[Iterable[str | Text]],
    *,
    right: Collection[str] = (),
    long: Collection[str] = (),
    title: str | None = None,
) -> Table:
    """Make a table of texts as they are. Columns in ``right`` are flush right, cells of ``long`` take many lines.

    Where the terminal is too narrow, the table continues below with the columns that are left.
    """
    from rich import box
    from rich.text import Text

    from harness.report.narrow_table import NarrowTable

    table = NarrowTable(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for name in head:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        if name in long:
            table.add_column(Text(name), justify=justify, overflow="fold")
        else:
            table.add_column(Text(name), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def _print_details(console: Console, result: CheckResult, checks: str) -> None:
    """Print the findings of ``result``, one line each, and the next step; nothing for a plain PASS."""
    if result.verdict is Verdict.PASS and not result.findings:
        return
    from rich.text import Text

    console.print(Text.assemble((str(result.verdict), STYLES[result.verdict]), f" {checks}"), soft_wrap=True)
    for finding in result.findings[:FINDINGS_SHOWN]:
        print_line(console, f"  - {finding_line(finding)}")
    if len(result.findings) > FINDINGS_SHOWN:
        print_line(console, f"  - and {plural(len(result.findings) - FINDINGS_SHOWN, 'more finding')}, in the record")
    if not result.findings:
        print_line(console, f"  {one_line(result.reason)}")
    if result.next_step:
        print_line(console, f"  next: {one_line(result.next_step)}")


def finding_line(finding: Finding) -> str:
    """Write ``finding`` in one line."""
    device = f" on {device_label(finding.device)}" if finding.device else ""
    facts = f"expected {finding.expected}, found {finding.found}"
    short = "\n" not in facts and len(facts) <= FACTS_SHOWN_CHARACTERS
    what = f"{finding.code} {finding.kind}: {finding.place}{device}: {finding.message}"
    return one_line(f"{what} ({facts})" if short else what)


def print_verdict(console: Console, record: RunRecord) -> None:
    """Print the verdict of ``record`` in one line."""
    from rich.text import Text

    counts = ", ".join(
        f"{number} {verdict}"
        for verdict in Verdict
        if (number := sum(each.verdict is verdict and each.check in record.planned for each in record.results))
    )
    devices = f" on {spec_and_devices(record)}" if record.spec else ""
    devices += " (a described machine, not real hardware)" if record.described else ""
    rest = "" if record.complete else "; INTERRUPTED: the record is incomplete"
    unplanned = (each for each in record.results if each.check not in record.planned)
    rest += "".join(f"; {each.reason}" for each in unplanned if each.verdict is not Verdict.PASS)
    console.print(
        Text.assemble(
            (str(record.verdict), STYLES[record.verdict]),
            f"{devices}: {finished(record)} in {record.elapsed_s:.1f} s{f' ({counts})' if counts else ''}{rest}",
        ),
        soft_wrap=True,
    )


def print_line(console: Console, text: str) -> None:
    """Print ``text`` as it is."""
    console.print(text, markup=False, soft_wrap=True)
