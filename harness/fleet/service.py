"""Takes machines out of service and brings them back: only what the harness took out itself, and each time with proof.

Each drain is a file in the store: who was drained, when, why, and by which commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from harness.errors import UsageError
from harness.fleet.engines.command import answer
from harness.fleet.engines.scheduler import Scheduler
from harness.fleet.plan import FleetPlan, most_out
from harness.fleet.seen import Seen, parse_time
from harness.fleet.store import Store, plain_name
from harness.fleet.verdicts import FleetVerdict, State
from harness.records import Verdict
from harness.report.storage import json_text
from harness.stored import parse_versioned

#: The folder of drains in a store.
_DRAINS = "drains"
SCHEMA_VERSION = 1
#: The check that puts a machine under load.
LOAD = "sustained-load"


class NotReturned(UsageError):
    """A machine is not brought back. ``why`` says what is missing."""

    def __init__(self, machine: str, why: str) -> None:
        self.machine, self.why = machine, why
        super().__init__(f"{machine} stays out of service: {why}")


@dataclass(frozen=True, slots=True)
class Drain:
    """A machine that the harness took out of service."""

    machine: str
    scheduler: str
    action: str
    reason: str
    drained_at: str
    commands: tuple[tuple[str, ...], ...]
    returned_at: str | None = None
    schema_version: int = SCHEMA_VERSION


def apply(plan: FleetPlan, scheduler: Scheduler, store: Store, now: datetime) -> Iterator[str]:
    """Run the commands of a plan, and yield a line for each machine.

    Raises:
        UsageError: the plan takes out more than the policy allows; nothing was done.
        EngineError: the scheduler does not answer, or refuses; the lines so far say what was done.
    """
    states = scheduler.states()
    out = {name for name, state in states.items() if state.out}
    taken = {step.machine for step in plan.steps}
    machines = max(plan.machines, len(states))
    if plan.refusal:
        raise UsageError(f"{plan.refusal}; nothing was done")
    if len(out | taken) > max(most_out(machines, plan.most_share), len(out)):
        raise UsageError(
            f"{len(out)} of {machines} machines are out of service already, and {len(taken - out)} more would be above "
            f"the share of {plan.most_share:.0%} that the policy allows; nothing was done"
        )
    for step in plan.steps:
        state = states.get(step.machine)
        if state is None:
            yield f"{step.machine}: unknown to {scheduler.name}; nothing was done"
        elif state.is_own:
            yield f"{step.machine}: already out of service ({state.reason})"
        elif state.out:
            yield f"{step.machine}: somebody else took it out of service ({state.reason or state.state}); left alone"
        else:
            # Written first: an interrupted command leaves a note of a drain that may have happened, not the reverse.
            at = now.isoformat(timespec="seconds")
            drain = Drain(step.machine, scheduler.name, step.action, step.cause, at, step.commands)
            _keep(drain, store)
            for command in step.commands:
                answer(command)
            yield f"{step.machine}: taken out of service"


def bring_back(
    machine: str,
    scheduler: Scheduler,
    store: Store,
    found: FleetVerdict,
    runs: tuple[Seen, ...],
    now: datetime,
    *,
    run: bool,
) -> list[list[str]]:
    """Return the commands that bring a machine back, and run them if ``run``.

    Raises:
        NotReturned: the harness did not take it out, or nothing proves that it is sound now.
        EngineError: the scheduler does not answer, or refuses.
    """
    drain = _last(store, machine)
    state = scheduler.states().get(machine)
    if state is None:
        raise NotReturned(machine, f"unknown to {scheduler.name}")
    if not state.out:
        raise NotReturned(machine, f"it is not out of service ({state.state}): there is nothing to do")
    if not state.is_own or drain is None:
        raise NotReturned(machine, f"the harness did not take it out ({state.reason or state.state}); who did has to")
    _prove(machine, drain, found, runs)
    commands = scheduler.bring_back(machine)
    if run:
        for command in commands:
            answer(command)
        _keep(replace(drain, returned_at=now.isoformat(timespec="seconds")), store)
    return commands


def _prove(machine: str, drain: Drain, found: FleetVerdict, runs: tuple[Seen, ...]) -> None:
    """Raise NotReturned unless the newest run of a machine is after its drain, under load, and without a fault."""
    drained = parse_time(drain.drained_at)
    own = [seen for seen in runs if seen.host == machine and seen.started is not None]
    newest = max(own, key=lambda seen: (seen.started.timestamp() if seen.started else 0.0, seen.path), default=None)
    again = "validate it under load: harness fleet run --hosts, with a file that names it"
    if drained is None or newest is None or newest.started is None or newest.started <= drained:
        raise NotReturned(machine, f"no run since it was drained at {drain.drained_at}; {again}")
    load = next((each for each in newest.record.results if each.check == LOAD), None)
    if load is None or load.exercised.nothing or load.verdict not in (Verdict.PASS, Verdict.WARN):
        raise NotReturned(machine, f"its run of {newest.record.started_at} did not pass under load; {again}")
    state = next((each for each in found.machines if each.name == machine), None)
    if state is None or state.state is not State.PROVEN or state.started_at != newest.record.started_at:
        why = state.why or str(state.state) if state is not None else "it is not in the report"
        raise NotReturned(machine, f"its run of {newest.record.started_at} does not prove it: {why}")


def _last(store: Store, machine: str) -> Drain | None:
    """Return the newest drain of a machine that was not undone."""
    drains = store.made(
        store.files.names(f"{_DRAINS}/*.json"), lambda _, content: parse_versioned(content, Drain, SCHEMA_VERSION)
    )
    # A damaged note proves no drain, so it brings nothing back.
    found = [
        each for each in drains if isinstance(each, Drain) and each.machine == machine and each.returned_at is None
    ]
    return max(found, key=lambda each: each.drained_at, default=None)


def _keep(drain: Drain, store: Store) -> None:
    stamp = drain.drained_at.replace(":", "").replace("+0000", "Z")
    store.files.write(f"{_DRAINS}/{plain_name(drain.machine)}-{stamp}.json", json_text(drain) + "\n")
