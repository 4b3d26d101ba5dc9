"""``harness fleet plan`` and ``return``: out of service with a reason, and back with a proof."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import clear_errors, say
from harness.cli.fleet_options import DEFAULT_STORE, AsOfOption, PolicyOption, StoreOption, moment, opened
from harness.errors import UsageError
from harness.records import ExitCode

if TYPE_CHECKING:
    from harness.fleet.engines.scheduler import Scheduler

SchedulerOption = Annotated[
    str, typer.Option("--scheduler", metavar="NAME", help="slurm or kubernetes: whose nodes the machines are.")
]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Run the commands instead of only printing them.")]


def fleet_plan(
    store: StoreOption = DEFAULT_STORE,
    scheduler: SchedulerOption = "slurm",
    policy: PolicyOption = None,
    apply: ApplyOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    as_of: AsOfOption = None,
) -> None:
    """Print what to take out of service, why, by which commands, and how to undo them. --apply runs them.

    A plan that takes out more of the machines than the policy allows is printed, and never applied: exit code 1. A
    machine that somebody else took out of service is left alone.
    """
    from harness.fleet.fleet import judge_store
    from harness.fleet.plan import make_plan, plan_lines
    from harness.fleet.service import apply as run_plan
    from harness.report.storage import json_text

    with clear_errors():
        kept, rules = opened(store, policy)
        tool = named(scheduler)
        now = moment(as_of)
        plan = make_plan(judge_store(kept, rules, now), tool, rules)
    if as_json:
        typer.echo(json_text(plan))
    else:
        for line in plan_lines(plan):
            typer.echo(line)
    if plan.refusal:
        say(f"error: {plan.refusal}; nothing was done")
        raise typer.Exit(ExitCode.FAILURE)
    if apply:
        with clear_errors():
            for line in run_plan(plan, tool, kept, moment(None)):
                say(line)


def fleet_return(
    machine: Annotated[str, typer.Argument(metavar="NODE", help="The machine to bring back.")],
    store: StoreOption = DEFAULT_STORE,
    scheduler: SchedulerOption = "slurm",
    policy: PolicyOption = None,
    apply: ApplyOption = False,
) -> None:
    """Bring back a machine that the harness took out, if a run under load since then proves it sound.

    Prints the commands, and runs them with --apply. A machine that a person drained is never brought back.
    """
    from harness.fleet.fleet import judge_store
    from harness.fleet.index import load
    from harness.fleet.service import bring_back

    with clear_errors():
        kept, rules = opened(store, policy)
        tool = named(scheduler)
        now = moment(None)
        found = judge_store(kept, rules, now)
        commands = bring_back(machine, tool, kept, found, load(kept).runs, now, run=apply)
    for command in commands:
        typer.echo(shlex.join(command))
    if apply:
        say(f"{machine}: back in service")


def named(scheduler: str) -> Scheduler:
    """Return the scheduler with a name."""
    from harness.fleet.engines.kubernetes_nodes import Kubernetes
    from harness.fleet.engines.slurm_nodes import Slurm

    known: dict[str, type[Scheduler]] = {"slurm": Slurm, "kubernetes": Kubernetes}
    if scheduler not in known:
        raise UsageError(f"--scheduler {scheduler!r}; accepted: {', '.join(known)}")
    return known[scheduler]()
