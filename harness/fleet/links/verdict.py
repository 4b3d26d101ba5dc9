"""What is known of the links between machines: plain values that the report, the page and JSON show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

from harness.fleet.actions import Action
from harness.plural import plural
from harness.records import ExitCode
from harness.report.quantities import quantity

#: What may be wrong with an exchange, the gravest first.
Fault = Literal["no answer", "wrong values", "slow"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


class Scope(str, Enum):
    """What bad exchanges have in common."""

    NODE = "machine"
    LINK = "link"
    RACK = "rack"
    FLEET = "fleet"
    #: Two machines that are bad together, of which one at least did well with nobody else.
    UNCLEAR = "unclear"
    RING = "ring"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """A fault of a link, a machine or a rack. ``machines``: its ends, its name, or the rack's."""

    fault: Fault
    scope: Scope
    machines: tuple[str, ...]
    #: What was seen, of ``bad`` exchanges in all, of ``of`` that tell something of it.
    reasons: tuple[str, ...]
    bad: int
    of: int
    confirmed: bool = True
    #: Machines that did well with nobody: the fault may be theirs.
    unclear: tuple[str, ...] = ()
    #: The machines of a rack, or of the fleet, that show it.
    inside: tuple[str, ...] = ()
    #: When the run started that found it; empty for the run that is judged.
    run: str = ""

    @property
    def action(self) -> Action:
        """What to do about it."""
        if not self.confirmed:
            return Action.RERUN
        return Action.DRAIN if self.fault == "no answer" and self.scope is Scope.NODE else Action.RESEAT

    @property
    def subject(self) -> str:
        """What is accused."""
        names = " - ".join(self.machines)
        if self.scope is Scope.UNCLEAR:
            return f"{names}: the link, or {' or '.join(self.unclear)}, which did well with nobody else"
        if self.scope is Scope.FLEET:
            return f"{plural(len(self.machines), 'machine')}: what they have in common"
        return f"{self.scope} {names}"

    @property
    def text(self) -> str:
        """Say in a line what is wrong, of how many exchanges, and what to do."""
        return f"{self.subject}: {self.seen}"

    @property
    def seen(self) -> str:
        """Say of how many exchanges what is wrong, and what to do."""
        seen = f"{self.fault} in {self.bad} of {plural(self.of, 'exchange')}"
        if not self.confirmed:
            return f"{seen}, not confirmed: run the exchanges again"
        since = f" on {self.run}, not tested since" if self.run else ""
        return f"{seen}{since}: {self.advice}"

    @property
    def advice(self) -> str:
        """Say what to do."""
        if self.scope is Scope.FLEET:
            return "no machine is accused; look at the network, the firewall and the image"
        if self.scope is Scope.RACK:
            return "look at its switch and uplinks"
        if self.scope is Scope.NODE and self.fault == "no answer":
            return "drain it; look whether it runs, and whether its ports are open"
        if self.scope is Scope.NODE:
            return "look at its network card, cable and port"
        return "look at the cables and ports on the way between them"


@dataclass(frozen=True, slots=True)
class Usual:
    """What an operation takes between most machines, in seconds."""

    what: str
    size_bytes: int
    within_rack: bool | None
    exchanges: int
    median_s: float
    spread_s: float

    @property
    def text(self) -> str:
        """Say it in a line."""
        where = {None: "", True: " within racks", False: " between racks"}[self.within_rack]
        times = f"{quantity(1000 * self.median_s, 'ms')}, spread {quantity(1000 * self.spread_s, 'ms')}"
        return f"{self.what}{where}: median of {plural(self.exchanges, 'exchange')} {times}"


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """Exchanges between machines, judged."""

    #: The machines, by name.
    nodes: tuple[str, ...]
    #: Exchanges that were asked, those that were measured, and why others were not.
    asked: int
    measured: int
    unmeasured: tuple[tuple[str, int], ...]
    #: Machines that took no part, and why.
    left_out: tuple[tuple[str, str], ...]
    findings: tuple[LinkFinding, ...]
    notes: tuple[str, ...]
    usual: tuple[Usual, ...]
    #: Times that were compared, and those with too few others.
    compared: int
    too_few: int
    #: How many are enough.
    least: int

    @property
    def complete(self) -> bool:
        """Whether every exchange was measured."""
        return bool(self.asked) and self.measured == self.asked and not self.left_out

    @property
    def exit_code(self) -> ExitCode:
        """1 where something is bad, 3 where something was left out, else 0."""
        if self.findings:
            return ExitCode.FAILURE
        return ExitCode.SUCCESS if self.complete else ExitCode.UNKNOWN

    @property
    def denominator(self) -> str:
        """Say how many exchanges were asked, measured and left out, and why."""
        why = ", ".join(f"{reason}: {count:,}" for reason, count in self.unmeasured)
        rest = "" if self.complete else f", INCOMPLETE{f' ({why})' if why else ''}"
        asked = f"{plural(self.asked, 'exchange')} of {plural(len(self.nodes), 'machine')} asked"
        return f"{asked}, {self.measured:,} measured{rest}"

    def lines(self, *, shared: bool = True) -> Iterator[str]:
        """Yield the verdict for people: the denominator, what is bad, and what is usual.

        Without ``shared``, only what neither a machine nor a rack is accused of.
        """
        yield self.denominator
        for each in self.findings:
            if not shared and each.confirmed and each.scope in (Scope.NODE, Scope.RACK, Scope.FLEET):
                continue
            yield f"  {each.text}"
            yield from (f"      {reason}" for reason in each.reasons)
        yield from (f"  {name} did not take part to the end: {why}" for name, why in self.left_out)
        yield from (f"  {note}" for note in self.notes)
        largest = max((each.size_bytes for each in self.usual), default=0)
        yield from (f"  {each.text}" for each in self.usual if each.size_bytes == largest)
        if self.too_few:
            yield f"  not judged by their time, as there are fewer than {self.least} of a kind: {self.too_few:,} times"
