"""``harness validate``: run the checks, show them, record them."""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness import __version__
from harness.checking.check import Level
from harness.cli.endings import Ended
from harness.cli.errors import clear_errors, code_of, exit_code, refuse, say
from harness.cli.options import (
    DEFAULT_REPORT,
    DevicesOption,
    FakeOption,
    ProfilesOption,
    ReportOption,
    check_seconds,
    check_spec,
    number,
    spec_of,
)
from harness.cli.suite import suite, suite_reference
from harness.devices.host import read_host
from harness.errors import HarnessError, RefusedByWorker
from harness.report.storage import load_run
from harness.runner.limits import DEEP_TIMEOUT_S, DEFAULT_TIMEOUT_S
from harness.tensorflow_version import untested

if TYPE_CHECKING:
    from rich.console import Console

    from harness.checking.check import Check
    from harness.checking.run import Plan
    from harness.judgement.known_failures import KnownFailure
    from harness.judgement.requirements import Requirement
    from harness.records import CheckResult
    from harness.report.recording import RunRecording
    from harness.runner.messages import Ready


@dataclass(frozen=True)
class Request:
    """The checks to run, and how they are judged."""

    checks: tuple[Check, ...]
    spec: str
    level: Level
    timeout_s: float
    required: tuple[Requirement, ...]
    known: tuple[KnownFailure, ...]
    history: tuple[str, ...]

    def replayed(self, result: CheckResult) -> CheckResult:
        """Add the command that runs the check alone again."""
        words = ["harness", "validate", "--devices", self.spec, "--only", result.check, "--level", str(self.level)]
        return replace(result, replay=shlex.join(words))

    def plan(self, logs: Path) -> Plan:
        """What to run, and what in a second process."""
        from harness.checking.run import Plan, has_idle_core, shared_out

        timed = tuple(check.id for check in self.checks if check.timed)
        # In a second process are checks of logical CPUs alone, which share their threads: ``quick`` judges no rates.
        share = has_idle_core(self.spec)
        alone = () if share and self.level is Level.QUICK and not self.history else timed
        return Plan(
            self.spec,
            tuple(check.id for check in self.checks),
            logs,
            suite_reference(),
            self.timeout_s,
            level=self.level,
            history=self.history,
            beside=shared_out(self.checks, alone) if share else (),
            alone=alone,
        )


def _level(given: object) -> Level:
    try:
        return Level(str(given))
    except ValueError:
        raise typer.BadParameter(f"{given!r}; accepted: {', '.join(map(str, Level))}") from None


def validate(
    devices: DevicesOption = "auto",
    report: ReportOption = DEFAULT_REPORT,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="Run only this check; may be repeated.")
    ] = None,
    level: Annotated[
        Level,
        typer.Option(
            "--level",
            parser=_level,
            metavar="[quick|standard|deep]",
            help="quick, standard (more checks and examples) or deep (the most).",
        ),
    ] = Level.QUICK,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=number,
            metavar="S",
            help="Time limit of a check, in seconds (default: 120; with --level deep, 3600).",
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require", metavar="REQ", help="gpu=N, core=N or device=N: FAIL at once if the machine has fewer than N."
        ),
    ] = None,
    known_failures: Annotated[
        Path | None,
        typer.Option("--known-failures", metavar="FILE", dir_okay=False, help="A TOML file of failures to accept."),
    ] = None,
    history: Annotated[
        list[Path] | None,
        typer.Option(
            "--history",
            metavar="RUN.json",
            dir_okay=False,
            help="An earlier run to compare rates with; may be repeated.",
        ),
    ] = None,
    profiles: ProfilesOption = None,
    fake: FakeOption = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Leave host names, serial numbers and UUIDs out of the record.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the verdict.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only run.json.")] = False,
) -> None:
    """Check that this machine runs multi-device TensorFlow correctly.

    Prints a table and writes DIR/run.json, report.html, report.md and junit.xml. TensorFlow's output goes to DIR/logs.
    """
    from harness.hardware.profile import use_profiles
    from harness.judgement.requirements import Requirement

    with clear_errors():
        use_profiles(profiles)
        limit_s = _time_limit(timeout, level)
        spec = spec_of(devices, fake)
        check_spec(spec)
        checks = suite().select(only or (), level)
        request = Request(
            checks=tuple(check for check in checks if fake is None or only or check.hardware),
            spec=spec,
            level=level,
            timeout_s=limit_s,
            required=tuple(Requirement.parse(text) for text in require or ()),
            known=_known(known_failures),
            history=_history(history or ()),
        )
    output = _Output(quiet=quiet, as_json=as_json)
    recording, logs = _begun(request, report, anonymous=anonymous)
    try:
        _run(request, logs, output.console, recording)
    except Ended as ended:
        recording.cut_short(ended.exit_code)
        output.show(recording)
        raise
    except HarnessError as error:
        if not _absence(error, request, recording):
            recording.cut_short(exit_code(error), str(error))
            if recording.record.results or as_json:
                output.show(recording)
            refuse(error)
        say(f"error: {error}")
    output.show(recording)
    raise typer.Exit(code_of(recording))


