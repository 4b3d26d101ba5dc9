"""The page that compares several runs."""

from __future__ import annotations

from collections import Counter

from harness.records import RunRecord, overall
from harness.report.comparison import RULE, Comparison, Figures
from harness.report.html.environment import render
from harness.report.html.page import environment_facts, machine_name
from harness.report.quantities import NOTHING
from harness.report.verdicts import all_exercised

#: Rows of figures shown, those with an outlier first.
MOST_ROWS = 2000


def comparison_page(comparison: Comparison) -> str:
    """Write ``comparison`` as one self-contained HTML file."""
    figures = sorted(comparison.figures, key=lambda row: not row.outliers)
    stand_out = Counter(place for row in comparison.figures for place in row.outliers)
    return render(
        "comparison.html.j2",
        columns=[
            {
                "name": column.name,
                "note": column.note,
                "machine": machine_name(column.record),
                "verdict": column.record.verdict,
                "exercised": str(all_exercised(column.record)),
                "outliers": stand_out[place],
                "incomplete": not column.record.complete,
                "described": column.record.described,
            }
            for place, column in enumerate(comparison.columns)
        ],
        verdict=overall(column.record.verdict for column in comparison.columns),
        verdicts=[
            (row.check, [(verdict, place in row.outliers) for place, verdict in enumerate(row.verdicts)])
            for row in comparison.verdicts
        ],
        marked=[_row(row) for row in figures[:MOST_ROWS] if row.outliers],
        unmarked=[_row(row) for row in figures[:MOST_ROWS] if not row.outliers],
        number=len(figures),
        left_out=max(0, len(figures) - MOST_ROWS),
        standing_out=sum(bool(row.outliers) for row in comparison.figures),
        environment=_environment([column.record for column in comparison.columns]),
        rule=RULE,
    )


def _row(row: Figures) -> tuple[tuple[str, str, str], list[tuple[str, bool]]]:
    return (row.name, row.where or NOTHING, row.check), row.shown


def _environment(records: list[RunRecord]) -> list[tuple[str, list[tuple[str, bool]]]]:
    facts = [{name: ", ".join(lines) for name, lines in environment_facts(record.fingerprint)} for record in records]
    names = dict.fromkeys(name for known in facts for name in known)
    rows = []
    for name in names:
        values = [known.get(name, NOTHING) for known in facts]
        common = Counter(values).most_common(1)[0]
        differs = len(set(values)) > 1
        rows.append((name, [(value, differs and (value != common[0] or common[1] == 1)) for value in values]))
    return rows
