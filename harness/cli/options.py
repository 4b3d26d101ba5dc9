"""The options that several commands have, and what is checked of them before any process starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.devices.spec import accepted_specs

DevicesOption = Annotated[
    str,
    typer.Option(
        "--devices",
        metavar="SPEC",
        help=f"Devices: {accepted_specs()}.",
    ),
]
ReportOption = Annotated[
    Path, typer.Option("--report", metavar="DIR", file_okay=False, help="Folder for the record and the logs.")
]
DEFAULT_REPORT = Path("harness-report")


def check_spec(spec: str) -> None:
    """Refuse a spec that nobody could configure, before TensorFlow is waited for."""
    from harness.devices.request import resolve

    resolve(spec)


def is_spec(text: str) -> bool:
    """Whether a text follows the grammar of device specs."""
    from harness.devices.spec import parse_spec
    from harness.errors import InvalidSpec

    try:
        parse_spec(text)
    except InvalidSpec:
        return False
    return True
