"""Prints the memory of devices at their peaks: what it consists of, and its largest parts with their lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.devices.name import DeviceName
from harness.plural import plural
from harness.report.printable import ending
from harness.report.quantities import number
from harness.report.terminal import make_table, print_line
from harness.speed.memory.record import Alive, Course
from harness.speed.memory.sizes import size_text

if TYPE_CHECKING:
    from rich.console import Console

#: Devices and parts that are printed: with the heads, these are ten lines. The record has all.
_MOST_DEVICES, _MOST_PARTS = 2, 3
_LAYER_CHARACTERS, _LINE_CHARACTERS = 24, 26


def print_memory(console: Console, courses: Sequence[Course]) -> None:
    """Print the peak of each device and what it consists of, and the largest parts of the highest peak."""
    highest = sorted(courses, key=lambda course: -course.peak_bytes)
    for line in peak_lines(highest[:_MOST_DEVICES]):
        print_line(console, line)
    if len(highest) > _MOST_DEVICES:
        print_line(console, f"and {plural(len(highest) - _MOST_DEVICES, 'more device')}, in the record")
    largest = highest[0].alive[: _MOST_PARTS - (len(highest) > _MOST_DEVICES)]
    console.print(make_table(("size", "what", "layer", "line"), [_cells(each) for each in largest], right=("size",)))


def peak_lines(courses: Sequence[Course]) -> Iterator[str]:
    """Write the peak of each device in a line, and one on how it was measured."""
    for course in courses:
        yield (
            f"memory of {_short(course)}: peak {size_text(course.peak_bytes)} at {number(course.peak_at_ns / 1e6)} of "
            f"{number(course.call_ns / 1e6)} ms of call {course.call}, {course.share_with_line():.0%} with a line"
        )
        yield "  " + ", ".join(f"{kind} {size / course.peak_bytes:.0%}" for kind, size in _shares(course))
    yield f"  {courses[0].source}{beyond(courses[0])}"


def beyond(course: Course) -> str:
    """What the allocator holds beyond the live bytes, as the end of a line; empty where it does not tell."""
    if course.limit_bytes is None:
        return ""
    return f": rounding {size_text(course.rounding_bytes or 0)}, limit {size_text(course.limit_bytes)}"


def _shares(course: Course) -> list[tuple[str, int]]:
    parts = sorted(course.bytes_by_kind().items(), key=lambda item: -item[1])
    return [(kind, size) for kind, size in parts if size >= 0.005 * course.peak_bytes]


def _cells(each: Alive) -> tuple[str, ...]:
    return (
        size_text(each.size_bytes),
        each.kind,
        ending(each.layer, _LAYER_CHARACTERS),
        ending(each.line, _LINE_CHARACTERS),
    )


def _short(course: Course) -> str:
    return DeviceName.parse(course.device).short
