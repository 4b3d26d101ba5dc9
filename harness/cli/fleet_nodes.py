"""``harness fleet prolog`` and ``manifest``: what Slurm and Kubernetes run on each node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import clear_errors
from harness.cli.fleet_options import PolicyOption, moment
from harness.cli.options import check_seconds, number, whole_number
from harness.errors import UsageError
from harness.records import ExitCode

#: A prolog that takes longer delays every job; Slurm ends a health check after 60 s.
_LIMIT_S = 15.0


def prolog(
    last: Annotated[
        Path, typer.Option("--last", metavar="RUN.json", help="The last result of this machine, if there is one.")
    ] = Path("harness-report/run.json"),
    gpus: Annotated[
        int | None, typer.Option("--gpus", parser=whole_number, metavar="N", help="How many GPUs the node must have.")
    ] = None,
    most_days: Annotated[
        float | None,
        typer.Option("--most-days", parser=number, metavar="D", help="Not ready without a result of the last D days."),
    ] = None,
    policy: PolicyOption = None,
    limit: Annotated[
        float, typer.Option("--limit", parser=number, metavar="S", help="How long the driver may take, in seconds.")
    ] = _LIMIT_S,
) -> None:
    """Say in one line whether this node may take a job: exit code 0 or 1. It loads no TensorFlow and uses no GPU.

    For a prolog of Slurm, its HealthCheckProgram, or node-problem-detector. It asks the driver which cards answer, and
    reads the last result of harness validate.
    """
    from harness.fleet.driver_cards import ask
    from harness.fleet.policy import load_policy
    from harness.fleet.prolog import judge_node, last_run

    with clear_errors():
        check_seconds("--limit", limit)
        rules = load_policy(policy)
        record = last_run(last)
    cards, broken = ask(limit)
    answer = judge_node(cards, broken, record, gpus, moment(None), rules, most_days)
    typer.echo(f"{'ready' if answer.ready else 'not ready'}: {answer.reason}")
    raise typer.Exit(ExitCode.SUCCESS if answer.ready else ExitCode.FAILURE)


def manifest(
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTION …]", help="Options of harness validate, after --.")
    ] = None,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="A container image with the harness and TensorFlow.")
    ] = "",
    count: Annotated[
        int, typer.Option("--count", parser=whole_number, metavar="N", help="How many nodes: one pod on each.")
    ] = 1,
    gpus: Annotated[
        int, typer.Option("--gpus", parser=whole_number, metavar="N", help="GPUs of a node, all given to its pod.")
    ] = 8,
    namespace: Annotated[str, typer.Option("--namespace", metavar="NAME", help="The namespace.")] = "default",
    resource: Annotated[
        str, typer.Option("--resource", metavar="NAME", help="The resource of the GPUs.")
    ] = "nvidia.com/gpu",
    claim: Annotated[
        str, typer.Option("--claim", metavar="NAME", help="A volume claim for the records; without it, they are logs.")
    ] = "",
    selector: Annotated[
        list[str] | None, typer.Option("--selector", metavar="KEY=VALUE", help="Only such nodes; may be repeated.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=whole_number, metavar="S", help="Time limit of the job, in seconds.")
    ] = 3600,
) -> None:
    """Print Kubernetes manifests: a job with a pod on each node, a node condition, and a daemon set of metrics.

    Apply them with kubectl apply -f -. Records in logs are collected with kubectl logs and harness fleet add.
    """
    from harness.fleet.manifest import Wanted, as_yaml, manifests

    with clear_errors():
        if not image:
            raise UsageError("--image is missing; accepted: a container image with the harness and TensorFlow")
        wanted = Wanted(
            image, count, gpus, namespace, resource, claim, tuple(selector or ()), limit, tuple(options or ())
        )
        typer.echo(as_yaml(manifests(wanted)), nl=False)
