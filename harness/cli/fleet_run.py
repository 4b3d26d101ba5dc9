"""``harness fleet run``: the checks on many machines, by the engine that they have."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from harness.cli.errors import clear_errors, exit_code, say
from harness.cli.fleet_options import (
    DEFAULT_STORE,
    HostsOption,
    KubernetesOption,
    NamespaceOption,
    NodesOption,
    ProgramOption,
    RayOption,
    SbatchOption,
    SelectorOption,
    SharedOption,
    SlurmOption,
    SshOption,
    StoreOption,
    engine_of,
    folder_of,
    moment,
)
from harness.cli.options import check_seconds, number, whole_number
from harness.errors import HarnessError, UsageError
from harness.records import ExitCode


def fleet_run(
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTION …]", help="Options of harness validate, after --.")
    ] = None,
    hosts: HostsOption = None,
    slurm: SlurmOption = False,
    ray: RayOption = None,
    kubernetes: KubernetesOption = None,
    nodes: NodesOption = None,
    sbatch: SbatchOption = "",
    namespace: NamespaceOption = "default",
    selector: SelectorOption = "",
    ssh: SshOption = None,
    program: ProgramOption = None,
    store: StoreOption = DEFAULT_STORE,
    shared: SharedOption = None,
    limit: Annotated[
        float,
        typer.Option("--limit", parser=number, metavar="S", help="Time limit of a machine, in seconds."),
    ] = 3600.0,
    at_once: Annotated[
        int, typer.Option("--at-once", parser=whole_number, metavar="N", help="With --hosts: hosts at the same time.")
    ] = 32,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest run, which was interrupted.")] = False,
) -> None:
    """Run harness validate on many machines, and keep each record in the store as soon as it comes.

    Exits with 0 if every machine sent a record, and with 3 if one did not. harness fleet report judges the records.
    """
    from harness.fleet.engines.engine import MachineRun
    from harness.fleet.run import carry_out, recorded, resume as continued, start
    from harness.fleet.store import Store

    with clear_errors():
        check_seconds("--limit", limit)
        if at_once < 1:
            raise UsageError(f"--at-once {at_once}; accepted: a whole number above 0")
        _check_options(options or ())
        engine = engine_of(
            hosts,
            slurm,
            ray,
            kubernetes,
            nodes=nodes,
            sbatch=sbatch,
            namespace=namespace,
            selector=selector,
            ssh=ssh,
            program=program,
        )
        kept = Store(store)
        _ = folder_of(engine, kept.files, shared)  # before anything begins
        files, run = continued(engine, kept) if resume else start(engine, options or (), kept, moment(None))
        folder = folder_of(engine, files, shared)
    for outcome in run.outcomes:
        if outcome.why:
            typer.echo(f"{outcome.machine}: left out: {outcome.why}")
    bad = {outcome.machine for outcome in run.outcomes if outcome.why}
    code = ExitCode.SUCCESS
    try:
        work = MachineRun(run.arguments, folder, limit, at_once)
        # Closed also by ^C, so that nothing is left behind on the machines.
        with contextlib.closing(carry_out(engine, work, run, files)) as outcomes:
            for outcome in outcomes:
                bad |= {outcome.machine} if outcome.why else set()
                typer.echo(f"{outcome.machine}: {outcome.why or 'done'}")
    except HarnessError as error:
        say(f"error: {error}; harness fleet run --resume does the rest")
        code = exit_code(error)
    with clear_errors():
        lost = len({*run.asked} - (recorded(files, run) - bad))
    typer.echo(f"{len(run.asked) - lost} of {len(run.asked)} machines sent a record: {files.name}")
    if lost:
        say(f"INCOMPLETE: {lost} of {len(run.asked)} machines have no record of this run")
    typer.echo(f"next: harness fleet report --store {shlex.quote(store)}")
    raise typer.Exit(code or (ExitCode.UNKNOWN if lost else ExitCode.SUCCESS))


def _check_options(options: Sequence[str]) -> None:
    """Refuse what harness validate does not accept, before any machine gets it."""
    from harness.cli.suite import suite
    from harness.cli.validate import validate

    single = typer.Typer(add_completion=False)
    single.command()(validate)
    given = typer.main.get_command(single).make_context("harness validate", list(options)).params
    suite().select(given["only"] or (), given["level"])
