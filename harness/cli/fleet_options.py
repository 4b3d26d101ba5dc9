"""The options that several commands of ``harness fleet`` have."""

from __future__ import annotations

import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.fleet.engines.engine import Engine
    from harness.fleet.policy import Policy
    from harness.fleet.store import Store

HostsOption = Annotated[
    Path | None, typer.Option("--hosts", metavar="FILE", help="Over ssh: a file with a host in each line.")
]
SlurmOption = Annotated[bool, typer.Option("--slurm", help="The idle nodes of the Slurm cluster.")]
RayOption = Annotated[str | None, typer.Option("--ray", metavar="ADDRESS", help="The nodes of a Ray cluster.")]
NodesOption = Annotated[str | None, typer.Option("--nodes", metavar="A,B", help="With --slurm: only these nodes.")]
SbatchOption = Annotated[
    str, typer.Option("--sbatch", metavar="OPTIONS", help="With --slurm: options of sbatch, as one text.")
]
SshOption = Annotated[
    str | None, typer.Option("--ssh", metavar="COMMAND", help="With --hosts: the ssh command with its options.")
]
ProgramOption = Annotated[
    str, typer.Option("--program", metavar="COMMAND", help="With --hosts: the harness on the hosts.")
]
DEFAULT_STORE = "fleet"
StoreOption = Annotated[
    str, typer.Option("--store", metavar="DIR", help="The folder with the records of all machines, or its URL.")
]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", dir_okay=False, help="The policy of the site, in TOML.")
]
AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", metavar="DATE", help="Judge as on this day, such as 2027-01-31 (default: today)."),
]


def moment(given: str | None) -> datetime:
    """Return the end of a day, or now."""
    if given is None:
        return datetime.now(timezone.utc)
    from harness.fleet.seen import parse_time

    made = parse_time(given)
    if made is None:
        raise UsageError(f"--as-of {given!r}; accepted: a date, such as 2027-01-31")
    return made


def opened(place: str, policy: Path | None) -> tuple[Store, Policy]:
    """Open the store and read the policy, both before anything is done."""
    from harness.fleet.policy import load_policy
    from harness.fleet.store import Store

    return Store(place), load_policy(policy)


def engine_of(
    hosts: Path | None, slurm: bool, ray: str | None, nodes: str | None, sbatch: str, ssh: str | None, program: str
) -> Engine:
    """Make the engine that is named: exactly one."""
    from harness.extras import require
    from harness.fleet.engines.hosts import SSH, Hosts
    from harness.fleet.engines.ray import RayEngine
    from harness.fleet.engines.slurm import SlurmEngine

    given = [name for name, value in (("--hosts", hosts), ("--slurm", slurm), ("--ray", ray)) if value]
    if len(given) != 1:
        raise UsageError(
            f"{' and '.join(given) or 'no engine given'}; accepted: one of --hosts FILE, --slurm, --ray ADDRESS"
        )
    if hosts is not None:
        return Hosts(hosts, ssh or SSH, program)
    if ray is not None:
        require("ray")
        return RayEngine(ray)
    return SlurmEngine(shlex.split(sbatch), nodes.split(",") if nodes else ())
