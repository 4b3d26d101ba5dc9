"""The placement of a program as a graph: ops that belong together as one box, and what flows between the boxes.

Ops belong together if they have a device, a role and the beginning of their name: the scope of a layer, or that of the
user. The names are cut shorter until there are few enough boxes to look at, so that 10,000 ops are a picture too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.devices.name import DeviceName
from harness.evidence.op import Evidence, Op
from harness.evidence.updates import update_arithmetic

#: What is drawn; constants, and what only hands on or waits, are left out.
_ROLES = ("forward", "gradient", "update", "collective", "variable", "data")
_NUMBER = re.compile(r"_\d+$")
#: Before the names of backward ops.
_TAPE = re.compile(r"^gradient(?:_tape|s)?/")
_CALL = re.compile(r"^(?:Stateful)?PartitionedCall(?:_\d+)?$")
#: The longest names that are kept, in parts.
_DEEPEST = 5


@dataclass
class Box:
    """Ops of one device and role. ``row`` is where it stands from top to bottom: below what it reads."""

    device: DeviceName
    role: str
    label: str
    count: int = 0
    row: int = 0


@dataclass
class Flow:
    """What one box reads of another. ``copied`` counts the bytes that went to another device, where they are known."""

    source: int
    target: int
    tensors: int = 0
    copied: int = 0


@dataclass
class PlacementGraph:
    """Boxes, and what flows between them. ``depth`` is how many parts of the names are kept."""

    boxes: list[Box] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    ops: int = 0

    @property
    def devices(self) -> list[DeviceName]:
        """The devices that have a box."""
        return sorted({box.device for box in self.boxes})


def placement_graph(evidence: Evidence, most: int = 24) -> PlacementGraph:
    """At most ``most`` boxes, or one for each device and role."""
    updates = update_arithmetic(evidence)
    ops = [op for op in evidence.ops if op.device is not None and op.role in _ROLES]
    roles = {op.name: "update" if op.name in updates else op.role for op in ops}
    labels: Mapping[str, str] = {}
    for name in _namings():
        # Variables and updates are parts of no layer; the numbers of sums of gradients say nothing.
        labels = {op.name: "" if roles[op.name] in ("variable", "update") else name(op) for op in ops}
        sums = (op for op in ops if op.role == "gradient" and op.type == "AddN")
        labels |= {op.name: _NUMBER.sub("", labels[op.name]) for op in sums}
        if len({(op.device, roles[op.name], labels[op.name]) for op in ops}) <= most:
            break
    made = _Maker(evidence, ops, roles, labels)
    return made.graph()


def _namings() -> Iterator[Callable[[Op], str]]:
    """Ways to name the box of an op, from the finest to the coarsest."""
    for depth in range(_DEEPEST, 0, -1):
        yield lambda op, depth=depth: "/".join(_parts(op)[:depth])  # type: ignore[misc]
    for depth in range(2, 0, -1):
        yield lambda op, depth=depth: "/".join(_NUMBER.sub("", part) for part in _parts(op)[:depth])  # type: ignore[misc]
    yield lambda _: ""


def _parts(op: Op) -> list[str]:
    """The scopes of an op, without the traced function and calls; of an op in no scope, its own name."""
    parts = [part for part in op.name.split("/") if part]
    inside = parts[1:] if len(parts) > 1 else parts
    inside = [part for part in inside if not _CALL.match(part)] or inside
    inside = _TAPE.sub("", "/".join(inside)).split("/")
    return inside[:-1] if len(inside) > 1 else inside


class _Maker:
    def __init__(
        self, evidence: Evidence, ops: Sequence[Op], roles: Mapping[str, str], labels: Mapping[str, str]
    ) -> None:
        self.evidence = evidence
        self.ops = ops
        self.made = PlacementGraph(ops=len(ops))
        self.by_name = {op.name: op for op in evidence.ops}
        self.box_of: dict[str, int] = {}
        keys: dict[tuple[DeviceName | None, str, str], int] = {}
        for op in ops:
            key = op.device, roles[op.name], labels[op.name]
            if key not in keys and op.device is not None:
                keys[key] = len(self.made.boxes)
                self.made.boxes.append(Box(op.device, roles[op.name], labels[op.name]))
            self.box_of[op.name] = keys[key]
            self.made.boxes[keys[key]].count += 1

    def graph(self) -> PlacementGraph:
        flows: dict[tuple[int, int], Flow] = {}
        readers: dict[tuple[str, DeviceName | None], int] = {}
        for op in self.ops:
            own = self.box_of[op.name]
            for name in self._sources(op):
                readers.setdefault((name, op.device), own)
                if (source := self.box_of.get(name)) is not None and source != own:
                    flows.setdefault((source, own), Flow(source, own)).tensors += 1
        for transfer in self.evidence.transfers:
            maker = transfer.tensor.partition(":")[0]
            target = readers.get((maker, transfer.destination))
            if target is not None:
                source = self.box_of.get(maker)
                source = self._given(transfer.source, maker) if source is None else source
                flow = flows.setdefault((source, target), Flow(source, target))
                flow.copied += transfer.size_bytes or 0
        self.made.flows = list(flows.values())
        self._place()
        return self.made

    def _given(self, device: DeviceName, name: str) -> int:
        """The box of what the program is given, or of its constants."""
        role, label = ("constant", "constants") if name in self.by_name else ("data", "arguments")
        for at, box in enumerate(self.made.boxes):
            if (box.device, box.label, box.role) == (device, label, role):
                return at
        self.made.boxes.append(Box(device, role, label))
        return len(self.made.boxes) - 1

    def _sources(self, op: Op) -> Iterator[str]:
        """The ops and arguments that an op reads from, seen through ops that are not drawn."""
        waiting, seen = list(op.inputs), {op.name}
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            maker = self.by_name.get(name)
            if maker is None or name in self.box_of:
                yield name
            else:
                if not maker.inputs:
                    yield name
                waiting += maker.inputs

    def _place(self) -> None:
        """Give each box a row below those that it reads, and no two of a device the same one."""
        order = {name: at for at, name in enumerate(self._in_order())}
        places: dict[int, list[int]] = defaultdict(list)
        for name, number in self.box_of.items():
            places[number].append(order.get(name, 0))
        # Variables stand above what first reads one.
        mean = {
            number: float(min(each)) if self.made.boxes[number].role == "variable" else sum(each) / len(each)
            for number, each in places.items()
        }
        before: dict[int, list[int]] = defaultdict(list)
        for flow in self.made.flows:
            before[flow.target].append(flow.source)
        taken: dict[DeviceName, int] = defaultdict(lambda: -1)
        done: set[int] = set()
        for at in sorted(range(len(self.made.boxes)), key=lambda at: mean.get(at, -1.0)):
            box = self.made.boxes[at]
            behind = [self.made.boxes[each].row for each in before[at] if each in done]
            box.row = max([taken[box.device], *behind]) + 1
            taken[box.device] = box.row
            done.add(at)

    def _in_order(self) -> list[str]:
        """The ops, each behind those that it reads."""
        done: dict[str, None] = {}
        for first in self.evidence.ops:
            stack = [first.name]
            open_ones: set[str] = set()
            while stack:
                name = stack[-1]
                op = self.by_name.get(name)
                left = [] if op is None or name in open_ones else [each for each in op.inputs if each not in done]
                open_ones.add(name)
                if left:
                    stack += left
                else:
                    done.setdefault(stack.pop())
        return list(done)
