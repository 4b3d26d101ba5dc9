"""What is known of a fleet that was judged: plain values that the page, the plan and JSON show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from harness.fleet.actions import TAKES_OUT, Action
from harness.fleet.links.verdict import LinkVerdict
from harness.fleet.store import LeftOut
from harness.records import ExitCode, Verdict


class State(str, Enum):
    """Where a machine stands."""

    ACTION = "needs an action"
    SHARED = "has a fault that many share"
    MISSING = "no result"
    INCOMPLETE = "incomplete"
    PROVEN = "proven"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Accusation:
    """A fault of one machine: of a card, of the link between two, or of the machine itself (without labels)."""

    machine: str
    labels: tuple[str, ...]
    subject: str
    action: Action
    severity: Verdict
    #: The strongest first, of ``findings`` in all.
    reasons: tuple[str, ...]
    findings: int
    #: ``check``: a check of the machine found it. ``outlier``: only the comparison with other machines did. ``links``:
    #: exchanges with others.
    source: str
    #: What confirms an outlier; empty while nothing does.
    confirmed: str = ""
    serials: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    #: A sound machine of the same cohort to run it again beside.
    control: str = ""

    @property
    def pressing(self) -> bool:
        """Whether the machine cannot be called sound: something failed, or an outlier has to be run again."""
        return self.severity is Verdict.FAIL or self.action is Action.RERUN


@dataclass(frozen=True, slots=True)
class SharedCause:
    """A fault on most machines that have something in common. It accuses no machine."""

    common: str
    machines: tuple[str, ...]
    of: int
    reasons: tuple[str, ...]
    action: Action


@dataclass(frozen=True, slots=True)
class FleetMachine:
    """One machine, with why it has no verdict where it has none."""

    name: str
    state: State
    why: str = ""
    path: str = ""
    started_at: str = ""
    rack: str = ""
    cards: str = ""
    driver: str = ""
    vbios: str = ""
    harness: str = ""
    verdict: str = ""
    exercised: bool = False
    reached: bool = False
    described: bool = False
    #: ``check VERDICT`` for each check.
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trend:
    """A figure of a card that got worse over its own runs."""

    card: str
    machine: str
    text: str


@dataclass(frozen=True, slots=True)
class Offender:
    """A card that failed in several runs, with where it sat."""

    card: str
    failed: int
    runs: int
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Versions:
    """A fact in which machines differ: each value with how many have it, the most frequent first."""

    fact: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """The denominator. ``asked`` counts every machine that was meant to be checked."""

    asked: int
    reached: int
    exercised: int
    proven: int
    action: int
    shared: int
    incomplete: int

    @property
    def complete(self) -> bool:
        """Whether every machine has a verdict."""
        return not self.incomplete


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """A judged fleet."""

    counts: Counts
    machines: tuple[FleetMachine, ...]
    accusations: tuple[Accusation, ...]
    shared: tuple[SharedCause, ...]
    trends: tuple[Trend, ...]
    offenders: tuple[Offender, ...]
    versions: tuple[Versions, ...]
    left_out: tuple[LeftOut, ...]
    #: What a reader has to know: how values were judged, what of the policy matched nothing, what was accepted.
    notes: tuple[str, ...]
    accepted: tuple[str, ...]
    judged_values: int
    values_too_few: int
    #: The exchanges between machines; ``None`` if there were none.
    links: LinkVerdict | None = None

    @property
    def exit_code(self) -> ExitCode:
        """1 where something needs an action, 3 where a machine has no verdict or none was asked, else 0."""
        links = ExitCode.SUCCESS if self.links is None else self.links.exit_code
        if any(each.pressing for each in self.accusations) or self.counts.shared or links is ExitCode.FAILURE:
            return ExitCode.FAILURE
        return links if self.counts.complete and self.counts.proven else ExitCode.UNKNOWN

    def by_action(self) -> Iterator[tuple[Action, list[Accusation]]]:
        """Yield the accusations by action, what asks for most first."""
        for action in Action:
            own = [each for each in self.accusations if each.action is action]
            if own:
                yield action, own

    def faulty(self, actions: tuple[Action, ...] = TAKES_OUT) -> list[str]:
        """Return the machines with a failure that needs one of these actions."""
        own = (each for each in self.accusations if each.action in actions and each.severity is Verdict.FAIL)
        return list(dict.fromkeys(each.machine for each in own))
