"""Finds and prints the changes between two runs: in verdicts, findings, figures and environment; what is worse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from harness.errors import UsageError
from harness.plural import plural
from harness.records import Fingerprint, GpuFacts, RunRecord, Verdict
from harness.report.comparison import MOST_ROWS, NORMAL_SPREAD, Column, Comparison, compare
from harness.report.printable import device_label, one_line, shortened
from harness.report.quantities import TIMES, quantity
from harness.report.terminal import finding_line, print_line

if TYPE_CHECKING:
    from rich.console import Console

Direction = Literal["worse", "better", "changed"]
_STYLES: dict[Direction, str] = {"worse": "bold red", "better": "green", "changed": "cyan"}

#: The verdicts of a check that ran, from best to worst.
_RAN = (Verdict.PASS, Verdict.WARN, Verdict.FAIL)
#: Units beside rates (``…/s``) of which more is better. Of times, less is.
_MORE = frozenset({"x", "lanes"})
_LONGEST = 300
#: How much a figure of a logical CPU may change from run to run, as in harness.hardware.rates.
SHARED_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class RunChange:
    """One change. ``about``: ``verdict``, ``finding``, ``figure``, ``run`` or ``environment``."""

    direction: Direction
    about: str
    what: str


@dataclass(frozen=True, slots=True)
class Diff:
    """All differences, and how many checks and figures both runs have in common."""

    differences: tuple[RunChange, ...]
    checks: int
    figures: int

    @property
    def worse(self) -> tuple[RunChange, ...]:
        """The differences for the worse."""
        return tuple(each for each in self.differences if each.direction == "worse")


def diff(old: RunRecord, new: RunRecord) -> Diff:
    """Compare ``old`` with ``new``.

    A check that ran and no longer does is worse, and so is a missing figure, unless the level differs. Logical CPUs
    share their cores with other programs: their figures count as worse only beyond a factor of :data:`SHARED_FACTOR`.

    Raises:
        UsageError: the runs cannot be compared: one is of hardware and the other of a described machine, they are of
            devices of different kinds, or they have no check in common.
    """
    both = compare((Column("old", old), Column("new", new)))
    checks = sum(None not in row.verdicts for row in both.verdicts)
    _refuse_incomparable(old, new, checks)
    same_level = old.level == new.level
    differences = (*_run(old, new), *_verdicts(both, same_level), *_findings(old, new), *_figures(both, same_level))
    return Diff(
        (*differences, *_environment(old, new)), checks, sum(None not in figure.values for figure in both.figures)
    )


def _refuse_incomparable(old: RunRecord, new: RunRecord, checks_in_common: int) -> None:
    machines = [f"the described machine {each.spec}" if each.described else "hardware" for each in (old, new)]
    kinds = [" and ".join(sorted({f"{card.kind}s" for card in each.cards})) for each in (old, new)]
    checks = [", ".join(result.check for result in each.results) or "none" for each in (old, new)]
    for facts, differ in (
        (machines, machines[0] != machines[1]),
        (kinds, kinds[0] != kinds[1] and all(kinds)),
        (checks, not checks_in_common),
    ):
        if differ:
            if facts is checks:
                what, wanted = "have no check in common", "two runs of the same checks"
            else:
                what, wanted = "are of different machines", "two runs of one machine"
            raise UsageError(
                f"the runs cannot be compared: they {what} (old: {one_line(facts[0])}; new: {one_line(facts[1])}); "
                f"give {wanted}, or show both side by side with `harness report OLD NEW`"
            )


def _run(old: RunRecord, new: RunRecord) -> Iterator[RunChange]:
    if old.complete != new.complete:
        was, now = ("complete" if each.complete else "incomplete" for each in (old, new))
        yield RunChange("worse" if old.complete else "better", "run", f"was {was}, is {now}")
    for name, one, other in (("level", old.level, new.level), ("devices", old.spec, new.spec)):
        if one != other:
            yield RunChange("changed", "run", f"{name}: {one_line(one) or 'none'} → {one_line(other) or 'none'}")


def _verdicts(both: Comparison, same_level: bool) -> Iterator[RunChange]:
    for row in both.verdicts:
        one, other = row.verdicts
        if one is other:
            continue
        what = f"{one_line(row.check)}: {one or 'no result'} → {other or 'no result'}"
        if one in _RAN and other in _RAN:
            yield RunChange("worse" if _RAN.index(other) > _RAN.index(one) else "better", "verdict", what)
        elif other in _RAN:
            improved = one is not None and other is not Verdict.FAIL
            yield RunChange("worse" if other is Verdict.FAIL else "better" if improved else "changed", "verdict", what)
        else:
            lost = one in _RAN and (other is not None or same_level)
            yield RunChange(
                "worse" if lost or (one is None and other is Verdict.UNKNOWN) else "changed", "verdict", what
            )


def _findings(old: RunRecord, new: RunRecord) -> Iterator[RunChange]:
    """Compare findings by check, kind, place and device: their figures may differ from run to run."""
    before, after = _finding_lines(old), _finding_lines(new)
    ran = {result.check for result in new.results if result.verdict in _RAN}
    for key in dict.fromkeys((*before, *after)):
        was, now = before.get(key, []), after.get(key, [])
        gained, line = len(now) - len(was), (now or was)[0]
        if not was:
            yield RunChange("worse", "finding", f"new: {line}")
        elif gained > 0:
            yield RunChange("worse", "finding", f"{gained} more like this: {line}")
        # A check that did not run cannot show that a fault is gone.
        elif gained < 0 and key[0] in ran:
            yield RunChange("better", "finding", f"{-gained} fewer like this: {line}" if now else f"gone: {line}")


def _finding_lines(record: RunRecord) -> dict[tuple[str, str, str, str], list[str]]:
    lines: dict[tuple[str, str, str, str], list[str]] = {}
    for result in record.results:
        for finding in result.findings:
            key = (result.check, finding.kind, finding.where, device_label(finding.device))
            lines.setdefault(key, []).append(shortened(f"{result.check}: {finding_line(finding)}", _LONGEST))
    return lines


def _figures(both: Comparison, same_level: bool) -> Iterator[RunChange]:
    for row in both.figures:
        one, other = row.values
        name = one_line(" ".join(filter(None, (f"{row.check}:", row.name, row.where))))
        if one is not None and other is not None:
            yield from _moved(name, row.unit, one, other, shared="CPU:" in row.where)
        elif one is not None:
            gone: Direction = "worse" if same_level else "changed"
            yield RunChange(gone, "figure", f"{name}: {quantity(one, row.unit)} → not measured")
        else:
            yield RunChange("changed", "figure", f"{name}: not measured → {quantity(other, row.unit)}")


def _moved(name: str, unit: str, one: float, other: float, *, shared: bool) -> Iterator[RunChange]:
    values = f"{name}: {quantity(one, unit)} → {quantity(other, unit)}"
    if not (math.isfinite(one) and math.isfinite(other) and one):
        if one != other and not (math.isnan(one) and math.isnan(other)):
            worse = math.isfinite(one) and not math.isfinite(other)
            yield RunChange("worse" if worse else "changed", "figure", values)
        return
    change = other / one - 1
    if abs(other - one) <= NORMAL_SPREAD * max(abs(one), abs(other)):
        return
    usual = shared and 1 / SHARED_FACTOR <= other / one <= SHARED_FACTOR
    yield RunChange("changed" if usual else _direction(unit, change), "figure", f"{values} ({change:+.1%})")


def _direction(unit: str, change: float) -> Direction:
    if unit.endswith("/s") or unit in _MORE:
        return "better" if change > 0 else "worse"
    if unit in TIMES:
        return "worse" if change > 0 else "better"
    return "changed"


def _environment(old: RunRecord, new: RunRecord) -> Iterator[RunChange]:
    facts = (old.fingerprint, new.fingerprint)
    for field in fields(Fingerprint):
        one, other = (getattr(each, field.name, None) for each in facts)
        if one == other:
            continue
        if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
            # What is the same would push what differs out of the line.
            one, other = zip(*(pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]), strict=True)
        yield RunChange("changed", "environment", f"{field.name}: {_fact(one)} → {_fact(other)}")
    cards = [{card.label: card for card in record.cards} for record in (old, new)]
    for label in dict.fromkeys((*cards[0], *cards[1])):
        if label not in cards[1]:
            yield RunChange("worse", "environment", f"device {one_line(label)} is missing")
        elif label not in cards[0]:
            yield RunChange("changed", "environment", f"device {one_line(label)} is new")
        elif cards[0][label] != cards[1][label]:
            named = [one_line(f"{each[label].name} {each[label].uuid or ''}") for each in cards]
            yield RunChange("changed", "environment", f"device {one_line(label)}: {named[0]} → {named[1]}")


def _fact(value: object) -> str:
    if value is None:
        return "unknown"
    text = ", ".join(map(_item, value)) if isinstance(value, tuple) else str(value)
    return shortened(text, _LONGEST)


def _item(item: object) -> str:
    """Give all that is known of a GPU, so that another one of the same name is seen; of a device, its short name."""
    if isinstance(item, GpuFacts):
        memory = None if item.memory_mib is None else f"{item.memory_mib:,} MiB"
        return " ".join(filter(None, (item.name, item.uuid, item.compute_capability, memory)))
    return device_label(str(item))


def print_diff(console: Console, found: Diff) -> None:
    """Print the differences, worse ones first, and the conclusion."""
    from rich.text import Text

    for direction, style in _STYLES.items():
        kind = [each for each in found.differences if each.direction == direction]
        for each in kind[:MOST_ROWS]:
            console.print(Text.assemble((f"{direction:<8}", style), f"{each.about:<12}", each.what), soft_wrap=True)
        if len(kind) > MOST_ROWS:
            print_line(console, f"{direction:<8}and {len(kind) - MOST_ROWS} more")
    print_line(console, conclusion(found))


def conclusion(found: Diff) -> str:
    """Summarise the differences in one line."""
    compared = f"{plural(found.checks, 'check')} and {plural(found.figures, 'figure')} in both runs"
    if found.worse:
        worse = f"{len(found.worse)} of {plural(len(found.differences), 'difference')}"
        return f"WORSE: {worse} {'is' if len(found.worse) == 1 else 'are'} worse ({compared})"
    return f"NOTHING WORSE: {plural(len(found.differences), 'difference')} ({compared})"
