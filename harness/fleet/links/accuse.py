"""What exchanges between machines add to the verdict on a fleet: machines that are accused, and faults of racks."""

from __future__ import annotations

from collections.abc import Iterator

from harness.fleet.links.verdict import LinkVerdict, Scope
from harness.fleet.verdicts import Accusation, SharedCause
from harness.records import Verdict

#: Why a machine that is accused cannot return before its exchanges are right.
WHY = "its exchanges with other machines are bad: harness fleet links"


def accusations(links: LinkVerdict | None) -> Iterator[Accusation]:
    """Yield the machines that are accused of most of their exchanges."""
    for each in links.findings if links is not None else ():
        if each.scope is Scope.NODE and each.confirmed:
            reasons = (each.seen, *each.reasons)
            yield Accusation(
                each.machines[0], (), "its network", each.action, Verdict.FAIL, reasons, len(reasons), "links"
            )


def shared_causes(links: LinkVerdict | None) -> Iterator[SharedCause]:
    """Yield what is wrong with a rack, or with the whole network. It accuses no machine."""
    for each in links.findings if links is not None else ():
        if each.scope in (Scope.RACK, Scope.FLEET) and each.confirmed:
            common = f"network of rack {each.machines[0]}" if each.scope is Scope.RACK else "network of the fleet"
            reasons = (each.seen, *each.reasons)
            yield SharedCause(common, each.inside, len(each.inside), reasons, each.action)
