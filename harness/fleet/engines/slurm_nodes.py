"""The nodes of a Slurm cluster: their states, drained with a reason and resumed."""

from __future__ import annotations

import re

from harness.fleet.engines.command import answer
from harness.fleet.engines.scheduler import OWN, NodeState

#: One line for each node and partition: name, state in full, reason.
_SINFO = ["sinfo", "--noheader", "--Node", "--format", "%N|%T|%E"]
#: What sinfo adds to a state: not responding, powering up and down, in a maintenance reservation, and so on.
_MARKS = re.compile(r"[*~#!%$@^+-]+$")
_OUT = {"drained", "draining", "drain", "down", "fail", "failing", "error", "maint"}


class Slurm:
    """Slurm, through its command line."""

    name = "slurm"

    def states(self) -> dict[str, NodeState]:
        """Return all nodes by name."""
        found: dict[str, NodeState] = {}
        for line in answer(_SINFO).splitlines():
            node, _, rest = line.strip().partition("|")
            given, _, reason = rest.partition("|")
            state = _MARKS.sub("", given)
            silent = given.endswith("*")
            found[node] = NodeState(
                node,
                idle=state == "idle" and not silent,
                out=state in _OUT,
                reason="" if reason == "none" else reason.strip(),
                state=f"{state}, not responding" if silent else state,
            )
        return found

    def addresses(self) -> dict[str, str]:
        """Return the address of each node by its name."""
        lines = answer(["sinfo", "--noheader", "--Node", "--format", "%N|%o"]).splitlines()
        return {node: address for line in lines for node, _, address in [line.strip().partition("|")] if address}

    def take_out(self, node: str, action: str, reason: str) -> list[list[str]]:
        """Return the command that drains a node."""
        return [["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={OWN} {action}: {reason}"]]

    def bring_back(self, node: str) -> list[list[str]]:
        """Return the command that resumes a node."""
        return [["scontrol", "update", f"NodeName={node}", "State=RESUME"]]
