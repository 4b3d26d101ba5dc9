"""A matrix of copies between devices and the host: a cell for each ordered pair."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.report.html.charts.drawing import MUTED, Chart, draw
from harness.report.printable import shortened
from harness.report.quantities import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Above this many rows the values do not fit into the cells; the table has them.
_MOST_ROWS_WITH_VALUES = 18
#: Values that are further apart are coloured by their logarithm: else a slow link would vanish beside NVLink.
_WIDE = 8.0
#: Stands out from every colour of the map.
_FRAME = "#ff2d55"
_LABEL_CHARACTERS = 14
#: The luminance to which white and black have the same contrast, 4.58: sqrt(1.05 * 0.05) - 0.05.
_AS_DARK_AS_LIGHT = 0.179
_CELL_INCHES, _MARGIN_INCHES = 0.52, 1.5


def heat_map(
    name: str,
    title: str,
    description: str,
    labels: Sequence[str],
    values: Mapping[tuple[str, str], float],
    unit: str,
    *,
    marked: Collection[tuple[str, str]] = (),
    dark_is_much: bool = False,
) -> Chart:
    """Draw ``values`` by (from, to). Pairs that were not measured are blank; ``marked`` ones get a frame and a !."""

    def paint(axes: Axes) -> None:
        import numpy as np
        from matplotlib.colors import LogNorm, Normalize
        from matplotlib.patches import Rectangle

        side = range(len(labels))
        matrix = np.array([[values.get((labels[row], labels[column]), np.nan) for column in side] for row in side])
        positive = matrix[np.isfinite(matrix) & (matrix > 0)]
        low, high = (float(positive.min()), float(positive.max())) if positive.size else (0.0, 1.0)
        wide = positive.size and high / low > _WIDE
        norm = LogNorm(low, high) if wide else Normalize(0.0, high)
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(matrix), cmap="viridis_r" if dark_is_much else "viridis", norm=norm, edgecolors="none"
        )
        if len(labels) <= _MOST_ROWS_WITH_VALUES:
            for (row, column), value in np.ndenumerate(matrix):
                if np.isfinite(value):
                    ground = mesh.cmap(norm(max(value, low) if wide else value))
                    axes.text(
                        column + 0.5,
                        row + 0.5,
                        number(float(f"{value:.3g}")) + (" !" if (labels[row], labels[column]) in marked else ""),
                        ha="center",
                        va="center",
                        fontsize=8.5,
                        color=readable_on(ground),
                    )
        for source, target in marked:
            corner = (labels.index(target) + 0.05, labels.index(source) + 0.05)
            axes.add_patch(Rectangle(corner, 0.9, 0.9, fill=False, edgecolor=_FRAME, linewidth=2.5))
        short = [shortened(label, _LABEL_CHARACTERS) for label in labels]
        axes.set_xticks([index + 0.5 for index in side], short, rotation=0 if len(labels) <= 10 else 90)
        axes.set_yticks([index + 0.5 for index in side], short)
        axes.set_xlim(0, len(labels))
        axes.set_ylim(len(labels), 0)
        axes.set_aspect("equal")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.xaxis.set_label_position("top")
        axes.xaxis.tick_top()
        axes.set_xlabel(f"to ({shortened(unit, _LABEL_CHARACTERS)})")
        axes.set_ylabel("from", color=MUTED)

    side_inches = _MARGIN_INCHES + _CELL_INCHES * len(labels)
    return draw(name, title, description, (max(side_inches, 4.0), max(side_inches - 0.4, 3.0)), paint)


def readable_on(ground: Sequence[float]) -> str:
    """White or black, whichever is easier to read on a colour (red, green, blue from 0 to 1), by WCAG 2.2.

    Both are never drawn as Matplotlib's default, which it leaves out, so that they do not follow dark mode.
    """
    return "#ffffff" if relative_luminance(ground) < _AS_DARK_AS_LIGHT else "#000001"


def relative_luminance(colour: Sequence[float]) -> float:
    """Of a colour (red, green, blue from 0 to 1), as WCAG 2.2 defines it."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
