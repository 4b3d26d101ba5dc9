"""``harness fleet``: the commands about many machines."""

from __future__ import annotations

from collections.abc import Callable

import typer

from harness.cli import fleet_links, fleet_nodes, fleet_plan, fleet_report, fleet_run

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run and judge many machines together.")

#: In the order of the help text: name, function, and what it does in a line.
_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("run", fleet_run.fleet_run, "Run harness validate on many machines: over ssh, Slurm, Kubernetes, Ray."),
    ("links", fleet_links.fleet_links, "Find slow and wrong links between machines, on the same engines."),
    ("report", fleet_report.fleet_report, "Judge the newest record of each machine beside the others."),
    ("history", fleet_report.history, "Show all runs of a card, and whether its fault moves with it."),
    ("plan", fleet_plan.fleet_plan, "Print what to take out of service, and how to undo it; --apply does it."),
    ("return", fleet_plan.fleet_return, "Bring a machine back that a run under load proves sound."),
    ("prolog", fleet_nodes.prolog, "Say in one line whether this node may take a job."),
    ("manifest", fleet_nodes.manifest, "Print Kubernetes manifests."),
    ("add", fleet_report.add, "Add records to a store."),
)
for _name, _function, _summary in _COMMANDS:
    app.command(_name, short_help=_summary)(_function)
#: What ``harness fleet links`` runs on each machine.
app.command("exchange", hidden=True)(fleet_links.exchange)
