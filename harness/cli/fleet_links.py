"""``harness fleet links``: exchanges between machines, and the hidden command that takes part in them."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import clear_errors, refuse, say
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
    opened,
)
from harness.cli.options import check_seconds, number, whole_number
from harness.errors import HarnessError, UsageError
from harness.records import ExitCode

if TYPE_CHECKING:
    from harness.fleet.links.record import Report


def fleet_links(
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
    rounds: Annotated[
        int,
        typer.Option("--rounds", parser=whole_number, metavar="N", help="Rounds of pairs: a machine meets N others."),
    ] = 3,
    ring: Annotated[
        int, typer.Option("--ring", parser=whole_number, metavar="N", help="Members of a ring; 0: no rings.")
    ] = 4,
    limit: Annotated[
        float, typer.Option("--limit", parser=number, metavar="S", help="Time limit of an exchange, in seconds.")
    ] = 60.0,
    wait: Annotated[
        float,
        typer.Option("--wait", parser=number, metavar="S", help="How much later the last machine may start."),
    ] = 120.0,
    port: Annotated[
        int, typer.Option("--port", parser=whole_number, metavar="N", help="The first machine's port; others follow.")
    ] = 8520,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the newest exchanges, which were interrupted.")
    ] = False,
) -> None:
    """Let machines exchange known values in pairs and rings, and find the link, machine or rack that is slow or wrong.

    What looks bad is done again beside sound machines. No GPU is used. Exits with 0 if all exchanges were right and as
    fast as usual, with 1 if one was not, and with 3 if some could not be measured.
    """
    from harness.fleet.index import load
    from harness.fleet.links.newest import newest_verdict
    from harness.fleet.links.run import LinkOptions, carry_out, resume as continued, start
    from harness.report.terminal import print_line, stdout_console

    with clear_errors():
        check_seconds("--limit", limit)
        check_seconds("--wait", wait)
        if rounds < 1 or not (ring == 0 or 3 <= ring <= 64) or not 1024 <= port <= 65000:
            raise UsageError(
                f"--rounds {rounds} --ring {ring} --port {port}; accepted: --rounds 1 or more, --ring 0 or 3 to 64, "
                "--port 1024 to 65000"
            )
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
        kept, rules = opened(store, None)
        options = LinkOptions(rounds, ring, port=port, start_s=wait, limit_s=limit)
        _ = folder_of(engine, kept.files, shared)  # before anything begins
        files, run = continued(engine, kept) if resume else start(engine, options, kept, moment(None))
        folder = folder_of(engine, files, shared)
        known = load(kept).runs
    for each in run.lost:
        typer.echo(f"{each.machine}: left out: {each.why}")
    try:
        with contextlib.closing(carry_out(engine, options, files, run, rules.judging, known, folder)) as lines:
            for line in lines:
                typer.echo(line)
    except HarnessError as error:
        say(f"next: harness fleet links --resume, with the same options, does the rest of {files.name}")
        refuse(error)
    with clear_errors():
        verdict, _ = newest_verdict(kept, known, rules.judging)
    console = stdout_console()
    for line in verdict.lines() if verdict is not None else ():
        print_line(console, line)
    print_line(console, f"kept in {files.name}; next: harness fleet report --store {shlex.quote(store)}")
    raise typer.Exit(verdict.exit_code if verdict is not None else ExitCode.UNKNOWN)


def exchange(
    plan: Annotated[str, typer.Argument(metavar="PLAN")],
    finished: Annotated[str, typer.Option("--finished", metavar="FILE")],
    report: Annotated[Path, typer.Option("--report", metavar="DIR", file_okay=False)],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each report as a line, as soon as it is there.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet")] = False,
) -> None:
    """Take part in the exchanges of a plan, which harness fleet links makes."""
    import json

    from harness.devices.host import read_host
    from harness.fleet.files import LocalFiles
    from harness.fleet.links.agent import take_part
    from harness.fleet.links.record import LinkPlan, keep
    from harness.report.storage import save_text
    from harness.runner.messages import plain

    def note(made: Report) -> None:
        keep(made, LocalFiles(report))
        if as_json:
            typer.echo(json.dumps(plain(made), allow_nan=False))  # which flushes
        elif not quiet:
            typer.echo(f"exchange {made.number}: {made.state} {made.why}")

    with clear_errors():
        host = read_host()
        take_part(LinkPlan.unpacked(plan), host.name or "", host.rack, note)
        save_text("{}\n", report, Path(finished).name)
