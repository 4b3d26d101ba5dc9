"""``harness profile-machine``: measure what the cards of this machine reach, and keep it as a hardware profile."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import clear_errors
from harness.cli.options import DEFAULT_REPORT, DevicesOption, ReportOption, check_spec, check_writable
from harness.plural import plural

#: Where the profile goes, unless the user says otherwise.
DEFAULT_OUTPUT = Path("hardware-profile.toml")


def profile_machine(
    devices: DevicesOption = "auto",
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE.toml", dir_okay=False, help="Where the profile is written.")
    ] = DEFAULT_OUTPUT,
    report: ReportOption = DEFAULT_REPORT,
) -> None:
    """Measure the rates that this machine's devices reach, and write them as a hardware profile.

    It measures matrix products in each dtype, memory, and copies with the host and between devices, a few times each.
    It takes the fastest time of each device, and writes the median over the devices. Run nothing else meanwhile.
    The file names this machine's devices and the date, and is used in the same way as those in profiles/hardware. Logs
    go to DIR/logs.
    """
    from pydantic import TypeAdapter

    from harness.hardware.profile_rates import Rate
    from harness.hardware.profile_schema import FIGURE_UNITS
    from harness.hardware.profile_writer import profile_not_written, profile_text, write_profile
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles

    with clear_errors():
        check_spec(devices)
        check_writable(output.parent, lambda why: profile_not_written(output, why))
        files = WorkerFiles.create(report / "logs", "profile-machine")
        answer = ask(Job("harness.hardware.profile_rates:run", {"spec": devices}), files)
        rates = TypeAdapter(list[Rate]).validate_python(answer["rates"])
        name, cards = str(answer["name"]), TypeAdapter(list[str]).validate_python(answer["cards"])
        note = f"{plural(len(cards), 'device')}: {', '.join(cards)}; --devices {devices}"
        date = datetime.now(timezone.utc).date().isoformat()
    typer.echo(f"{name}, {note}")
    for rate in rates:
        unit = FIGURE_UNITS[rate.figure]
        typer.echo(f"{rate.figure:<24} {rate.value:>12.4g} {unit:<10} (median {rate.median:.4g})")
    with clear_errors():
        write_profile(output, profile_text(f"{name}, measured", [name], rates, date=date, note=note))
    typer.echo(f"Profile: {output}")
