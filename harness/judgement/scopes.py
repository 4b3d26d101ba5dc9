"""Finds work that stands in the wrong device scope, or in none, although it ran where that scope put it."""

from __future__ import annotations

from collections.abc import Iterator

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.judgement.arithmetic import JOINS, LOOKUPS, SPLITS, computes, on_device
from harness.judgement.wiring import Wiring

#: An op, the device that it belongs on, and what is wrong.
Misplaced = tuple[Op, DeviceName, str]

LOOKUP_MESSAGE = (
    "TensorFlow runs a lookup on its variable's device; read the variable inside the scope, or give each device "
    "its own part"
)
_SUMS = frozenset({"Add", "AddN", "AddV2", "Sub"})
_SCALES = frozenset({"Mul", "RealDiv", "Div", "DivNoNan", "Neg"})
_VIEWS = frozenset({"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze"})
_TOTALS = frozenset({"Sum", "Mean"})


def left_scope(wiring: Wiring, devices: Devices) -> Iterator[Misplaced]:
    """Work on one device's tensor that was done outside of its scope, so on the default device (FAULTS P14).

    Adding up what several devices made, weighted or not, is the host's work and no fault.
    """
    names = {device.parsed for device in devices}
    for op in wiring.ops:
        if op.role != "forward" or op.requested is not None or not computes(op):
            continue
        sources = [maker for maker in wiring.makers(op) if maker.role not in ("constant", "variable")]
        carried = [source for source in sources if _carried_along(source, wiring)]
        scoped = [source for source in sources if source.requested is not None]
        origins = {_where(source, names) for source in (*scoped, *carried)}
        if len(origins) != 1 or any(_outside(source) for source in sources if source not in carried):
            continue
        (origin,) = origins
        places = {op.device} if op.device is not None else wiring.users(op)
        if origin not in names or len(places) != 1 or origin in places:
            continue
        if not (_is_linear(op, sources) and _summed(op, wiring)):
            yield op, origin, "the op uses a tensor from that device but is outside its device scope"


def _where(op: Op, names: set[DeviceName]) -> DeviceName | None:
    """Where an op ran; where it was optimised away, the device that its scope asked for."""
    if op.device is not None or op.requested is None:
        return op.device
    return next((name for name in names if name.matches(op.requested)), None)


def _carried_along(op: Op, wiring: Wiring) -> bool:
    """Whether an op without a scope ran on a device because it was fused into an op whose scope asked for that device.

    oneDNN does so with ``tf.matmul(x, w) + b`` on CPUs.
    """
    if op.requested is not None or op.executed_type in (None, op.type):
        return False
    return any(
        maker.executed_type == op.executed_type
        and maker.device == op.device
        and (maker.requested is not None or _carried_along(maker, wiring))
        for maker in wiring.makers(op)
    )


def _outside(op: Op) -> bool:
    return op.requested is None and computes(op)


def _is_linear(op: Op, sources: list[Op]) -> bool:
    return op.type in _SUMS or (op.type in _SCALES and len(sources) == 1)


def _summed(op: Op, wiring: Wiring, depth: int = 0) -> bool:
    """Whether all that ``op`` makes goes, scaled at most, into a sum over what several devices made."""
    readers = wiring.readers(op)
    return bool(readers) and depth < 8 and all(_sums(reader, wiring, depth) for reader in readers)


def _sums(reader: Op, wiring: Wiring, depth: int) -> bool:
    if reader.type in JOINS | _SUMS and len(reader.inputs) > 1 and len(set(reader.inputs)) > 1:
        made = [maker for maker in wiring.makers(reader) if maker.role != "constant"]
        if len(made) > 1:
            return reader.type in _SUMS or _totalled(reader, wiring)
    return reader.type in _SUMS | _SCALES | _VIEWS and _summed(reader, wiring, depth + 1)


def _totalled(op: Op, wiring: Wiring, depth: int = 0) -> bool:
    readers = wiring.readers(op)
    return bool(readers) and all(
        reader.type in _TOTALS
        or (reader.type in _SCALES | _VIEWS and depth < 4 and _totalled(reader, wiring, depth + 1))
        for reader in readers
    )


def joined_on_a_tower(wiring: Wiring, devices: Devices) -> Iterator[Misplaced]:
    """A split or a join of several devices' tensors inside the scope of one of them (FAULTS P12)."""
    host = DeviceName.parse(devices.host)
    names = {device.parsed for device in devices} - {host}
    for op in wiring.ops:
        if op.type not in JOINS | SPLITS or op.device not in names or op.requested is None or op.role != "forward":
            continue
        readers = [reader for reader in wiring.readers(op) if computes(reader)]
        if op.type in SPLITS:
            targets = {reader.device for reader in readers}
            made_here = any(source.device == op.device and computes(source) for source in wiring.makers(op))
            if len(targets) > 1 and not made_here:
                yield (
                    op,
                    host,
                    "a batch for several devices is split inside the scope of one of them; split it on the host",
                )
        elif not any(reader.device == op.device for reader in readers):
            # What the host only hands out is a part of the batch, not the result of a tower.
            sources = {
                source.device
                for source in wiring.makers(op)
                if source.requested and on_device(source) and (computes(source) or source.device != host)
            }
            if len(sources - {None}) > 1:
                yield (
                    op,
                    host,
                    "results from several devices are joined inside the scope of one of them; join them on the host",
                )


def looked_up_elsewhere(wiring: Wiring, devices: Devices) -> Iterator[Misplaced]:
    """Rows of one variable looked up for several devices, all on the variable's device (FAULTS P11).

    ``tf.nn.embedding_lookup`` leaves the scope that it is called in by itself, so the lookup runs where it asks to.
    """
    names = {device.parsed for device in devices}
    users: list[tuple[Op, DeviceName]] = []
    for op in wiring.ops:
        if op.type in LOOKUPS and op.role == "forward" and op.device is not None:
            found = {_where(reader, names) for reader in wiring.readers(op) if reader.requested is not None}
            if len(found) == 1 and (user := found.pop()) is not None:
                users.append((op, user))
    if len({user for _, user in users}) > 1:
        for op, user in users:
            at_home = op.requested is None or (op.device is not None and op.device.matches(op.requested))
            if user != op.device and at_home:
                yield op, user, LOOKUP_MESSAGE
