"""The verdict on a fleet without names: machines and cards are numbered, so that it can be shown to others."""

from __future__ import annotations

from harness.fleet.verdicts import FleetVerdict
from harness.report.anonymous import substituted
from harness.runner.messages import plain
from harness.stored import validated


def anonymous_fleet(found: FleetVerdict) -> FleetVerdict:
    """Replace the names of machines and racks, and the serial numbers, UUIDs and names of cards, wherever they stand.

    The same name gets the same number everywhere, so that a card that fails again can still be seen.
    """
    names = {each.name for each in found.machines} | {each.machine for each in found.trends}
    serials = {serial for each in found.accusations for serial in each.serials}
    serials |= {*(each.card for each in found.offenders), *(each.card for each in found.trends)} - names
    racks = {each.rack for each in found.machines if each.rack}
    places = {place for each in found.offenders for place in each.places}
    # A card without a serial number is named by its machine: the name of the machine is replaced in it.
    serials = {each for each in serials if not any(each.startswith(f"{name} ") for name in names)}
    names |= {place.partition(" slot ")[0].partition(" PCI ")[0] for place in places}
    words: dict[str, str] = {}
    for kind, members in (("machine", names), ("card", serials), ("rack", racks)):
        for number, name in enumerate(sorted(members), start=1):
            words.setdefault(name, f"{kind}-{number:04}")
    paths = {each.path: f"file-{number:04}" for number, each in enumerate(found.left_out, start=1)}
    body = substituted(plain(found), {**words, **paths})
    assert isinstance(body, dict)
    for each in body["machines"]:
        each["path"] = ""
    made: FleetVerdict = validated(body, FleetVerdict)
    return made
