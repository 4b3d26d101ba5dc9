"""Prints an advice: a table of the ways, what was found about them, the recommendation, and the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.advice.record import BASELINE, Advice, Way, milliseconds, short_size
from harness.plural import plural
from harness.report.printable import one_line, shortened
from harness.report.quantities import duration
from harness.report.terminal import make_table, print_line

if TYPE_CHECKING:
    from rich.console import Console

#: Name of the record in the report folder.
ADVICE_FILE = "advice.json"
#: What the table calls TensorFlow's algorithms, whose names are longer than its column; other lines have the names.
_ALGORITHMS = {
    "HierarchicalCopyAllReduce": "hierarchical copy",
    "ReductionToOneDevice": "reduction to one",
    "NcclAllReduce": "NCCL",
}
#: Characters of a reason; the record has all of it.
_REASON = 600


def print_advice(console: Console, advice: Advice) -> None:
    """Print the table, a line on each way that was left out, the recommendation, and the code of the chosen way."""
    rows = "" if advice.rows is None else f", {plural(advice.rows, 'row')}"
    print_line(console, "")
    print_line(console, f"{advice.target}: {advice.step}{rows}, on {advice.spec}")
    head = [each.replace(" ", "\n") for each in advice.head]
    table = make_table(head, map(_folded_cells, advice.ways), right=(head[2], "lines"))
    table.padding = (0, 1, 0, 0)
    console.print(table)
    for way in advice.ways:
        if text := said(way):
            print_line(console, f"{way.name}: {text}")
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
    found = [words.get(way.judgement, "") + shortened(". ".join(sentences), _REASON)] if way.reason else []
    if way.copied_bytes is not None:
        found.append(f"a step copies {short_size(way.copied_bytes)} between devices")
    if way.time_interval_ns is not None:
        found.append(f"predicted: {' to '.join(map(milliseconds, way.time_interval_ns))} a step")
    if way.fits is False:
        found.append("may not fit into the memory of a device")
    return "; ".join(found)


def _folded_cells(way: Way) -> tuple[str, ...]:
    """A row of the table in cells that fit into 80 columns, each folded between words."""
    name, judgement, *rest = way.cells
    for algorithm, words in _ALGORITHMS.items():
        name = name.replace(algorithm, words)
    return name.replace(" with ", ",\n"), judgement.replace(" ", "\n"), *rest
