"""Prints an advice: a table of the ways, what was found about them, the recommendation, and the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.advice.record import BASELINE, Advice, Way
from harness.plural import plural
from harness.report.printable import one_line, shortened
from harness.report.quantities import NOTHING, duration, number, size
from harness.report.terminal import make_table, print_line

if TYPE_CHECKING:
    from rich.console import Console

#: Name of the record in the report folder.
ADVICE_FILE = "advice.json"
#: Characters of a reason; the record has all of it.
_REASON = 600


def print_advice(console: Console, advice: Advice) -> None:
    """Print the table, a line on each way that was left out, the recommendation, and the code of the chosen way."""
    rows = "" if advice.rows is None else f", {plural(advice.rows, 'row')}"
    print_line(console, "")
    print_line(console, f"{advice.target}: {advice.step}{rows}, on {advice.spec}")
    head = ("way", "correct", "step", "speedup", "memory", "lines")
    table = make_table(head, map(cells, advice.ways), right=("step", "lines"))
    table.padding = (0, 1, 0, 0)
    console.print(table)
    for way in advice.ways:
        if way.reason:
            print_line(console, f"{way.name}: {said(way)}")
    if not advice.complete:
        print_line(console, f"INTERRUPTED after {duration(advice.elapsed_s)}: not all ways were tried")
    print_line(console, "")
    print_line(console, advice.recommendation)
    if advice.limits:
        print_line(console, advice.limits)
    chosen = next((way for way in advice.ways if way.name == advice.chosen), None)
    if chosen is not None and chosen.name != BASELINE:
        print_line(console, f"\nThe script, to run in the folder of {advice.target.partition(':')[0]}:\n")
        print_line(console, chosen.code.rstrip())


def said(way: Way) -> str:
    """Write what was found about a way."""
    words = {"wrong": "WRONG, left out: ", "not comparable": "not comparable: "}
    sentences = one_line(way.reason).split(". ")
    while len(sentences) > 1 and len(". ".join(sentences)) > _REASON:
        del sentences[-1]
    copied = "" if way.copied_bytes is None else f"; a step copies {_size(way.copied_bytes)} between devices"
    return words.get(way.judgement, "") + shortened(". ".join(sentences), _REASON) + copied


def cells(way: Way) -> tuple[str, ...]:
    """Write a row of the table: the way, whether it is correct, and its figures."""
    words = {"baseline": NOTHING, "wrong": "WRONG", "not comparable": "not com-\nparable"}
    speedup = NOTHING if way.name != BASELINE else "1"
    if way.speedup is not None:
        value, lower, upper = map(_ratio, (way.speedup.value, way.speedup.lower, way.speedup.upper))
        speedup = f"{value} ({lower}-{upper})"
    held = "\n".join(f"{each.device} {_size(each.peak_bytes)}" for each in way.memory if each.peak_bytes) or NOTHING
    step = NOTHING if way.time_ns is None else f"{number(float(f'{way.time_ns / 1e6:.3g}'))} ms"
    lines = NOTHING if way.lines is None else str(way.lines)
    return _folded(way.name), words.get(way.judgement, way.judgement), step, speedup, held, lines


def _folded(name: str) -> str:
    """A name in lines that fit into a table of 80 columns."""
    return name.replace(" with ", ",\n").replace("CopyAllReduce", "Copy-\nAllReduce").replace("ToOne", "To-\nOne")


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.3g}"


def _size(size_bytes: int | None) -> str:
    """A size with three digits."""
    if not size_bytes:
        return "0 B"
    amount, unit = size(size_bytes).split()
    return f"{float(amount):.3g} {unit}" if float(amount) < 1000 else f"{float(amount):.0f} {unit}"
