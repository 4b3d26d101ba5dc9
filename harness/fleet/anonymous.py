"""The verdict on a fleet without names: machines and cards are numbered, so that it can be shown to others."""

from __future__ import annotations

from collections.abc import Iterable

from harness.fleet.links.verdict import Scope
from harness.fleet.seen import Seen
from harness.fleet.verdicts import FleetVerdict
from harness.report.anonymous import substituted
from harness.runner.messages import plain
from harness.stored import validated


def anonymous_fleet(found: FleetVerdict, runs: Iterable[Seen]) -> FleetVerdict:
    """Replace the names of machines and racks, and the serial numbers and UUIDs of cards, wherever they stand.

    ``runs`` are those that were judged. The same name gets the same number everywhere, so that a card that fails again
    can still be seen.
    """
    names, racks, own, cards = {each.name for each in found.machines}, set[str](), set[str](), list[tuple[str, ...]]()
    if found.links is not None:
        names |= {*found.links.nodes}
        for each in found.links.findings:
            names |= {*each.inside}
            (racks if each.scope is Scope.RACK else names).update(each.machines)
    for seen in runs:
        host = seen.record.host
        names.add(seen.host)
        if host is not None:
            racks |= {each for each in (host.rack,) if each}
            own |= {each for each in (host.serial, host.boot) if each}
        cards += [tuple(each for each in (card.serial, card.uuid) if each) for card in seen.record.cards]
    words = dict.fromkeys(own, "left out")
    for kind, members in (("machine", names), ("rack", racks)):
        words |= {name: f"{kind}-{number:04}" for number, name in enumerate(sorted(members), start=1)}
    for number, card in enumerate(sorted({*cards}), start=1):
        words |= dict.fromkeys(card, f"card-{number:05}")
    paths = {each.path: f"file-{number:04}" for number, each in enumerate(found.left_out, start=1)}
    body = substituted(plain(found), {**words, **paths})
    assert isinstance(body, dict)
    for each in body["machines"]:
        each["path"] = ""
    made: FleetVerdict = validated(body, FleetVerdict)
    return made
