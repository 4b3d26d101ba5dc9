"""The options that several commands have, and what is checked of them before any process starts."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from harness.devices.request import resolve
from harness.devices.spec import accepted_specs, parse_spec
from harness.errors import InvalidSpec, ReportError, UsageError

DevicesOption = Annotated[
    str,
    typer.Option(
        "--devices",
        metavar="SPEC",
        help=f"Devices: {accepted_specs()}.",
    ),
]
FakeOption = Annotated[
    str | None,
    typer.Option(
        "--fake",
        metavar="FILE",
        help="Run the hardware checks on the machine that FILE describes, such as @faulty-8.",
    ),
]
ReportOption = Annotated[
    Path, typer.Option("--report", metavar="DIR", file_okay=False, help="Folder for the record and the logs.")
]
DEFAULT_REPORT = Path("harness-report")
ProfilesOption = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        file_okay=False,
        help="A folder of hardware profiles, as profile-machine writes them, that come before the shipped ones.",
    ),
]
BuildArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:BUILD",
        help="BUILD() returns (model, x, y): a Keras model and an example batch; or (fn, inputs) or "
        "(fn, inputs, variables): a function and the arrays of a batch.",
    ),
]
ThresholdOption = Annotated[
    str, typer.Option("--threshold", metavar="SHARE", help="The accepted loss of speedup, such as 5% or 0.05.")
]
DEFAULT_THRESHOLD = "5%"
BaselinesOption = Annotated[
    Path, typer.Option("--baselines", metavar="DIR", file_okay=False, help="Where calibrations are kept.")
]
#: Where pytest-benchmark keeps runs, unless the user says otherwise.
DEFAULT_BASELINES = Path(".benchmarks")
#: The command that measures speedups, unless the user says otherwise.
DEFAULT_COMMAND = "python -m pytest --benchmark-only"


def number(given: object) -> float:
    """Parse the value of an option: a number. Typer's own message does not say what was given."""
    try:
        return float(str(given))
    except ValueError:
        raise typer.BadParameter(f"{given!r}; accepted: a number, such as 2.5") from None


def whole_number(given: object) -> int:
    """Parse the value of an option: a whole number."""
    try:
        return int(str(given))
    except ValueError:
        raise typer.BadParameter(f"{given!r}; accepted: a whole number, such as 3") from None


BatchOption = Annotated[
    int | None,
    typer.Option("--batch", parser=whole_number, metavar="N", help="Repeat or cut the example batch to N rows."),
]


def check_batch(batch: int | None) -> None:
    """Refuse a batch of no rows."""
    if batch is not None and batch < 1:
        raise UsageError(f"--batch {batch}; accepted: 1 or more")


def check_spec(spec: str) -> None:
    """Refuse a spec that nobody could configure, before TensorFlow is waited for."""
    resolve(spec)


def spec_of(devices: str, machine: str | None) -> str:
    """Return the spec of ``--devices``, or of the software GPUs of ``--fake``: a file, or a shipped one (``@NAME``)."""
    if machine is None:
        return devices
    if devices != "auto":
        raise UsageError(
            f"--devices {devices} cannot be combined with --fake, whose machine description already names the devices; "
            "give only one of the two options"
        )
    if not machine.startswith("@") and not machine.endswith(".toml"):
        raise UsageError(f"--fake {machine}; accepted: a .toml file, or @NAME for a shipped description")
    return f"softgpu:{machine}"


def check_report(folder: Path) -> None:
    """Make the report folder. Raise ReportError if it cannot be written."""
    check_writable(folder, lambda why: ReportError(folder, why))


def check_writable(folder: Path, refusal: Callable[[str], UsageError]) -> None:
    """Make a folder before anything is measured that would be lost without it.

    Raise ``refusal(why)`` if it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError as error:  # of a file
        raise refusal(os.strerror(errno.ENOTDIR)) from error
    except OSError as error:
        raise refusal(error.strerror or str(error)) from error


def check_seconds(option: str, value: float) -> None:
    """Refuse a time that is not a positive number."""
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{option} {value:g}; accepted: a number of seconds above 0")


def is_spec(text: str) -> bool:
    """Whether a text follows the grammar of device specs."""
    try:
        parse_spec(text)
    except InvalidSpec:
        return False
    return True
