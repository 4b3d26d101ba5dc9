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
    from harness.fleet.files import Files
    from harness.fleet.policy import Policy
    from harness.fleet.store import Store

HostsOption = Annotated[
    Path | None, typer.Option("--hosts", metavar="FILE", help="Over ssh: a file with a host in each line.")
]
SlurmOption = Annotated[bool, typer.Option("--slurm", help="The idle nodes of the Slurm cluster.")]
RayOption = Annotated[str | None, typer.Option("--ray", metavar="ADDRESS", help="The nodes of a Ray cluster.")]
KubernetesOption = Annotated[
    str | None,
    typer.Option("--kubernetes", metavar="IMAGE", help="The nodes of kubectl's cluster, in pods with this image."),
]
NodesOption = Annotated[
    str | None, typer.Option("--nodes", metavar="A,B", help="With --slurm and --kubernetes: only these nodes.")
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", metavar="NAME", help="With --kubernetes: the namespace of the pods.")
]
SelectorOption = Annotated[
    str, typer.Option("--selector", metavar="KEY=VALUE,…", help="With --kubernetes: only nodes with these labels.")
]
SharedOption = Annotated[
    Path | None,
    typer.Option(
        "--shared",
        metavar="DIR",
        file_okay=False,
        help="With --slurm: the folder that the nodes write to, if it is not the store; needed where that is a URL.",
    ),
]
SbatchOption = Annotated[
    str, typer.Option("--sbatch", metavar="OPTIONS", help="With --slurm: options of sbatch, as one text.")
]
SshOption = Annotated[
    str | None, typer.Option("--ssh", metavar="COMMAND", help="With --hosts: the ssh command with its options.")
]
ProgramOption = Annotated[
    str | None, typer.Option("--program", metavar="COMMAND", help="The harness on the machines, if not found as here.")
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
    hosts: Path | None,
    slurm: bool,
    ray: str | None,
    kubernetes: str | None,
    *,
    nodes: str | None,
    sbatch: str,
    namespace: str,
    selector: str,
    ssh: str | None,
    program: str | None,
) -> Engine:
    """Make the engine that is named: exactly one."""
    from harness.extras import require
    from harness.fleet.engines.engine import HERE
    from harness.fleet.engines.hosts import SSH, Hosts
    from harness.fleet.engines.kubernetes import KubernetesEngine
    from harness.fleet.engines.ray import RayEngine
    from harness.fleet.engines.slurm import SlurmEngine

    engines = {"--hosts FILE": hosts, "--slurm": slurm, "--ray ADDRESS": ray, "--kubernetes IMAGE": kubernetes}
    given = [name.partition(" ")[0] for name, value in engines.items() if value]
    if len(given) != 1:
        raise UsageError(f"{' and '.join(given) or 'no engine given'}; accepted: one of {', '.join(engines)}")
    wanted = nodes.split(",") if nodes else ()
    own = None if program is None else shlex.split(program)
    if hosts is not None:
        return Hosts(hosts, ssh or SSH, program or "harness")
    if ray is not None:
        require("ray")
        return RayEngine(ray, program=own or HERE)
    if kubernetes is not None:
        return KubernetesEngine(kubernetes, namespace, selector, wanted, program=own or ["harness"])
    return SlurmEngine(shlex.split(sbatch), wanted, program=own or HERE)


def folder_of(engine: Engine, files: Files, shared: Path | None) -> Path:
    """Return where the machines write, if they do. Raise StoreError if that can only be a folder, and is none."""
    if not engine.needs_folder:
        return Path()
    return files.folder if shared is None else shared / files.name.rstrip("/").rpartition("/")[2]
