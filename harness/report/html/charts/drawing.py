"""A Matplotlib figure as SVG for the page: ids that are unique there, colours of its style sheet, no reference out."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from markupsafe import Markup

from harness.report.printable import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours that stand for a variable of the style sheet. They are drawn nowhere else, and replaced in what was drawn.
INK, MUTED, GRID, GROUND = "#010203", "#010204", "#010205", "#010206"
#: A colour for each line or kind; the style sheet has them in a light and a dark form.
SERIES = tuple(f"#0102{index:02x}" for index in range(16, 24))
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    GROUND: "var(--ground)",
    **{colour: f"var(--series-{index})" for index, colour in enumerate(SERIES, start=1)},
}
_COLOUR = re.compile("|".join(_VARIABLES), re.IGNORECASE)
_LEGEND_COLUMNS = 8
#: Matplotlib's fonts; the page's own is used instead.
_FONT = re.compile(r"font-family:[^;]*;\s*")
_REFERENCE = re.compile(r"(url\(#|^#)([^)]+)")
#: Metadata that Matplotlib writes by default: when, by what and in which form the picture was made.
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # texts stay texts: they are read aloud, found, and shown in the page's font
    "text.parse_math": False,  # a dollar in a name of a user is a dollar
    "figure.facecolor": "none",
    "figure.edgecolor": "none",
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "path.simplify": True,
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart in the page: its title, a description for those who cannot see it, and the SVG."""

    id: str
    title: str
    description: str
    svg: Markup


def draw(
    name: str, title: str, description: str, size_inches: tuple[float, float], paint: Callable[[Axes], None]
) -> Chart:
    """Let ``paint`` draw on axes of ``size_inches``.

    ``name`` is unique in the page, of letters, digits and hyphens. ``description`` gives the chart's message in words.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings: Any = {**_SETTINGS, "svg.hashsalt": name}  # the names that are settings differ between versions
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The width of a character that Matplotlib's font lacks is guessed; the browser has the font that shows it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        figure = Figure(figsize=size_inches, layout="constrained")
        canvas = FigureCanvasSVG(figure)
        paint(figure.add_subplot())
        written = io.BytesIO()
        # ``savefig`` would draw it twice: once for the layout, and once to be seen.
        canvas.print_svg(written, metadata=_NO_METADATA)  # type: ignore[no-untyped-call]
    return Chart(name, title, description, _for_page(written.getvalue(), name, one_line(title), one_line(description)))


def add_legend(axes: Axes, entries: int, handles: Sequence[Any] | None = None) -> None:
    """Add a legend above the axes, for which :func:`legend_inches` leaves room."""
    figure = axes.get_figure()
    if figure is not None:
        options: dict[str, Any] = {} if handles is None else {"handles": handles}
        columns = min(entries, _LEGEND_COLUMNS)
        figure.legend(loc="outside upper left", ncols=columns, frameon=False, fontsize=9, **options)


def legend_inches(entries: int) -> float:
    """Give the height of a legend."""
    return 0.28 * (1 + (entries - 1) // _LEGEND_COLUMNS)


def _for_page(svg: bytes, name: str, title: str, description: str) -> Markup:
    root = ET.fromstring(svg)  # noqa: S314 - written by Matplotlib a moment ago
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in list(element.attrib):
            _rewrite(element, key, name)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):  # a style element would hold for the whole page
                parent.remove(child)
    width, height = root.attrib.get("width", "0"), root.attrib.get("height", "0")
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "class": "chart",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
        "style": f"--natural-width: {_points(width) * 4 / 3:.0f}px; aspect-ratio: {_points(width)} / {_points(height)}",
    }
    for tag, text in (("desc", description), ("title", title)):
        element = ET.Element(tag, {"id": f"{name}-{tag}"})
        element.text = text
        root.insert(0, element)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - serialised, so escaped


def _rewrite(element: ET.Element, key: str, name: str) -> None:
    value = element.attrib.pop(key)
    key = key.rpartition("}")[2]
    if key == "id":
        if element.tag == "g":
            return  # nothing refers to it
        value = f"{name}-{value}"
    elif key in ("href", "clip-path"):
        value = _REFERENCE.sub(rf"\g<1>{name}-\g<2>", value)
    elif key in ("style", "fill", "stroke"):
        value = _COLOUR.sub(lambda match: _VARIABLES[match[0].lower()], _FONT.sub("", value))
    element.attrib[key] = value


def _points(length: str) -> float:
    return float(length.removesuffix("pt"))
