"""``harness calibrate``: measures how often the gate raises false alarms on this machine, and what it detects."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from harness.cli.errors import clear_errors, say
from harness.cli.options import (
    DEFAULT_BASELINES,
    DEFAULT_COMMAND,
    DEFAULT_THRESHOLD,
    BaselinesOption,
    ThresholdOption,
    check_writable,
    whole_number,
)
from harness.cli.run_files import folder_of_runs
from harness.errors import UsageError
from harness.extras import require


def calibrate(
    runs: Annotated[
        int,
        typer.Option(
            "--runs", parser=whole_number, metavar="N", help="How many runs of the same code, each in its own process."
        ),
    ] = 20,
    command: Annotated[
        str,
        typer.Option(
            "--command", metavar="CMD", help="The command that measures speedups; {json} stands for its JSON file."
        ),
    ] = DEFAULT_COMMAND,
    threshold: ThresholdOption = DEFAULT_THRESHOLD,
    baselines: BaselinesOption = DEFAULT_BASELINES,
) -> None:
    """Run the same code several times and compare every run with every later one.

    The calibration goes to DIR/KEY/calibration.json, where KEY names this hardware and software. Every comparison uses
    the calibration and prints its figures. Calibrate again when the machine, TensorFlow or the benchmarks change.
    """
    from harness.speed import calibration
    from harness.speed.calibration import save_calibration
    from harness.speed.change import Rules
    from harness.speed.command import measure, parse_command
    from harness.speed.options import parse_share

    with clear_errors():
        require("scipy")
        if runs < calibration.FEWEST_RUNS:
            raise UsageError(f"--runs {runs}; accepted: {calibration.FEWEST_RUNS} or more (20 give a better estimate)")
        rules, parsed = Rules(parse_share(threshold, "--threshold")), parse_command(command)
        check_writable(
            baselines,
            lambda why: UsageError(f"--baselines {baselines} cannot be written: {why}; name another folder"),
        )
        measured = []
        with folder_of_runs("harness-calibrate-") as kept:
            say(f"{runs} runs; until they end, their output is in {kept}")
            for number in range(1, runs + 1):
                say(f"run {number} of {runs}")
                measured.append(measure(parsed, kept / f"{number:03}.json"))
        made = calibration.calibrate(measured, rules, made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"))
    for name, each in made.benchmarks.items():
        typer.echo(f"{name}: speedup {each.speedup:.3f}, ± {each.sigma:.2%} from run to run")
    typer.echo(made.line)
    with clear_errors():
        path = save_calibration(made, baselines)
    typer.echo(f"calibration: {path}")
