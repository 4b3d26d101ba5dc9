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
#: Where a change gains less, copies take about as much time as the ops that it moves.
_WORTH = 1.1


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
) -> None:
    """Check a script with towers: does each op of its training step run where it should, and what would mend it?

    The script runs as with python FILE.py, up to the first call of FUNCTION; the step is then verified with the
    arguments of this call, and the script ends there. Without FUNCTION, the step is looked for: the innermost function
    that uses several devices and writes to variables. The step is compared with itself on the first device, so no
    second program is needed. A FUNCTION in a class is written CLASS.FUNCTION.

    Where the backward ops are misplaced, the step is verified again with colocate_gradients, and on GPUs what this
    gains is measured. With --devices cores:N it is measured on CPU cores in place of the devices that the script names;
    it is verified on those. Writes DIR/run.json and DIR/report.html. The exit code is 0 if the step passes.
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
        sys.stdout.flush()
        # What the script prints belongs to the user.
        answer: dict[str, Any] = ask(Job("harness.script.process:run", arguments), files, stdout=sys.stdout.fileno())
    result = TypeAdapter(CheckResult).validate_python(answer["result"])
    for line in answer["said"]:
        typer.echo(line)
    if mend := answer.get("mend"):
        if answer.get("timed_on"):
            _timed(found, answer, report)
        _print_mend(mend)
        _print_gain(answer, target)
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
    gain = (answer.get("mend") or {}).get("gain")
    recording.add(replace(result, elapsed_s=time.monotonic() - began, scope=() if gain is None else _gained(answer)))
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
    """Time the change on the devices that were asked for, and add what it gains to the answer."""
    from harness.errors import HarnessError
    from harness.runner.ask import ask
    from harness.runner.job import Job, WorkerFiles

    spec = answer["timed_on"]
    typer.echo(f"measuring what the change gains on {spec}")
    arguments: dict[str, object] = {"spec": spec, "file": str(found.path), "function": answer["step"]}
    try:
        timed = ask(Job("harness.script.process:time_change", arguments), WorkerFiles.create(report / "logs", "time"))
    except HarnessError as error:
        answer["mend"]["label"] = f"on {spec}, {str(error).splitlines()[0]}"
    else:
        answer["mend"].update(timed)


def _gained(answer: dict[str, Any]) -> tuple[str, ...]:
    """What the change gains, one line each."""
    from pydantic import TypeAdapter

    from harness.script.gain import Gain

    gain = TypeAdapter(Gain).validate_python(answer["mend"]["gain"])
    found = gain.speedup
    lines = [
        f"Speedup of the step: {found.value:.2f} ({found.lower:.2f} to {found.upper:.2f}), on {answer['mend']['label']}"
    ]
    gained = found.value
    if gain.busiest_s is not None:
        before, after = gain.busiest_s
        gained = max(gained, before / after)
        lines.append(
            f"Other programs use the cores too. By itself, the step is about {before / after:.2f} times as fast: "
            f"the core that works most needs {after * 1e3:,.1f} ms instead of {before * 1e3:,.1f} ms."
        )
    if gained < _WORTH:
        lines.append("Little is gained by a step of this size: give it a batch of the size that you train with.")
    return tuple(lines)


def _print_gain(answer: dict[str, Any], target: str) -> None:
    hint = answer.get("hint")
    if answer["mend"]["gain"] is not None:
        for line in _gained(answer):
            typer.echo(line)
    elif hint is not None:
        typer.echo(
            f"Speedup not measured. On CPU cores in place of the devices: harness check {target} --devices {hint}"
        )
    elif answer["mend"]["label"]:
        typer.echo(f"Speedup not measured: {answer['mend']['label']}")
