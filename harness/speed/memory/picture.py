"""Draws the memory of devices over time: stacked areas of what it consists of, with the peak marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.devices.name import DeviceName
from harness.speed.memory.record import KINDS, Course, Kind
from harness.speed.memory.sizes import size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Okabe and Ito's colours, for every kind of colour vision (jfly.uni-koeln.de/color, 2008).
COLOURS: dict[Kind, str] = {
    "variables": "#0072B2",
    "slots": "#56B4E9",
    "inputs": "#009E73",
    "activations": "#E69F00",
    "gradients": "#D55E00",
    "temporaries": "#CC79A7",
    "unknown": "#999999",
}
_WIDTH_INCHES, _DEVICE_INCHES = 11.0, 2.4
_VISIBLE = 1 / 1000
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def draw_memory(target: str, courses: Sequence[Course], paths: Sequence[Path]) -> None:
    """Draw each device below the other to ``paths`` (.png, .svg …). Raise OSError if a path cannot be written."""
    if not courses:
        return
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(_WIDTH_INCHES, 0.9 + _DEVICE_INCHES * len(courses)), layout="constrained")
    shown = {kind for course in courses for kind in kinds_of(course)}
    for axes, course in zip(figure.subplots(len(courses), squeeze=False)[:, 0], courses, strict=True):
        paint_course(axes, course, COLOURS, "black")
        device = DeviceName.parse(course.device).short
        axes.set_title(f"{device}, call {course.call}: {course.source}", loc="left", fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Memory of {target}", x=0.01, ha="left", fontsize="medium")
    handles = [Patch(color=COLOURS[kind], label=kind) for kind in KINDS if kind in shown]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), frameon=False, fontsize="small")
    for path in paths:
        figure.savefig(path, dpi=150)


def kinds_of(course: Course) -> list[Kind]:
    """The kinds that the device holds a visible part of at some time."""
    least = course.peak_bytes * _VISIBLE
    return [kind for at, kind in enumerate(KINDS) if any(held[at] > least for held in course.held_bytes)]


def paint_course(axes: Axes, course: Course, colours: Mapping[Kind, str], ink: str) -> None:
    """Draw the areas of one device, and mark its peak."""
    unit, factor = next((unit, factor) for unit, factor in _UNITS if course.peak_bytes >= factor or factor == 1)
    # The last state lasts to the end of the call.
    times = [at / 1e6 for at in (*course.at_ns, course.call_ns)]
    held = [*course.held_bytes, course.held_bytes[-1]]
    shown = kinds_of(course)
    axes.stackplot(
        times,
        *([each[KINDS.index(kind)] / factor for each in held] for kind in shown),
        colors=[colours[kind] for kind in shown],
        step="post",
        linewidth=0,
    )
    at, peak = course.peak_at_ns / 1e6, course.peak_bytes / factor
    right = at > course.call_ns / 2e6
    axes.plot([at], [peak], marker="v", color=ink, markersize=6, clip_on=False)
    axes.annotate(
        f"peak {size_text(course.peak_bytes)}",
        (at, peak),
        xytext=(-8 if right else 8, 4),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize="small",
        color=ink,
    )
    axes.set_xlim(0, max(times[-1], 1e-6))
    axes.set_ylim(0, peak * 1.18)
    axes.set_xlabel("ms since the call began")
    axes.set_ylabel(unit)
