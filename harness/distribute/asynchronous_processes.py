"""Training with parameter servers: starts a coordinator, a server for the variables and the workers, and judges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from harness.distribute.asynchronous import AsynchronousCourse
from harness.distribute.equivalence import Equivalence, conclude
from harness.distribute.judge_asynchronous import judge_asynchronous
from harness.records import Exercised, Finding, Verdict
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import LAST_RESORT_S, STARTUP_LIMIT_S
from harness.runner.together import Ended, work_at_addresses


def train_asynchronously(
    arguments: dict[str, object], steps: int, workers: int, limit_s: float, folder: Path
) -> Equivalence:
    """Train, and judge what must hold whatever the order of the updates. ``arguments``: those of the coordinator."""
    longest_s = max(limit_s, STARTUP_LIMIT_S) + LAST_RESORT_S
    asked = {name: value for name, value in arguments.items() if name != "loops"}
    servers = [("ps", 0), *(("worker", index) for index in range(workers))]
    names = ["coordinator", *(f"{job}-{index}" for job, index in servers)]

    def jobs(addresses: Sequence[str]) -> list[tuple[Job, WorkerFiles]]:
        cluster = {"worker": list(addresses[:workers]), "ps": list(addresses[workers:])}
        made = [Job("harness.distribute.parameter_server:coordinate", {**asked, "cluster": cluster}, longest_s)]
        for job, index in servers:
            told: dict[str, object] = {"cluster": cluster, "job": job, "index": index}
            made.append(Job("harness.distribute.parameter_server:serve", told, longest_s))
        return [(job, WorkerFiles.create(folder, name)) for job, name in zip(made, names, strict=True)]

    ended = work_at_addresses(workers + 1, jobs, limit_s, needed=1)
    failures = [(name, each) for name, each in zip(names, ended, strict=True) if each.answer is None]
    if failures:
        return _failed(failures, steps, limit_s)
    answer = ended[0].answer or {}
    course = TypeAdapter(AsynchronousCourse).validate_python(answer["course"])
    serial = TypeAdapter(tuple[float, ...]).validate_python(answer["serial"])
    findings = tuple(judge_asynchronous(course, serial))
    exercised = Exercised(programs=1, values=2 + len(course.by_worker) + len(course.homes))
    verdict, reason = conclude(
        findings,
        (),
        exercised,
        f"{steps} asynchronous updates by {workers} workers, none lost, to the loss of one device",
        traced=False,
    )
    stale = course.staleness
    return Equivalence(
        verdict,
        reason,
        findings,
        exercised,
        strategy="parameter_server",
        loops=("custom",),
        steps=steps,
        measured={
            "staleness_mean_updates": sum(stale) / len(stale),
            "staleness_largest_updates": float(max(stale)),
            "loss_before": course.losses[0],
            "loss_after": course.losses[1],
            "loss_of_one_device_after_half": serial[0],
            "loss_of_one_device_after_all": serial[-1],
            **{f"steps_of_worker_{number}": float(count) for number, count in enumerate(course.by_worker)},
        },
    )


def _failed(failures: list[tuple[str, Ended]], steps: int, limit_s: float) -> Equivalence:
    findings = tuple(
        Finding("error", name, None, f"{steps} steps within {limit_s:g} s", each.details, each.message)
        for name, each in failures
    )
    return Equivalence(
        Verdict.FAIL,
        f"{len(findings)} finding(s): error",
        findings,
        Exercised(),
        strategy="parameter_server",
        loops=("custom",),
        steps=steps,
    )
