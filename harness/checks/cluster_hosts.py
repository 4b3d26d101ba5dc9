"""Other hosts: three servers on loopback are three hosts to TensorFlow, and pass checks that one process passes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.checking.tally import Tally
from harness.records import CheckResult, Finding, Verdict
from harness.runner.own_command import command_line

HOSTS = 3
#: Checks that a single process passes too.
CHECKS = ("vector-add", "gradient-colocation", "pipeline")
#: How long the hosts may take to start, and the checks on them, in seconds.
START_S, LIMIT_S = 40.0, 75.0


def run(context: CheckContext) -> CheckOutcome:  # noqa: ARG001 - it has hosts of its own
    """Start the hosts, run the checks on them, and take over what these exercised and found."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="harness-cluster-") as folder, _serving(HOSTS) as addresses:
        if len(addresses) < HOSTS:
            tally.found(_wrong("harness serve", f"{HOSTS} addresses within {START_S:g} s", f"{len(addresses)}"))
            return tally.outcome("", "run harness serve by hand, and read what it says")
        only = [part for check in CHECKS for part in ("--only", check)]
        spec = "cluster:" + ",".join(addresses)
        command = command_line("validate", "--devices", spec, *only, "--report", folder)
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            tally.found(_wrong("harness validate", f"an end within {LIMIT_S:g} s", "none"))
            return tally.outcome("", "start three hosts by hand, and run the checks on them")
        results = _results(Path(folder))
        if not results:
            tally.found(_wrong("harness validate", "results", done.stderr.strip() or f"exit code {done.returncode}"))
        for result in results:
            tally.count(result.exercised)
            tally.found(*result.findings)
            if result.verdict in (Verdict.UNKNOWN, Verdict.SKIP):
                tally.unproven(f"{result.check} on {HOSTS} hosts: {result.reason}")
    return tally.outcome(
        f"{', '.join(CHECKS)} passed on {HOSTS} hosts of this machine, each op proven on its host",
        "the finding names the host; docs/cluster.md says what can be wrong with one",
    )


def _results(folder: Path) -> Sequence[CheckResult]:
    from pydantic import TypeAdapter

    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return TypeAdapter(tuple[CheckResult, ...]).validate_python(record["results"])


@contextmanager
def _serving(count: int) -> Iterator[list[str]]:
    """The addresses of ``count`` hosts, or of those that start in time. They are gone at the end."""
    started = [
        subprocess.Popen(
            command_line("serve"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        for _ in range(count)
    ]
    try:
        deadline = time.monotonic() + START_S
        yield [address for process in started if (address := _address(process, deadline))]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _address(process: subprocess.Popen[str], deadline: float) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
    return process.stdout.readline().strip() if ready else ""


def _wrong(where: str, expected: str, found: str) -> Finding:
    return Finding("error", where, None, expected, found, f"{where}: expected {expected}, found {found}")


CHECK = Check(
    id="cluster",
    title="three hosts on loopback",
    proves="devices of other hosts pass the data-parallel and pipeline checks that one process passes, each op proven "
    "on its host",
    minimum_devices=1,
    typical_s=25,
    run=run,
    level=Level.STANDARD,
)
