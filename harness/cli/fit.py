"""``harness fit``: does a step fit into the memory of a device?"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, replace
from typing import Annotated

import typer

from harness.cli.errors import clear_errors, say
from harness.cli.options import DEFAULT_REPORT, whole_number
from harness.errors import UsageError
from harness.records import ExitCode

#: Of the memory that is free on the host, so much is a software GPU's.
_SHARE = 0.6


def fit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:BUILD",
            help="BUILD() returns (model, x, y): a Keras model and an example batch; or (fn, inputs) or "
            "(fn, inputs, variables): a function and the arrays of a batch.",
        ),
    ],
    memory: Annotated[
        str | None,
        typer.Option("--memory-per-device", metavar="SIZE", help="The memory of a device, such as 16GiB or 80GB."),
    ] = None,
    devices: Annotated[
        int, typer.Option("--devices", parser=whole_number, metavar="N", help="So many devices share the batch.")
    ] = 1,
    batch: Annotated[
        int | None,
        typer.Option("--batch", parser=whole_number, metavar="N", help="Repeat or cut the example batch to N rows."),
    ] = None,
    predict: Annotated[
        bool, typer.Option("--predict", help="Run at most half of the batch, and predict the rest from smaller ones.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Measure the memory that a step needs on a device, and say what would make it fit.

    The step runs on a software GPU, with an eighth, a quarter, a half and all of the batch: TensorFlow's allocator
    gives the peak of each. Where this machine cannot hold the whole batch, its peak is predicted from the smaller ones.
    A step of a compiled model is a training step with its loss and optimizer, of another one a forward pass.

    Exit codes: 0 it fits (or no size was given), 1 it does not, 2 wrong usage, 3 too close to tell, or not measured.
    """
    from harness.advice.built import ACCEPTED
    from harness.advice.fitting import Fit, Peak
    from harness.cli.advise import messages
    from harness.report.fit import print_fit
    from harness.report.storage import json_text
    from harness.report.terminal import stdout_console
    from harness.runner.job import Job, WorkerFiles
    from harness.runner.target import Target
    from harness.speed.memory.sizes import parse_size

    with clear_errors():
        if devices < 1:
            raise UsageError(f"--devices {devices}; accepted: 1 or more")
        if batch is not None and batch < 1:
            raise UsageError(f"--batch {batch}; accepted: 1 or more")
        most = None if memory is None else parse_size(memory)
        found = Target.parse(target, ACCEPTED)
        files = WorkerFiles.create(DEFAULT_REPORT / "logs", "fit")
        arguments: dict[str, object] = {
            "spec": f"softgpu:1x{_free_mib()}",
            "file": str(found.path),
            "function": found.function,
            "batch": batch,
            "shards": devices,
            "predict": predict,
        }
        result = Fit(str(found), "", 0, devices, False, (), 0, most)
        with contextlib.closing(messages(Job("harness.advice.fit_process:run", arguments), files)) as news:
            for message in news:
                if "about" in message:
                    result = replace(result, **message["about"])
                elif "peak" in message:
                    held = message["peak"].pop("held_bytes")
                    peak = Peak(**message["peak"])
                    result = replace(
                        result,
                        peaks=(*result.peaks, peak),
                        held_bytes=held,
                        measured=peak.rows == result.rows_of_a_device,
                    )
                    say(f"{peak.rows:,} rows: {peak.size_bytes / 2**20:,.4g} MiB")
    if not result.peaks or (len(result.peaks) < 2 and not result.measured):
        say("UNKNOWN: this machine cannot hold a quarter of the batch; give --batch with fewer rows")
        raise typer.Exit(ExitCode.UNKNOWN)
    if as_json:
        typer.echo(json_text({**asdict(result), "interval_bytes": result.interval, "verdict": result.verdict}))
    else:
        print_fit(stdout_console(), result)
    codes = {"does not fit": ExitCode.FAILURE, "too close to tell": ExitCode.UNKNOWN}
    raise typer.Exit(codes.get(result.verdict, ExitCode.SUCCESS))


def _free_mib() -> int:
    import psutil

    return max(256, int(psutil.virtual_memory().available * _SHARE) >> 20)
