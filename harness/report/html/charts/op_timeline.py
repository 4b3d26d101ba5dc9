"""The ops of a program in the order in which they ran: a row for each device, coloured by role."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from harness.report.html.charts.drawing import MUTED, SERIES, Chart, add_legend, draw, legend_inches
from harness.report.printable import device_label, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from harness.records import PlacedOp

#: Roles in the order of the legend; an unlisted role is drawn as the last.
ROLES = ("forward", "gradient", "update", "collective", "variable", "constant", "data", "control")
_LABEL_CHARACTERS = 20
#: Up to so many ops have a bar each.
_DRAWN_ALONE = 60
_ROW_INCHES, _ROW_FILLED = 0.36, 0.72


def op_timeline(name: str, title: str, description: str, ops: Sequence[PlacedOp], devices: Sequence[str]) -> Chart:
    """Draw a row for each full name in ``devices``. With many ops, equal neighbours are one bar."""
    present = [role for role in ROLES if any(_role(op) == role for op in ops)]

    def paint(axes: Axes) -> None:
        from matplotlib.patches import Patch
        from matplotlib.ticker import MaxNLocator

        for (device, role), bars in _bars(ops).items():
            row, index = devices.index(device), ROLES.index(role)
            axes.broken_barh(
                bars,
                (row - _ROW_FILLED / 2, _ROW_FILLED),
                facecolor=SERIES[index % len(SERIES)],
                linewidth=0,
            )
        axes.set_yticks(range(len(devices)), [shortened(device_label(each), _LABEL_CHARACTERS) for each in devices])
        axes.set_ylim(len(devices) - 0.5, -0.5)
        axes.set_xlim(0, max(op.order for op in ops) + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(length=0)
        axes.set_xlabel("ops in the order in which they ran", color=MUTED)
        axes.grid(axis="y", linewidth=0.5)
        patches = [Patch(facecolor=SERIES[ROLES.index(role) % len(SERIES)], label=role) for role in present]
        add_legend(axes, len(present), patches)

    height = 0.75 + legend_inches(len(present)) + _ROW_INCHES * len(devices)
    return draw(name, title, description, (8.4, height), paint)


def _role(op: PlacedOp) -> str:
    return op.role if op.role in ROLES else ROLES[-1]


def _bars(ops: Sequence[PlacedOp]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Give the start and width of each bar, by device and role."""
    bars: dict[tuple[str, str], list[tuple[float, float]]] = {}
    ordered = sorted(ops, key=lambda op: op.order)
    alone = len(ordered) <= _DRAWN_ALONE
    for (device, role, _), run in groupby(ordered, key=lambda op: (op.device, _role(op), alone and op.order)):
        orders = [op.order for op in run]
        bars.setdefault((device, role), []).append((orders[0], orders[-1] - orders[0] + 0.85))
    return bars
