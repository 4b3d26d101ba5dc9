"""Slurm: a job for each idle node, alone on it, at low priority.

Each job names its node. The tasks of one array cannot, and a node on which they fail at once would take them all. What
a job leaves is found in a shared folder, and its end in Slurm's queue, so that no accounting database is needed.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Generator, Sequence

from harness.errors import UsageError
from harness.fleet.engines.command import EngineError, answer, is_node
from harness.fleet.engines.engine import Asked, Done, MachineRun
from harness.fleet.engines.slurm_nodes import Slurm
from harness.fleet.store import plain_name

#: Lower than any job of a user that asks for nothing.
_NICE = 10_000
_POLL_S = 2.0
#: How long a job may wait for a node that was idle, in seconds.
_WAIT_S = 120.0
#: States in which a job still may run.
_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "RESIZING", "REQUEUED", "STAGE_OUT"}


class SlurmEngine:
    """Idle nodes of a cluster. ``options`` go to sbatch; ``nodes`` are those to use, by default all.

    ``program`` is the harness on the nodes: by default that of this environment, which has to be in a shared folder.
    """

    name = "slurm"

    def __init__(
        self,
        options: Sequence[str] = (),
        nodes: Sequence[str] = (),
        wait_s: float = _WAIT_S,
        program: Sequence[str] = (sys.executable, "-m", "harness"),
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
            deadline = time.monotonic() + self.wait_s
            while jobs:
                states = _states(jobs)
                for job, machine in list(jobs.items()):
                    state = states.get(job, "")
                    if state == "PENDING" and time.monotonic() > deadline:
                        answer(["scancel", job])
                        del jobs[job]
                        yield Done(machine, why=f"its job did not start within {self.wait_s:g} s: not idle any more")
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
        folder.mkdir(parents=True, exist_ok=True)
        minutes = max(1, -(-int(work.limit_s) // 60))
        command = [*self.program, *work.command, "--quiet", "--report", str(folder), *work.arguments]
        script = f"HARNESS_NODE={shlex.quote(machine)} exec {shlex.join(command)}"
        fixed = {
            "job-name": "harness-fleet",
            "nodelist": machine,
            "nodes": "1",
            "ntasks": "1",
            "nice": str(_NICE),
            "time": str(minutes),
            "output": str(folder / "slurm.log"),
            "wrap": script,
        }
        options = [f"--{name}={value}" for name, value in fixed.items()]
        said = answer(["sbatch", "--parsable", "--exclusive", "--no-requeue", *self.options, *options])
        return said.strip().partition(";")[0]

    def _ended(self, job: str, machine: str, work: MachineRun) -> Done:
        if (work.folder / plain_name(machine) / work.result).exists():
            return Done(machine)
        try:
            facts = dict(
                word.partition("=")[::2] for word in answer(["scontrol", "--oneliner", "show", "job", job]).split()
            )
        except EngineError:
            facts = {}  # Slurm forgets a job some minutes after its end
        why = ", ".join(filter(None, (facts.get("JobState"), facts.get("Reason", "None").replace("None", ""))))
        return Done(machine, why=f"no record; its job {job} ended: {why or 'unknown to Slurm'}; see slurm.log")


def _states(jobs: dict[str, str]) -> dict[str, str]:
    """Return the states of jobs that are in the queue."""
    found = answer(["squeue", "--noheader", "--states=all", "--format", "%i|%T", "--name=harness-fleet"])
    states = dict(line.strip().split("|", 1) for line in found.splitlines() if "|" in line)
    return {job: states[job] for job in jobs if job in states}
