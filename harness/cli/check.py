"""``harness check``: is the step of a script right, and what would mend it?"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.errors import clear_errors, say
from harness.cli.options import DEFAULT_REPORT, ReportOption, check_report, check_spec
from harness.errors import InvalidTarget
from harness.records import exit_code

if TYPE_CHECKING:
    from harness.runner.target import Target

_ACCEPTED = "or FILE.py alone"
#: What a verdict without a second program does not say.
_BEYOND = (
    "Tested: the values of this call, against the same step on one device. To compare it with one model on the whole\n"
    "batch, and to prove it for every input: harness.verify(step, reference, inputs, devices=devices)"
)


def check_script(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE.py[:FUNCTION]", help="A script, and the step in it that uses several devices."),
    ],
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            metavar="SPEC",
            help="Devices to configure before the script runs (default: those that the script configures or names).",
        ),
    ] = None,
    report: ReportOption = DEFAULT_REPORT,
    speed: Annotated[
        bool,
        typer.Option("--speed/--no-speed", help="Whether to time the step, where each device computes by itself."),
    ] = True,
) -> None:
    """Check a script with towers: does each op of its training step run where it should, and what would mend it?

    The script runs as with python FILE.py, up to the first call of FUNCTION; the step is then verified with the
    arguments of this call, and the script ends there. Without FUNCTION, the step is looked for: the innermost function
    that uses several devices and writes to variables. The step is compared with itself on the first device, so no
    second program is needed. A FUNCTION in a class is written CLASS.FUNCTION.

    Where the backward ops are misplaced, the step is verified again with colocate_gradients, and on GPUs what this
    gains is measured; of a step that passes, what several GPUs gain over one. With --devices cores:N this is measured
    on CPU cores in place of the devices that the script names; the step is verified on those. Writes DIR/run.json and
    DIR/report.html. The exit code is 0 if the step passes.
    """
    from dataclasses import replace

    from pydantic import TypeAdapter

    from harness import __version__
    from harness.records import CheckResult, Fingerprint
    from harness.report.recording import RunRecording
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles
    from harness.script.capture import decorated

    began = time.monotonic()
    with clear_errors():
        if devices is not None:
            check_spec(devices)
        found = _script(target)
        decorated(found)  # before TensorFlow is imported, which takes seconds
        check_report(report)
        files = WorkerFiles.create(report / "logs", "check")
        arguments: dict[str, object] = {"spec": devices, "file": str(found.path), "function": found.function}
        arguments["speed"] = speed
        sys.stdout.flush()
        # What the script prints belongs to the user.
        answer: dict[str, Any] = ask(Job("harness.script.process:run", arguments), files, stdout=sys.stdout.fileno())
    result = TypeAdapter(CheckResult).validate_python(answer["result"])
    for line in answer["said"]:
        typer.echo(line)
    mend = answer.get("mend")
    if answer.get("timed_on"):
        _timed(found, answer, report)
    if mend:
        _print_mend(mend)
    gained = _gained(answer)
    for line in gained or _not_timed(answer, target):
        typer.echo(line)
    if answer["compared"]:
        typer.echo(_BEYOND)
    recording = RunRecording(
        report,
        harness=__version__,
        command=("harness", *sys.argv[1:]),
        spec=str(answer["spec"]),
        planned=(result.check,),
        level="",
        earlier_s=time.monotonic() - began,
    )
    recording.devices_are(str(answer["reason"]), TypeAdapter(Fingerprint).validate_python(answer["fingerprint"]))
    recording.add(replace(result, elapsed_s=time.monotonic() - began, scope=gained))
    recording.complete()
    if recording.problem is not None:
        say(f"error: {recording.problem}")
    for name, path in (("Record", recording.path), ("Report", recording.page)):
        if path is not None:
            typer.echo(f"{name}: {path}")
    raise typer.Exit(exit_code(result.verdict))


def _script(text: str) -> Target:
    from harness.runner.target import Target

    if not text.endswith(".py"):
        return Target.parse(text, _ACCEPTED)
    path = Path(text)
    if not path.is_file():
        raise InvalidTarget(
            text, f"there is no file {text}" if not path.exists() else f"{text} is not a file", _ACCEPTED
        )
    return Target(path.resolve(), "")


def _print_mend(mend: dict[str, Any]) -> None:
    rest = {"FAIL": ", but not all", "UNKNOWN": ""}
    mended = "it" if mend["verdict"] not in rest else f"the gradients{rest[mend['verdict']]}"
    typer.echo("")
    typer.echo(f"This change mends {mended}:")
    for line in mend["lines"]:
        typer.echo(f"  {line}")
    typer.echo(f"With it, {mend['verdict']}: {mend['reason']}")


def _timed(found: Target, answer: dict[str, Any], report: Path) -> None:
    """Time the step on the devices that were asked for, and add what is gained to the answer."""
    from harness.errors import HarnessError
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles

    spec, change = answer["timed_on"], "mend" in answer
    typer.echo(f"measuring what the change gains on {spec}" if change else f"measuring its speed on {spec}")
    arguments: dict[str, object] = {"spec": spec, "file": str(found.path), "function": answer["step"], "change": change}
    try:
        timed = ask(Job("harness.script.process:time_step", arguments), WorkerFiles.create(report / "logs", "time"))
    except HarnessError as error:
        answer["label"] = f"on {spec}, {str(error).splitlines()[0]}"
    else:
        answer.update(timed)


def _gained(answer: dict[str, Any]) -> tuple[str, ...]:
    """What the change gains, or else what several devices gain over one, one line each; empty where not measured."""
    from pydantic import TypeAdapter

    from harness.script.gain import Gain, gain_lines

    if answer.get("gain") is None:
        return ()
    mend = answer.get("mend")
    lines = gain_lines(TypeAdapter(Gain).validate_python(answer["gain"]), answer["label"], change=mend is not None)
    open_values = mend is not None and mend["verdict"] == "UNKNOWN"
    return (*lines, "The values of the changed step are not verified.") if open_values else lines


def _not_timed(answer: dict[str, Any], target: str) -> tuple[str, ...]:
    if hint := answer.get("hint"):
        said = "Speedup not measured. On CPU cores in place of the devices: harness check"
        return (f"{said} {target} --devices {hint}",)
    return (f"Speedup not measured: {answer['label']}",) if answer.get("label") else ()
