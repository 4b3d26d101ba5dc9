"""Writes a hardware profile of measured figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from harness.atomic_file import write_atomically
from harness.errors import UsageError
from harness.hardware.profile_rates import Rate
from harness.hardware.profile_schema import FIGURE_UNITS, SCHEMA_VERSION, read_hardware_document

#: A later run on the same idle machine stays within this of the figures, which are of the fastest times: cards differ
#: by 8 % from one another and with their temperature, and a median is below the fastest.
LOW, HIGH = 0.7, 1.2
#: Settings, which have one value.
_EXACT = ("pcie width", "pcie generation")

SOURCE = "measured on this machine"


def profile_text(name: str, matches: Sequence[str], rates: Sequence[Rate], *, date: str, note: str = "") -> str:
    """Return the TOML of a profile. ``date`` is ``YYYY-MM-DD``."""
    lines = [
        "# Written by harness profile-machine: what the devices of one machine reached.",
        f"schema_version = {SCHEMA_VERSION}",
        f"name = {_quoted(name)}",
        f"matches = [{', '.join(_quoted(each) for each in matches)}]",
    ]
    if note:
        lines.append(f"note = {_quoted(note)}")
    lines += ["", "[sources.measured]", f"title = {_quoted(SOURCE)}", f"date = {_quoted(date)}"]
    for rate in rates:
        low, high = (1.0, 1.0) if rate.figure in _EXACT else (LOW, HIGH)
        unit = FIGURE_UNITS[rate.figure]
        lines += [
            "",
            "[[figures]]",
            f"figure = {_quoted(rate.figure)}",
            f"value = {_number(rate.value)}",
            'source = "measured"',
            f"low = {low}",
            f"high = {high}",
            f"note = {_quoted(f'{unit}, from the fastest time; from the median time: {_number(rate.median)}')}",
        ]
    return "\n".join(lines) + "\n"


def write_profile(path: Path, text: str) -> None:
    """Validate the text and write it atomically. Raise UsageError if the file cannot be written."""
    read_hardware_document(path, text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise profile_not_written(path, error.strerror or str(error)) from error


def profile_not_written(path: Path, why: str) -> UsageError:
    """The error of a profile that cannot be written."""
    return UsageError(f"profile {path} cannot be written: {why}; name another file with --output")


def _quoted(text: str) -> str:
    """Quote as JSON does, which is TOML too as long as no escape is used that TOML lacks."""
    return json.dumps("".join(each if each.isprintable() else " " for each in text), ensure_ascii=False)


def _number(value: float) -> str:
    """Round to four digits, always with a decimal point, so that TOML reads a float."""
    return repr(float(f"{value:.4g}"))
