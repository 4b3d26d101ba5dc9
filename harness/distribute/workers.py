"""Judges a training that several processes took part in, by the courses that each of them has kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.distribute.batches import Data
from harness.distribute.causes import Case, causes
from harness.distribute.conduct import judge_rows, judge_updates, judge_workers
from harness.distribute.course import Array, Course
from harness.distribute.differences import Compared, compare
from harness.distribute.facts import Facts
from harness.distribute.findings import findings_of
from harness.records import Exercised, Finding


def judge_processes(
    courses: Sequence[Course], single: Course, moved: Sequence[Course], facts: Facts, data: Data, epsilon: float
) -> tuple[list[Finding], Compared, Exercised]:
    """Findings about all workers, one loop of each, and what was compared."""
    found = joined(courses)
    compared = compare(found, single, moved, epsilon)
    conduct = [
        *judge_rows(courses, data, found.replicas),
        *(
            finding
            for number, course in enumerate(courses)
            for finding in judge_updates(course, single, f"worker {number}")
        ),
        *judge_workers(courses),
    ]
    findings = list(conduct)
    if not facts.random and (compared.differences or compared.structure):
        if all(finding.kind == "sync" for finding in conduct):
            findings += causes(Case(found, single, compared, facts, data, found.replicas), None)
        findings += findings_of(compared, found.loop)
    gradients = sum(array.size for array in found.values["gradient"].values())
    values = sum(array.size for named in found.values.values() for array in named.values()) - gradients
    return findings, compared, Exercised(programs=1, values=values, gradients=gradients)


def joined(courses: Sequence[Course]) -> Course:
    """One course of all workers: the shares of the loss and of the gradients are added up, the rest is the first's."""
    first = courses[0]
    values = {kind: dict(named) for kind, named in first.values.items()}
    quantities = ("loss", "gradient") if first.loop == "custom loop" else ()
    for quantity in quantities:
        values[quantity] = _added([course.values[quantity] for course in courses])
    return replace(first, values=values)


def _added(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    steps = min((len(array) for part in parts for array in part.values()), default=0)
    return {
        name: sum((part[name][:steps] for part in parts[1:] if name in part), parts[0][name][:steps])
        for name in parts[0]
    }
