"""Judges what crosses between devices, for programs that say by which pattern they use them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import JOINS, computes, floats, on_device
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.diagnosis.wording import listed
from harness.judgement.strays import lines, stray
from harness.judgement.wiring import IDENTITIES, Wiring, reached
from harness.records import Finding

#: The patterns that verify knows: ``stages``, each device hands on to its neighbour; ``members``, none hands on.
PATTERNS = ("stages", "members")
#: Why a tensor of a stage went to another device than the next one.
_SKIPPED = "a stage may pass tensors only to the next device: an op or a whole stage is on the wrong device"
#: The gradient of each operand is that of the sum, where the shapes are equal.
_SUMS = frozenset({"Add", "AddN", "AddV2", "BiasAdd"})

#: Something that crosses: what made it, what reads it, and the places of both among the devices (-1: none of them).
_Edge = tuple[Op, Op, int, int]


def judge_pattern(trace: Trace, devices: Devices, pattern: str, mode: str) -> list[Finding]:
    """Findings of the kinds ``transfer`` and ``variable-placement``.

    ``stages``: what a stage computes is read on its own device and on the next one, gradients on the one before.
    ``members``: what a device computes is read there alone, and where the results are joined on the host. Both: the
    variables that a device works with are there.
    """
    wiring = Wiring(trace)
    edges = list(_edges(wiring, devices))
    wrong = _between_stages if pattern == "stages" else _between_members
    others = [edge for edge in edges if edge[0].role != "variable"]
    strays = [(edge, message) for edge in others if (message := wrong(wiring, devices, edge))]
    # A single number, such as a learning rate, may be fetched.
    sizes = {transfer.tensor: transfer.size_bytes for transfer in trace.transfers}
    weights = [
        (edge, _AWAY)
        for edge in edges
        if edge[0].role == "variable" and (sizes.get(edge[0].name) or _NUMBER_BYTES + 1) > _NUMBER_BYTES
    ]
    return [*_findings("transfer", strays, trace, mode), *_findings("variable-placement", weights, trace, mode)]


#: A number of the widest type, complex128.
_NUMBER_BYTES = 16
_AWAY = "a variable is not on the device of the op that reads it, and is copied in every call"


def _edges(wiring: Wiring, devices: Devices) -> Iterator[_Edge]:
    """Every tensor that was computed, or read from a variable, on one device and is read on another."""
    place = {device.parsed: index for index, device in enumerate(devices)}
    for op in wiring.ops:
        if op.device is None or op.role in ("data", "constant") or not on_device(op):
            continue
        if op.role == "control" and (op.type not in IDENTITIES or op.requested is None):
            continue  # an identity in no scope is what a tf.function returns by
        for name in dict.fromkeys(op.inputs):
            before = _executed(wiring, name)
            source = wiring.maker(name)
            source = before if source is not None and source.device is None else source
            if before is None or before.device is None or source is None or source.device is None:
                continue
            # By the model, forward or backward; an optimizer's update is no part of it.
            read = source.role == "variable" and on_device(source) and op.role in ("forward", "gradient")
            # An optimizer's count of its steps is an integer, and may be anywhere.
            if floats(source.dtypes) and before.device != op.device and (computes(source) or read):
                yield source, op, place.get(before.device, -1), place.get(op.device, -1)


def _executed(wiring: Wiring, name: str) -> Op | None:
    """The op of this name; for one that was optimised away, the op before it that took it in."""
    op = wiring.by_name.get(name)
    while op is not None and op.device is None and op.inputs and (op.type in IDENTITIES or len(op.inputs) == 1):
        op = wiring.by_name.get(op.inputs[0])
    return op


def _between_stages(wiring: Wiring, devices: Devices, edge: _Edge) -> str:
    source, reader, start, end = edge
    if computes(reader) and reader.requested is None and reader.role == "forward":
        return ""  # after the pipeline, in no scope: what the caller does with the results
    if source.role == "gradient" and (
        (reader.requested is None and start == 0) or _to_its_maker(wiring, devices, source, reader)
    ):
        return ""
    if start < 0 and source.role == "forward" and not _comes_from(wiring, source, devices):
        return ""  # before the pipeline: what the caller does with the arguments
    if start < 0 or end < 0:
        return "a stage's tensor passes through a device that is not part of the pipeline"
    if source.role == "forward" and reader.role == "forward" and end != start + 1:
        return "" if end == start - 1 and _goes_back(wiring, source, reader) else _SKIPPED
    if source.role == "gradient" and end != start - 1:
        return "a stage may pass gradients only to the previous device: an op is on the wrong device"
    return ""


def _goes_back(wiring: Wiring, source: Op, reader: Op) -> bool:
    """Whether a stage gets a gradient that the program computes itself, without a tape.

    It brings this together with what it handed on in the forward pass, and hands nothing on any more.
    """
    place = reader.device

    def here(op: Op) -> bool:
        return op.device == place and op.role in ("forward", "control")

    after = [*reached([reader], lambda op: [each for each in wiring.readers(op) if here(each)])]
    handed_on = {each.name for each in reached([source], wiring.before) if here(each) and computes(each)}
    used = reached(after, lambda op: [each for each in wiring.before(op) if here(each)])
    readers = [each for op in after for each in wiring.readers(op)]
    onward = any(each.device == source.device and each.role == "forward" for each in readers)
    return not onward and any(op.name in handed_on for op in used)


def _to_its_maker(wiring: Wiring, devices: Devices, source: Op, reader: Op) -> bool:
    """Whether a gradient goes to the device that its tensor was made on, or was handed on by.

    Stages hand on what they do not use, and the gradient of an identity is no op: it goes back in one step. The
    gradient of an argument may be added up or joined wherever that happens without a scope, and on the host, where
    arguments are; so may that of what a host beside the devices made of one, such as its micro-batches.
    """
    own, host = {device.parsed for device in devices}, DeviceName.parse(devices.host)

    def adds_up(op: Op) -> bool:
        """Whether an op is the sum of several gradients of one tensor."""
        return op.role == "gradient" and op.forward not in wiring.by_name

    def summands(op: Op) -> list[Op]:
        return wiring.before(op) if adds_up(op) else []

    for op in reached([source], summands):
        forward = wiring.by_name.get(op.forward or "")
        for before, summed in _handed_back(wiring, () if forward is None else forward.inputs):
            argument = before is None or before.role == "data" or (before.device == host and host not in own)
            # Behind a sum, the gradient is that of an argument, is added to others of the operand, or goes to the
            # backward op of what made it.
            if summed and not argument and not adds_up(reader) and (before is None or reader.forward != before.name):
                continue
            if before is not None and before.type in IDENTITIES and before.inputs:
                if (before.device or before.requested) == reader.device:
                    return True
            elif before is None or argument:
                if reader.requested is None or reader.device == host:
                    return True
            elif before.device == reader.device:
                return True  # a variable that is away from its stage is another finding
    return False


def _handed_back(wiring: Wiring, names: Iterable[str]) -> Iterator[tuple[Op | None, bool]]:
    """The makers of tensors, and those behind identities, sums and differences: no op computes their gradients.

    With each, whether it is behind a sum or difference.
    """
    left, seen = [(name, False) for name in names], set(names)
    while left:
        name, summed = left.pop()
        op = wiring.by_name.get(name)
        yield op, summed
        if op is None or op.type not in IDENTITIES | _SUMS | {"Sub"}:
            continue
        # Of an IdentityN, the first input is the result of a custom gradient's function; of a Sub, it is not negated.
        handed = op.inputs if op.type in _SUMS else op.inputs[:1]
        left += [(each, summed or op.type not in IDENTITIES) for each in handed if each not in seen]
        seen.update(handed)


def _comes_from(wiring: Wiring, op: Op, devices: Devices) -> bool:
    """Whether an op works on what passed by one of the devices, in its scope."""
    own = {device.parsed for device in devices}
    behind = reached(wiring.before(op), wiring.before)
    return any(each.role in ("forward", "control") and each.requested in own for each in behind)


def _between_members(wiring: Wiring, devices: Devices, edge: _Edge) -> str:
    source, reader, start, end = edge
    if start < 0 or end < 0:
        return ""
    several = len({maker.device for maker in wiring.makers(reader)}) > 1
    host = DeviceName.parse(devices.host)
    joined = reader.device == host and reader.type in JOINS | _SUMS and several
    # In no scope: what the caller does with the results, or the tape with the gradients of shared arguments.
    if joined or (reader.requested is None and (reader.role == "forward" or reader.type in _SUMS)):
        return ""
    if source.role == "gradient" and reader.device == host and _to_its_maker(wiring, devices, source, reader):
        return ""
    return (
        f"one model reads the result of a {source.role} op of another model; in an ensemble, only arguments and "
        "results may move between devices"
    )


def _findings(kind: str, found: list[tuple[_Edge, str]], trace: Trace, mode: str) -> list[Finding]:
    """One finding for what crosses between devices for the same reason, naming the first of it."""
    groups: dict[str, list[_Edge]] = defaultdict(list)
    for edge, message in found:
        groups[message].append(edge)
    findings = []
    for message, edges in groups.items():
        first, by, _, _ = edges[0]
        more = "" if len(edges) == 1 else f" and {len(edges) - 1} more"
        ways = dict.fromkeys((source.device, reader.device) for source, reader, _, _ in edges)
        findings.append(
            stray(
                kind,
                message,
                f"{first.name} ({first.type}), read by {by.name} ({by.type}){more}",
                mode,
                devices=[reader for _, reader in ways],
                expected=f"nothing from {listed(sorted({source.short for source, _ in ways if source is not None}))}",
                found=listed([f"{source and source.short} to {reader and reader.short}" for source, reader in ways]),
                place=lines(trace, [reader for _, reader, _, _ in edges]) or lines(trace, [edge[0] for edge in edges]),
            )
        )
    return findings
