"""The schema of a hardware profile, as Pydantic models. Loaded only when a profile is read or written."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from harness.devices.toml_file import Table, did_you_mean, parse_model
from harness.errors import InvalidProfile
from harness.hardware.card_profile import CardProfile, Expected

#: The version of the schema in this module. Earlier ones stay readable.
SCHEMA_VERSION = 1

#: The figures that a profile may contain, with their units.
FIGURE_UNITS = {
    **{f"matmul {dtype}": "GFLOP/s" for dtype in ("float64", "float32", "tfloat32", "float16", "bfloat16", "int8")},
    "memory bandwidth": "GB/s",
    "copy host-to-device": "GB/s",
    "copy device-to-host": "GB/s",
    "copy device-to-device": "GB/s",
    "pcie width": "lanes",
    "pcie generation": "generation",
    "power limit": "W",
    "nvlinks": "links",
    "nvlink rate": "GB/s",
}
_FIGURES = "one of " + ", ".join(f"'{name}'" for name in FIGURE_UNITS)
_DATE = r"^\d{4}(-\d{2}(-\d{2})?)?$"


class SourceTable(Table):
    """``[sources.NAME]``: a source of figures."""

    title: str = Field(min_length=1, description="a string (the title of the document)")
    date: str = Field(pattern=_DATE, description="'YYYY', 'YYYY-MM' or 'YYYY-MM-DD' (a string)")


class FigureTable(Table):
    """``[[figures]]``: one figure. A healthy card stays between ``low`` and ``high`` times ``value``."""

    figure: str = Field(description=_FIGURES)
    value: float = Field(gt=0, description="a number above 0, in the unit of the figure")
    source: str = Field(description="the NAME of a table [sources.NAME]")
    low: float = Field(gt=0, le=1, description="a number above 0 and at most 1")
    high: float = Field(default=1.05, ge=1, le=10, description="a number from 1 to 10")
    note: str = Field(default="", description="a string (where low and high come from)")


class HardwareDocument(Table):
    """A whole hardware profile."""

    # Not a Literal: that would take true for 1.
    schema_version: int = Field(ge=1, le=SCHEMA_VERSION, description=str(SCHEMA_VERSION))
    name: str = Field(min_length=1, description="a string")
    matches: list[str] = Field(description="a list of card names, as the driver reports them")
    note: str = Field(default="", description="a string")
    sources: dict[str, SourceTable] = Field(default_factory=dict, description="tables with title and date")
    figures: list[FigureTable] = Field(default_factory=list, description="a list of tables")

    def profile(self) -> CardProfile:
        """Return the profile that the checks use."""
        return CardProfile(
            name=self.name,
            matches=tuple(self.matches),
            expected=tuple(
                Expected(
                    figure=each.figure,
                    value=each.value,
                    unit=FIGURE_UNITS[each.figure],
                    source=self.sources[each.source].title,
                    date=self.sources[each.source].date,
                    low=each.low,
                    high=each.high,
                )
                for each in self.figures
            ),
        )


def read_hardware_document(path: Path, text: str) -> HardwareDocument:
    """Validate the ``text`` of the hardware profile at ``path``. Raise InvalidProfile with the first wrong key."""
    document = parse_model(path, text, HardwareDocument)
    # What depends on more than one key.
    seen: set[str] = set()
    for number, each in enumerate(document.figures):
        place = f"figures[{number}]"
        if each.figure not in FIGURE_UNITS:
            accepted = _FIGURES + did_you_mean(each.figure, FIGURE_UNITS)
            raise InvalidProfile(path, f"{place}.figure", each.figure, accepted)
        if each.figure in seen:
            raise InvalidProfile(path, f"{place}.figure", each.figure, "each figure only once")
        seen.add(each.figure)
        if each.source not in document.sources:
            known = ", ".join(f"'{name}'" for name in document.sources)
            accepted = f"{known} (the sources of this file)" if known else "the NAME of a table [sources.NAME]; add one"
            raise InvalidProfile(path, f"{place}.source", each.source, accepted)
    return document
