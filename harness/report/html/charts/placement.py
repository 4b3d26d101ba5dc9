"""The placement of a program: a lane for each device, a box for ops that belong together, and arrows for copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.devices.name import DeviceName
from harness.plural import plural
from harness.report.html.charts.drawing import GRID, GROUND, INK, MUTED, SERIES, Chart, add_legend, draw, legend_inches
from harness.report.html.charts.op_timeline import ROLES
from harness.report.placement_graph import Box, Flow, PlacementGraph
from harness.report.printable import shortened
from harness.report.quantities import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW_INCHES, _WIDTH_INCHES = 0.56, 8.4
_WIDTH, _HEIGHT = 0.62, 0.6
#: Characters of a label in all lanes together.
_CHARACTERS = 96


def placement_chart(name: str, title: str, graph: PlacementGraph) -> Chart:
    """Draw the boxes from top to bottom as they depend on each other. Thin arrows stay on a device."""
    lanes = {device: at for at, device in enumerate(graph.devices)}
    present = [role for role in ROLES if any(box.role == role for box in graph.boxes)]
    rows = max((box.row for box in graph.boxes), default=0) + 1
    most = max(8, _CHARACTERS // (len(lanes) + 1))

    def paint(axes: Axes) -> None:
        from matplotlib.patches import Patch

        for lane in range(0, len(lanes), 2):
            axes.axvspan(lane - 0.5, lane + 0.5, facecolor=GRID, alpha=0.35, linewidth=0)
        for flow in graph.flows:
            _paint_flow(axes, graph, flow, lanes)
        for each in graph.boxes:
            _paint_box(axes, each, lanes[each.device], most)
        axes.set_xlim(-0.5, len(lanes) - 0.5)
        axes.set_ylim(rows - 0.4, -0.6)
        axes.set_xticks(range(len(lanes)), [device.short for device in lanes])
        axes.xaxis.set_ticks_position("top")
        axes.set_yticks([])
        axes.tick_params(length=0, labelcolor=INK)
        axes.spines[:].set_visible(False)
        patches = [Patch(facecolor=SERIES[ROLES.index(role) % len(SERIES)], label=role) for role in present]
        add_legend(axes, len(present), patches)

    height = 0.5 + legend_inches(len(present)) + _ROW_INCHES * rows
    return draw(name, title, describe(graph), (_WIDTH_INCHES, height), paint)


def _paint_box(axes: Axes, box: Box, lane: int, most: int) -> None:
    from matplotlib.patches import Rectangle

    colour = SERIES[ROLES.index(box.role) % len(SERIES)]
    corner = (lane - _WIDTH / 2, box.row - _HEIGHT / 2)
    axes.add_patch(Rectangle(corner, _WIDTH, _HEIGHT, facecolor=GROUND, edgecolor=colour, linewidth=1.8, zorder=2))
    label = shortened(box.label or box.role, most)
    axes.text(lane, box.row - 0.1 if box.count else box.row, label, ha="center", va="center", fontsize=8.5, zorder=5)
    if box.count:
        count = plural(box.count, "op")
        axes.text(lane, box.row + 0.16, count, ha="center", va="center", fontsize=7, color=MUTED, zorder=5)


def _paint_flow(axes: Axes, graph: PlacementGraph, flow: Flow, lanes: Mapping[DeviceName, int]) -> None:
    from matplotlib.patches import FancyArrowPatch

    source, target = graph.boxes[flow.source], graph.boxes[flow.target]
    lane, other = lanes[source.device], lanes[target.device]
    crosses = lane != other
    start: tuple[float, float]
    end: tuple[float, float]
    bent = "arc3,rad=0"
    if crosses:
        side = 1 if other > lane else -1
        start, end = (lane + side * _WIDTH / 2, source.row), (other - side * _WIDTH / 2, target.row)
    elif target.row == source.row + 1:
        start, end = (lane, source.row + _HEIGHT / 2), (lane, target.row - _HEIGHT / 2)
    else:  # past the boxes between them
        start, end = (lane - _WIDTH / 2, source.row), (lane - _WIDTH / 2, target.row)
        bent = f"arc3,rad={0.3 if target.row > source.row else -0.3}"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=9 if crosses else 6,
            linewidth=1.2 if crosses else 0.6,
            color=INK if crosses else MUTED,
            connectionstyle=bent,
            zorder=3 if crosses else 1,
        )
    )
    if flow.copied:
        # Nearer to the end, where arrows from one box lie apart.
        at = (0.3 * start[0] + 0.7 * end[0], 0.3 * start[1] + 0.7 * end[1])
        box = {"facecolor": GROUND, "edgecolor": "none", "pad": 0.8}
        axes.text(*at, size(flow.copied), ha="center", va="center", fontsize=7.5, zorder=4, bbox=box)


def describe(graph: PlacementGraph) -> str:
    """The picture in words."""
    copies = [flow for flow in graph.flows if graph.boxes[flow.source].device != graph.boxes[flow.target].device]
    known = sum(flow.copied for flow in copies)
    ops = {device: sum(box.count for box in graph.boxes if box.device == device) for device in graph.devices}
    spread = ", ".join(f"{device.short} {count:,}" for device, count in ops.items() if count)
    drawn = sum(box.count > 0 for box in graph.boxes)
    moved = f"{plural(len(copies), 'arrow')} between devices, with {size(known)}" if copies else "nothing is copied"
    return f"{plural(graph.ops, 'op')} in {plural(drawn, 'box', 'boxes')}: {spread}; {moved}."
