"""What to do about a fleet, as a plan that can be reviewed: cause, evidence, exact commands, and their undo."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from harness.fleet.engines.command import is_node, plain_reason
from harness.fleet.engines.scheduler import Scheduler
from harness.fleet.policy import Policy
from harness.fleet.verdicts import Accusation, FleetVerdict
from harness.plural import plural
from harness.records import Verdict
from harness.report.printable import one_line, shortened
from harness.report.quantities import percent

#: Of so few machines, the faulty one cannot be told from a fault that all have.
_FEW = 2


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """One machine to take out of service."""

    machine: str
    action: str
    cause: str
    evidence: tuple[str, ...]
    serials: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    undo: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """All steps, and what share of the machines they take out."""

    scheduler: str
    steps: tuple[Withdrawal, ...]
    #: Machines with a fault that the plan leaves alone, and why.
    left_alone: tuple[tuple[str, str], ...]
    machines: int
    most_share: float

    @property
    def share(self) -> float:
        """The share of the machines that are taken out."""
        return len(self.steps) / self.machines if self.machines else 0.0

    @property
    def refusal(self) -> str:
        """Why the plan is not applied; empty if it may be."""
        if len(self.steps) <= most_out(self.machines, self.most_share):
            return ""
        return (
            f"the plan takes out {plural(len(self.steps), 'machine')} of {self.machines:,} ({percent(self.share)}), "
            f"more than the policy's {percent(self.most_share)}; suspect the test, the image or the fabric"
        )


def most_out(machines: int, most_share: float) -> float:
    """Return how many machines may be out of service: a share of them, and one of three or more in any case.

    One of many cannot be the same fault everywhere, and a small cluster would otherwise never take one out.
    """
    return max(most_share * machines, 1.0 if machines > _FEW else 0.0)


def make_plan(found: FleetVerdict, scheduler: Scheduler, policy: Policy) -> FleetPlan:
    """Make the plan: each machine with a failure whose action the policy takes machines out for."""
    wanted = policy.plan.take_out
    steps, alone = [], []
    for name in found.faulty(wanted):
        own = [
            each
            for each in found.accusations
            if each.machine == name and each.action in wanted and each.severity is Verdict.FAIL
        ]
        if is_node(name):
            steps.append(_step(name, own, scheduler))
        else:
            alone.append((one_line(name), "its name cannot be that of a node"))
    alone += [
        (f"{plural(len(cause.machines), 'machine')} with {one_line(cause.common)}", "a shared fault")
        for cause in found.shared
    ]
    return FleetPlan(scheduler.name, tuple(steps), tuple(alone), found.counts.asked, policy.plan.most_share)


def plan_lines(plan: FleetPlan) -> Iterator[str]:
    """Yield the plan for people: a shell can run it, as what is no command is a comment."""
    yield f"# {plural(len(plan.steps), 'machine')} of {plan.machines:,} taken out ({percent(plan.share)})"
    for step in plan.steps:
        yield ""
        yield f"# {step.machine}: {step.action}: {step.cause}"
        yield from (f"#   {shortened(line, 200)}" for line in step.evidence)
        yield from (shlex.join(command) for command in step.commands)
        yield from (f"# undo: {shlex.join(command)}" for command in step.undo)
        yield f"# back into service: harness fleet return {step.machine}, after a run under load"
    if plan.left_alone:
        yield ""
    yield from (f"# left alone: {what}: {why}" for what, why in plan.left_alone)


def _step(name: str, own: list[Accusation], scheduler: Scheduler) -> Withdrawal:
    first = own[0]
    cause = f"{first.subject}: {first.reasons[0] if first.reasons else first.action}"
    reason = plain_reason(cause)
    return Withdrawal(
        name,
        str(first.action),
        one_line(cause),
        tuple(one_line(reason) for each in own for reason in each.reasons),
        tuple(dict.fromkeys(serial for each in own for serial in each.serials)),
        tuple(map(tuple, scheduler.take_out(name, str(first.action), reason))),
        tuple(map(tuple, scheduler.bring_back(name))),
    )
