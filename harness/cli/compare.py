"""``harness compare``: finds speedups lost between two saved runs, commands or revisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import clear_errors, say
from harness.cli.options import (
    DEFAULT_BASELINES,
    DEFAULT_COMMAND,
    DEFAULT_THRESHOLD,
    BaselinesOption,
    ThresholdOption,
    whole_number,
)
from harness.cli.run_files import folder_of_runs
from harness.errors import UsageError
from harness.extras import require
from harness.plural import plural
from harness.records import ExitCode, Verdict, exit_code

if TYPE_CHECKING:
    from harness.speed.baseline import SavedRun
    from harness.speed.change import Rules
    from harness.speed.gate import Judgement

_PREFIX = "harness-compare-"


def compare(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="BASE.json NEW.json", help="Two runs, saved by pytest-benchmark.")
    ] = None,
    ab: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--ab", metavar="CMD_A CMD_B", help="Two commands that measure speedups, run in the order A B B A."
        ),
    ] = None,
    revisions: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--ab-revisions",
            metavar="REV_A REV_B",
            help="Two git revisions; --command runs in the folder of each, in the order A B B A.",
        ),
    ] = None,
    command: Annotated[
        str,
        typer.Option("--command", metavar="CMD", help="The command that measures each revision's speedups."),
    ] = DEFAULT_COMMAND,
    rounds: Annotated[
        int, typer.Option("--rounds", parser=whole_number, metavar="N", help="How many times to run A B B A.")
    ] = 2,
    threshold: ThresholdOption = DEFAULT_THRESHOLD,
    baselines: BaselinesOption = DEFAULT_BASELINES,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 if the runs cannot tell whether a speedup was lost.")
    ] = False,
) -> None:
    """Compare the speedups of two runs, and report those that were lost.

    Each change has an interval, and a p-value corrected for the number of benchmarks. A command writes its measurements
    to a JSON file, whose path replaces {json} in the command. Without {json}, the path is passed to pytest as
    --benchmark-json, in PYTEST_ADDOPTS. What the commands print goes to a folder, whose path is shown; the folder is
    kept if a command fails, and after ^C if a run has finished.

    Exit codes: 0: no loss was shown; 1: a loss; 2: a usage error or a damaged file; 3: UNKNOWN, not comparable or
    nothing compared. If the runs are too imprecise to tell, a warning says what would settle it, and the code is 0, or
    3 with --strict.
    """
    from harness.report.gate import gate_lines
    from harness.speed.change import Rules
    from harness.speed.options import parse_share

    with clear_errors():
        require("scipy")
        rules = Rules(parse_share(threshold, "--threshold"))
        ways = [way for way in (files, ab, revisions) if way]
        if len(ways) != 1:
            raise UsageError(
                f"{plural(len(ways), 'comparison')} given; accepted: exactly one of these: two files "
                "(BASE.json NEW.json), --ab CMD_A CMD_B, or --ab-revisions REV_A REV_B"
            )
        if ab is not None:
            judgement = _commands(ab, rounds, rules)
        elif revisions is not None:
            judgement = _revisions(revisions, command, rounds, rules)
        else:
            judgement = _files(files or [], baselines, rules)
    for line in gate_lines(judgement):
        typer.echo(line)
    untold = strict and judgement.verdict is Verdict.WARN
    raise typer.Exit(ExitCode.UNKNOWN if untold else exit_code(judgement.verdict))


def _files(files: list[Path], baselines: Path, rules: Rules) -> Judgement:
    from harness.speed.baseline import read_run
    from harness.speed.calibration import load_calibration, variation_of
    from harness.speed.change import UNCALIBRATED
    from harness.speed.gate import judge

    if len(files) != 2:
        raise UsageError(f"{plural(len(files), 'file')} given; accepted: two, BASE.json NEW.json")
    base, new = (read_run(file) for file in files)
    calibration = load_calibration(baselines, new.fingerprint)
    return judge(
        base,
        new.records,
        new.fingerprint,
        rules,
        variation_of(calibration),
        variation=UNCALIBRATED.line if calibration is None else calibration.line,
    )


def _commands(commands: tuple[str, str], rounds: int, rules: Rules) -> Judgement:
    from harness.speed.command import parse_command

    parsed = (parse_command(commands[0]), parse_command(commands[1]))
    with folder_of_runs(_PREFIX) as kept:
        return _in_turn(parsed, (None, None), kept, rounds, rules)


def _revisions(revisions: tuple[str, str], command: str, rounds: int, rules: Rules) -> Judgement:
    from harness.speed.command import parse_command, worktrees

    parsed = parse_command(command)
    with folder_of_runs(_PREFIX) as kept, worktrees(revisions, kept, Path.cwd()) as folders:
        return _in_turn((parsed, parsed), (folders[0], folders[1]), kept, rounds, rules)


def _in_turn(
    commands: tuple[tuple[str, ...], tuple[str, ...]],
    folders: tuple[Path | None, Path | None],
    kept: Path,
    rounds: int,
    rules: Rules,
) -> Judgement:
    from harness.speed.command import measure
    from harness.speed.gate import judge_rounds, order_of

    order = order_of(rounds)
    say(f"{len(order):,} runs in the order A B B A; until they end, their output is in {kept}")
    found: dict[str, list[SavedRun]] = {"A": [], "B": []}
    for number, version in enumerate(order, 1):
        which = "AB".index(version)
        say(f"run {number} of {len(order)}: {version}")
        found[version].append(measure(commands[which], kept / f"{number:02}-{version}.json", folder=folders[which]))
    return judge_rounds(found["A"], found["B"], rules)