class _Output:
    """Prints what ``--quiet`` and ``--json`` ask for."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        from harness.report.terminal import stdout_console

        self.console = stdout_console()
        self.console.quiet = quiet or as_json
        self._quiet, self._as_json = quiet, as_json

    def show(self, recording: RunRecording) -> None:
        """Print the record: as a table, the verdict alone, or JSON."""
        from harness.report.terminal import print_report, print_verdict

        print_report(self.console, recording.record, recording.path, recording.page)
        if recording.no_page is not None:
            say(f"report.html was not written: {recording.no_page}")
        self.console.quiet = False
        if self._as_json:
            typer.echo(recording.text)
        elif self._quiet:
            print_verdict(self.console, recording.record)


def _begun(request: Request, report: Path, *, anonymous: bool) -> tuple[RunRecording, Path]:
    """Begin the record, and return it with the folder for the logs: another one, where the report's is not writable."""
    from harness.report.recording import RunRecording

    recording = RunRecording(
        report,
        harness=__version__,
        command=tuple(sys.argv),
        spec=request.spec,
        planned=tuple(check.id for check in request.checks),
        level=request.level.value,
        host=read_host(),
        without_names=anonymous,
    )
    if recording.problem is None:
        return recording, report / "logs"
    logs = Path(tempfile.mkdtemp(prefix="harness-logs-"))
    say(f"error: {recording.problem}; continuing without a record; logs are in {logs}")
    return recording, logs


def _run(request: Request, logs: Path, console: Console, recording: RunRecording) -> None:
    """Run the checks, and show and record the result of each."""
    from harness.checking.run import run_checks
    from harness.checking.stations import MissingLibraries, through
    from harness.hardware.watch import CardWatch
    from harness.judgement.known_failures import accept_known, no_longer_failing
    from harness.report.progress import display
    from harness.report.publish import load_ahead
    from harness.runner.messages import Finished, Ready, Started

    watch = CardWatch()
    today = datetime.now(timezone.utc).date()
    accepted = partial(accept_known, known=request.known, today=today)
    stations = (request.replayed, watch.judged, MissingLibraries().judged, accepted)
    plan = request.plan(logs)
    by_id, alone = {check.id: check for check in suite().checks}, set(plan.alone)
    durations = [check.typical_s for check in request.checks]
    with display(console, durations) as shown, contextlib.closing(run_checks(plan)) as events:
        for event in events:
            if isinstance(event, Ready) and recording.record.fingerprint is None:
                if (warning := untested(event.fingerprint.tensorflow or "")) is not None:
                    say(f"warning: {warning}")
                watch.cards_are(event.cards)
                recording.devices_are(event.reason, event.fingerprint, event.cards, described=event.described)
                shown.note(f"devices: {event.reason or request.spec}")
                if _missing(request, recording, event):
                    return
            elif isinstance(event, Started):
                check = by_id[event.check]
                shown.started(check.id, check.title, check.typical_s)
            elif isinstance(event, Finished):
                result = through(event.result, stations)
                recording.add(result)
                shown.finished(result)
                alone.discard(result.check)
                if not alone:
                    load_ahead()
    recording.complete(no_longer_failing(request.known, recording.record.results))


def _missing(request: Request, recording: RunRecording, ready: Ready | None, why: str = "") -> bool:
    """Record a FAIL where required hardware is missing, and return whether nothing more is to be done.

    ``ready`` is ``None`` where nothing could be configured. Without a device, checks still say why there is none.
    """
    from harness.judgement.requirements import absent, unmet

    wrong = unmet(request.required, ready.devices if ready else (), ready.fingerprint if ready else None)
    if wrong:
        lost = [f"{card.label} cannot be used: {card.error}" for card in (ready.cards if ready else ()) if card.error]
        if ready is not None and not ready.devices:
            recording.add(absent(wrong, request.spec, ready.reason))
            return False
        recording.add(absent(wrong, request.spec, why or "; ".join(lost)))
        recording.complete()
    return bool(wrong)


def _absence(error: HarnessError, request: Request, recording: RunRecording) -> bool:
    """Record a FAIL where the unavailable devices are required hardware; return whether they are."""
    from harness.errors import DevicesUnavailable

    name = error.error if isinstance(error, RefusedByWorker) else type(error).__name__
    return name == DevicesUnavailable.__name__ and _missing(request, recording, None, str(error))


def _history(paths: list[Path] | tuple[Path, ...]) -> tuple[str, ...]:
    """Read earlier runs now, so that a damaged file is an error before anything starts."""
    for path in paths:
        load_run(path)
    return tuple(str(path.absolute()) for path in paths)


def _known(path: Path | None) -> tuple[KnownFailure, ...]:
    if path is None:
        return ()
    from harness.judgement.known_failures import load_known_failures

    return load_known_failures(path, suite().ids)


def _time_limit(timeout: float | None, level: Level) -> float:
    if timeout is None:
        return DEEP_TIMEOUT_S if level is Level.DEEP else DEFAULT_TIMEOUT_S
    check_seconds("--timeout", timeout)
    return timeout
