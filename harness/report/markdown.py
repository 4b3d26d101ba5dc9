"""Writes a run as Markdown, for a ticket or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from harness.plural import plural
from harness.records import Finding, RunRecord, Verdict
from harness.report.card_verdicts import verdict_lines
from harness.report.comparison import place
from harness.report.printable import device_label, one_line, shortened
from harness.report.quantities import MEASURED, NOTHING, duration, measured
from harness.report.verdicts import (
    all_exercised,
    by_severity,
    counts,
    finished,
    needs_attention,
    not_run,
    replay_of,
    spec_and_devices,
)

#: Findings shown of one check; ``run.json`` has all of them.
MOST_FINDINGS = 50
#: Rows of the table of figures.
MOST_FIGURES = 200
_LONGEST = 400
#: Markup of CommonMark, and of GitHub's tables, links, mentions and formulas, within a line. Users' texts never begin a
#: line, where there is more.
_MARKUP = re.compile(r"[\\`*_\[\]|~@#$]|:(?=//)|(?<=www)\.")


def escaped(text: str) -> str:
    """Escape ``text``, on one line, so that Markdown and HTML show it unchanged."""
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\g<0>", plain)


def report_markdown(record: RunRecord) -> str:
    """Write ``record`` as a document."""
    parts = (_head(record), _wrong(record), _results(record), _figures(record), _environment(record))
    return "\n".join(line for part in parts for line in (*part, "")).rstrip() + "\n"


def _head(record: RunRecord) -> Iterator[str]:
    devices = f" on {escaped(spec_and_devices(record))}" if record.spec else ""
    yield f"# {record.verdict}{devices}"
    if not record.complete:
        missing = not_run(record)
        yield ""
        listed = ", ".join(map(escaped, missing)) or "none"
        yield f"**INCOMPLETE**: the run ended early; checks without a result: {listed}."
    if record.described:
        yield ""
        yield "**Described machine**: this run tested a machine described in a file, not real hardware."
    totals = ", ".join(f"{number} {verdict}" for verdict, number in counts(record.results).items())
    yield ""
    took = escaped(duration(record.elapsed_s))
    yield f"- {finished(record)} in {took}: {totals or 'none'}"
    yield f"- exercised: {escaped(str(all_exercised(record)))}"
    yield f"- started {escaped(record.started_at)}, level {escaped(record.level)}, harness {escaped(record.harness)}"
    for line in verdict_lines(record):
        yield f"{'  ' * line.startswith('    ')}- {escaped(line.strip())}"
    for each in record.passes_again:
        yield f"- known failure no longer occurs: {escaped(each)}; remove this entry from the file of known failures"


def _wrong(record: RunRecord) -> Iterator[str]:
    yield "## Findings and next steps"
    shown = [result for result in by_severity(record.results) if needs_attention(result)]
    if not shown:
        yield ""
        clean = record.verdict is Verdict.PASS
        yield ("No check found a fault." if clean else "Nothing was proven: no check has a conclusive result.")
    for result in shown:
        yield ""
        yield f"### {result.verdict} {escaped(result.check)}"
        yield ""
        yield f"Reason: {escaped(result.reason) or NOTHING}"
        if result.accepted_as is not None:
            yield ""
            yield f"Accepted as a known failure: {escaped(result.accepted_as)}"
        yield ""
        yield from (_finding(finding) for finding in result.findings[:MOST_FINDINGS])
        if len(result.findings) > MOST_FINDINGS:
            yield f"- and {plural(len(result.findings) - MOST_FINDINGS, 'more finding')}, in `run.json`"
        if result.next_step:
            yield f"- **Next**: {escaped(result.next_step)}"
        replay = replay_of(record, result)
        if replay is not None:
            yield f"- **Replay**: {_code(replay)}"


def _finding(finding: Finding) -> str:
    device = f" on {escaped(device_label(finding.device))}" if finding.device else ""
    facts = "; ".join(
        f"{name} {escaped(shortened(text, _LONGEST))}"
        for name, text in (("expected", finding.expected), ("found", finding.found))
    )
    return (
        f"- {finding.severity} *{finding.kind}*{device}, {escaped(finding.place)}: {escaped(finding.message)} ({facts})"
    )


def _results(record: RunRecord) -> Iterator[str]:
    yield "## What was exercised"
    yield ""
    if not record.results:
        yield "Nothing: no check has a result."
        return
    rows = (
        (
            result.check,
            str(result.verdict),
            "; ".join((str(result.exercised), *result.scope)),
            duration(result.elapsed_s),
        )
        for result in record.results
    )
    yield from _table(("check", "verdict", "exercised", "time"), rows)


def _figures(record: RunRecord) -> Iterator[str]:
    yield "## Figures"
    yield ""
    figures = [figure for result in record.results for figure in result.figures]
    if not figures:
        yield "No figure was measured."
        return
    rows = (
        (each.name, place(each) or NOTHING, *measured(each), each.expected_from or NOTHING)
        for each in figures[:MOST_FIGURES]
    )
    yield from _table(("figure", "where", *MEASURED, "expected from"), rows)
    if len(figures) > MOST_FIGURES:
        yield ""
        yield f"And {plural(len(figures) - MOST_FIGURES, 'more figure')}, in `run.json`."


def _environment(record: RunRecord) -> Iterator[str]:
    yield "## Environment"
    yield ""
    facts = record.fingerprint
    if facts is None:
        yield "Unknown: the run ended before the devices were configured."
        return
    yield f"- TensorFlow {escaped(facts.tensorflow)}, NumPy {escaped(facts.numpy)}, Python {escaped(facts.python)}"
    yield f"- {escaped(facts.operating_system)}, {escaped(facts.cpu_model or 'processor unknown')}"
    known = (("driver", facts.driver), ("CUDA", facts.cuda), ("cuDNN", facts.cudnn))
    yield from (f"- {name} {escaped(version)}" for name, version in known if version)
    yield from (f"- {escaped(gpu.name)} {escaped(gpu.uuid or '')}" for gpu in facts.gpus)
    yield f"- command: {_code(' '.join(record.command))}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"


def _code(text: str) -> str:
    """Write ``text`` as code, in a fence longer than any row of backticks in it."""
    line = one_line(text)
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"
