"""``harness fit``: does a step fit into the memory of a device?"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.answers import messages
from harness.cli.endings import Ended
from harness.cli.errors import clear_errors, say
from harness.cli.options import DEFAULT_REPORT, BatchOption, BuildArgument, check_batch, whole_number
from harness.errors import UsageError
from harness.records import ExitCode

if TYPE_CHECKING:
    from harness.advice.peaks import Fit

#: Of the memory that is free on the host, so much is a software GPU's.
_SHARE = 0.6


def fit(
    target: BuildArgument,
    memory: Annotated[
        str | None,
        typer.Option("--memory-per-device", metavar="SIZE", help="The memory of a device, such as 16GiB or 80GB."),
    ] = None,
    devices: Annotated[
        int, typer.Option("--devices", parser=whole_number, metavar="N", help="So many devices share the batch.")
    ] = 1,
    batch: BatchOption = None,
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
    from harness.advice.peaks import Fit
    from harness.report.fit import print_fit
    from harness.report.storage import json_text
    from harness.report.terminal import stdout_console
    from harness.runner.job import Job, WorkerFiles
    from harness.runner.target import Target
    from harness.speed.memory.sizes import parse_size

    with clear_errors():
        if devices < 1:
            raise UsageError(f"--devices {devices}; accepted: 1 or more")
        check_batch(batch)
        most = None if memory is None else parse_size(memory)
        found = Target.parse(target, ACCEPTED)
        files = WorkerFiles.create(DEFAULT_REPORT / "logs", "fit")
        free_mib = _free_mib()
        arguments: dict[str, object] = {
            "spec": f"softgpu:1x{free_mib}",
            "file": str(found.path),
            "function": found.function,
            "batch": batch,
            "shards": devices,
            "predict": predict,
        }
        result = Fit(str(found), "", 0, devices, False, (), 0, most)

        def answer() -> ExitCode:
            if len(result.peaks) < 2 and not result.measured:
                say("UNKNOWN: fewer than two batches were measured; give --batch with fewer rows")
                return ExitCode.UNKNOWN
            if as_json:
                record = {**asdict(result), "interval_bytes": result.interval, "verdict": result.verdict}
                typer.echo(json_text(record))
            else:
                print_fit(stdout_console(), result)
            codes = {"does not fit": ExitCode.FAILURE, "too close to tell": ExitCode.UNKNOWN}
            return codes.get(result.verdict, ExitCode.SUCCESS)

        try:
            with contextlib.closing(messages(Job("harness.advice.fit_process:run", arguments), files)) as news:
                for message in news:
                    if "too_large" in message:
                        raise typer.Exit(_too_large(free_mib << 20, most))
                    result = _with(result, message)
        except Ended:
            answer()
            raise
    raise typer.Exit(answer())


def _with(fit: Fit, message: dict[str, Any]) -> Fit:
    """The same with what the worker process sends, whose peaks are shown as they come."""
    from harness.advice.peaks import Peak
    from harness.plural import plural
    from harness.speed.memory.sizes import size_text

    if "about" in message:
        return replace(fit, **message["about"])
    if "failed" in message:
        say(f"{plural(message['failed']['rows'], 'row')}: not measured: {message['failed']['why']}")
    if "peak" not in message:
        return fit
    held = message["peak"].pop("held_bytes")
    peak = Peak(**message["peak"])
    say(f"{plural(peak.rows, 'row')}: {size_text(peak.size_bytes)}")
    measured = peak.rows == fit.rows_of_a_device
    return replace(fit, peaks=(*fit.peaks, peak), held_bytes=held, measured=measured)


def _too_large(free_bytes: int, most: int | None) -> ExitCode:
    """Say that the program could not even be built here: it fits into no device that is smaller for certain."""
    from harness.advice.peaks import MEASURED_SPREAD
    from harness.speed.memory.sizes import size_text

    what = f"to build it takes more than the {size_text(free_bytes)} that this machine has for a software GPU"
    if most is None or most * (1 + MEASURED_SPREAD) > free_bytes:
        say(f"UNKNOWN: {what}")
        return ExitCode.UNKNOWN
    say(f"FAIL: does not fit: the device has {size_text(most)}, and {what}")
    return ExitCode.FAILURE


def _free_mib() -> int:
    import psutil

    return max(256, int(psutil.virtual_memory().available * _SHARE) >> 20)
