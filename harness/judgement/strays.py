"""One finding for everything that is in the wrong place for one reason: the cause and its lines, ops, and devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.evidence.roles import LOOKUPS
from harness.evidence.trace import Trace
from harness.judgement.diagnosis.wording import listed
from harness.records import Finding


class Misplaced(NamedTuple):
    """An op, the device that it belongs on, what is wrong, and how much of a shard's work is there, where it counts."""

    op: Op
    expected: DeviceName
    cause: str
    share: float | None = None


_LOOKUP = (
    "TensorFlow runs a lookup on its variable's device, whatever the scope; read the variable inside the scope first "
    "(variable.read_value()), or give each device its own part of the variable"
)
#: So many lines of the program are named.
_SHOWN = 3


def stray(
    kind: str,
    cause: str,
    where: str,
    mode: str,
    *,
    devices: Iterable[DeviceName | None],
    expected: str,
    found: str,
    place: str | None = None,
    wanted: Iterable[DeviceName] = (),
) -> Finding:
    """The finding. ``device`` is set where it is about one device alone; ``wanted`` are devices that lack work."""
    known = set(devices)
    device = known.pop() if len(known) == 1 else None
    fault, semicolon, remedy = cause.partition("; ")
    message = f"{fault} ({place}){semicolon}{remedy}" if place else cause
    on = None if device is None else str(device)
    names = tuple(map(str, sorted(set(wanted))))
    return Finding(kind, where, on, expected, found, message, mode=mode, wanted=names)


def named(devices: Iterable[DeviceName]) -> str:
    """One device by its full name, several by their short ones."""
    known = sorted(set(devices))
    return str(known[0]) if len(known) == 1 else listed([device.short for device in known])


def first_of(ops: Sequence[Op]) -> str:
    """The first op, how many more there are, and of which types."""
    more = f" and {len(ops) - 1} more ({', '.join(sorted({op.type for op in ops[1:]}))})" if len(ops) > 1 else ""
    return f"{ops[0].name} ({ops[0].type}){more}"


def lines(trace: Trace, ops: Iterable[Op]) -> str | None:
    """The first lines that made these ops, and who called them; of a tape of the harness, those of the forward op."""
    found = [trace.places.get(op.name) or trace.places.get(op.forward or "", ()) for op in ops]
    made = list(dict.fromkeys(places[0] for places in found if places))
    called = [line for line in dict.fromkeys(places[1] for places in found if len(places) > 1) if line not in made]
    if not made:
        return None
    return listed(made[:_SHOWN]) + (f", called at {listed(called[:_SHOWN])}" if called else "")


def cause_of(op: Op, own: Set[DeviceName], *, others: bool = False) -> str:
    """What is wrong with work on a shard that is away from the shard's own devices.

    ``others``: so is other work on the shard, in the same place, as a scope says.
    """
    if op.requested is None:
        return "work on a shard ran outside of the shard's device scope"
    # Some lookups open the scope of their table, whatever scope they are in.
    if op.type in LOOKUPS and (not others or any(device.matches(op.requested) for device in own)):
        return _LOOKUP
    return "work on a shard ran in a device scope that is not the shard's"
