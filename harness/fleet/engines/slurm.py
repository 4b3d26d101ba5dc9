"""Slurm: a job for each idle node, alone on it, at low priority.

Each job names its node. The tasks of one array cannot, and a node on which they fail at once would take them all. What
a job leaves is found in a shared folder, and its end in Slurm's queue, so that no accounting database is needed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from harness.errors import ReportError, UsageError
from harness.fleet.engines.command import EngineError, answer, is_node
from harness.fleet.engines.engine import HERE, Asked, Done, MachineRun
from harness.fleet.engines.slurm_nodes import Slurm
from harness.fleet.store import plain_name
from harness.report.printable import shortened

#: Lower than any job of a user that asks for nothing.
_NICE = 10_000
_POLL_S = 2.0
#: How long a job may wait for a node that was idle, in seconds.
_WAIT_S = 120.0
#: How much longer than its limit a job may be in the queue, in seconds: Slurm ends it some minutes later.
_GRACE_S = 300.0
#: The exit code of timeout(1) for a command that took too long.
_TIMED_OUT = "124:0"
LOG_FILE = "slurm.log"
#: Lines of a job's output that say why it ended.
_SAID = re.compile(r"(?:harness|slurmstepd): error: (.*)")
_END_BYTES = 2**16
#: States in which a job still may run.
_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "RESIZING", "REQUEUED", "STAGE_OUT"}


class SlurmEngine:
    """Idle nodes of a cluster. ``options`` go to sbatch; ``nodes`` are those to use, by default all.

    ``program`` is the harness on the nodes: by default that of this environment, which has to be in a shared folder.
    """

    name = "slurm"
    needs_folder = True

    def __init__(
        self,
        options: Sequence[str] = (),
        nodes: Sequence[str] = (),
        wait_s: float = _WAIT_S,
        program: Sequence[str] = HERE,
    ) -> None:
        self.options, self.nodes, self.wait_s, self.program = tuple(options), tuple(nodes), wait_s, tuple(program)

    def machines(self) -> list[Asked]:
        """Return the nodes; those that are not idle with their state."""
        states = Slurm().states()
        unknown = [node for node in self.nodes if node not in states]
        if unknown:
            raise UsageError(f"--nodes {','.join(unknown)}: unknown to Slurm; sinfo --Node lists the nodes")
        twice = sorted({node for node in self.nodes if self.nodes.count(node) > 1})
        if twice:
            raise UsageError(f"--nodes: {', '.join(twice)} is named twice")
        wanted = [states[node] for node in (self.nodes or sorted(states))]
        if not wanted:
            raise UsageError("Slurm has no nodes")
        return [
            Asked(each.name, "" if each.idle else f"not idle: {each.state}{f' ({each.reason})' if each.reason else ''}")
            for each in wanted
        ]

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        """Return the addresses that Slurm knows (``NodeAddr``)."""
        known = Slurm().addresses()
        return {name: known.get(name, name) for name in machines}

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        """Submit a job for each node, and yield each node when its job has ended."""
        jobs: dict[str, str] = {}
        try:
            for machine in machines:
                try:
                    jobs[self._submit(machine, work)] = machine
                except EngineError as error:
                    yield Done(machine, why=error.why)
            began = time.monotonic()
            longest_s = self.wait_s + work.limit_s + _GRACE_S
            while jobs:
                states = _states(jobs)
                for job, machine in list(jobs.items()):
                    state = states.get(job, "")
                    waited_s = time.monotonic() - began
                    if state == "PENDING" and waited_s > self.wait_s:
                        answer(["scancel", job])
                        del jobs[job]
                        yield Done(machine, why=f"its job did not start within {self.wait_s:g} s: not idle any more")
                    elif state in _ALIVE and waited_s > longest_s:
                        # A node that hangs keeps its job, whatever the time limit of the job.
                        answer(["scancel", job])
                        del jobs[job]
                        yield Done(machine, why=f"no result within {work.limit_s:g} s; its job {job} is {state} still")
                    elif state not in _ALIVE:
                        del jobs[job]
                        yield self._ended(job, machine, work)
                if jobs:
                    time.sleep(_POLL_S)
        finally:
            if jobs:
                with contextlib.suppress(EngineError):
                    answer(["scancel", *jobs])

    def _submit(self, machine: str, work: MachineRun) -> str:
        if not is_node(machine):
            raise EngineError(["sbatch"], "its name cannot be that of a node")
        folder = work.folder.absolute() / plain_name(machine)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ReportError(folder, error.strerror or str(error)) from error
        # The command is ended so that it can still write its record. Slurm, which counts in minutes, ends the rest.
        minutes = max(1, -(-int(work.limit_s) // 60))
        limit = ["timeout", "--kill-after=30", f"{work.limit_s:g}"]
        command = [*limit, *self.program, *work.command, "--quiet", "--report", str(folder), *work.arguments]
        script = f"HARNESS_NODE={shlex.quote(machine)} exec {shlex.join(command)}"
        fixed = {
            "job-name": "harness-fleet",
            "nodelist": machine,
            "nodes": "1",
            "ntasks": "1",
            "nice": str(_NICE),
            "time": str(minutes),
            "output": str(folder / LOG_FILE),
            "wrap": script,
        }
        options = [f"--{name}={value}" for name, value in fixed.items()]
        said = answer(["sbatch", "--parsable", "--exclusive", "--no-requeue", *self.options, *options])
        return said.strip().partition(";")[0]

    def _ended(self, job: str, machine: str, work: MachineRun) -> Done:
        folder = work.folder / plain_name(machine)
        if (folder / work.result).exists():
            return Done(machine)
        try:
            facts = dict(
                word.partition("=")[::2] for word in answer(["scontrol", "--oneliner", "show", "job", job]).split()
            )
        except EngineError:
            facts = {}  # Slurm forgets a job some minutes after its end
        if facts.get("ExitCode") == _TIMED_OUT:
            return Done(machine, why=f"no result within {work.limit_s:g} s")
        why = ", ".join(filter(None, (facts.get("JobState"), facts.get("Reason", "None").replace("None", ""))))
        said = _last_error(folder / LOG_FILE) or f"see {LOG_FILE}"
        return Done(machine, why=f"no record; its job {job} ended: {why or 'unknown to Slurm'}; {said}")


def _last_error(log: Path) -> str:
    """Return the last error in the output of a job, shortened."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
            lines = file.read(_END_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((shortened(found[1], 300) for line in reversed(lines) if (found := _SAID.match(line))), "")


def _states(jobs: dict[str, str]) -> dict[str, str]:
    """Return the states of jobs that are in the queue."""
    found = answer(["squeue", "--noheader", "--states=all", "--format", "%i|%T", "--name=harness-fleet"])
    states = dict(line.strip().split("|", 1) for line in found.splitlines() if "|" in line)
    return {job: states[job] for job in jobs if job in states}
