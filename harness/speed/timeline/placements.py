"""The devices of the ops of a profile, from a recording of the same program.

The profiler does not report them. A recording has the parts into which TensorFlow splits each function, one per device,
with the names of their ops, and the eager ops in order with their devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from harness.evidence.arithmetic import computes

if TYPE_CHECKING:
    from harness.evidence.op import Op
    from harness.evidence.steps import Recording


_HEAVY = ("MatMul", "Conv", "Einsum")


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a function that one device runs."""

    device: str
    ops: frozenset[str]


@dataclass(frozen=True, slots=True)
class Placements:
    """The placements of one call of a program.

    ``functions`` are the parts of each function that was called, by its name; ``parts`` those of all functions;
    ``eager`` the ops and calls that the calling thread started, in order, with their devices; ``roles`` how many
    forward and gradient ops each device ran; ``independent_share`` and ``apart`` are those
    of :class:`Profile`.
    """

    functions: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    eager: tuple[tuple[str, str | None], ...] = ()
    roles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    independent_share: float | None = None
    apart: bool = False

    def device_of(self, function: str | None, ops: frozenset[str]) -> str | None:
        """Find the only device that can have run these ops together, as a part of ``function``, or ``None``."""
        among = self.functions.get(function, self.parts) if function is not None else self.parts
        devices = {part.device for part in among if ops <= part.ops}
        return devices.pop() if len(devices) == 1 else None


def placements_of(recording: Recording, ops: Sequence[Op]) -> Placements:
    """Read the placements from a recording of one call, and from the ops of its trace."""
    functions: dict[str, tuple[Part, ...]] = {}
    for step in recording.steps:
        if step.body is not None:
            functions[step.type] = (*functions.get(step.type, ()), *_parts(step.body))
    parts = tuple(part for graph in recording.graphs for part in _parts(graph))
    eager = tuple((step.type, step.device) for step in recording.steps if not step.aside)
    apart = len(eager) == 1 and independent_share(ops, of_results=False) == 1
    return Placements(functions, parts, eager, _roles(ops), independent_share(ops), apart)


def _parts(graph: Any) -> list[Part]:
    found = []
    for partition in graph.partitions:
        devices = {node.device for node in partition.node if node.device}
        if len(devices) == 1:
            found.append(Part(devices.pop(), frozenset(node.name for node in partition.node)))
    return found


def independent_share(ops: Sequence[Op], *, of_results: bool = True) -> float | None:
    """Return the share of the pairs of heavy ops on different devices in which neither needs the other's result.

    With ``of_results=False``, of those in which neither comes after the other one for any reason.

    Heavy ops are products and convolutions, or whatever computes where two devices have none of those. ``None`` where
    only one device computes.
    """
    computing = [op for op in ops if op.device is not None and computes(op)]
    heavy = [op for op in computing if any(part in op.type for part in _HEAVY)]
    if len({op.device for op in heavy}) < 2:
        heavy = computing
    numbers = {op.name: number for number, op in enumerate(heavy)}
    on_device: dict[Any, int] = {}
    for number, op in enumerate(heavy):
        on_device[op.device] = on_device.get(op.device, 0) | 1 << number
    pairs = (len(heavy) ** 2 - sum(mask.bit_count() ** 2 for mask in on_device.values())) // 2
    if not pairs:
        return None
    needed: dict[str, int] = {}
    dependent = 0
    for op in ops:
        # What a read of a variable waits for is a control dependency, and no result that it needs.
        results = () if of_results and op.role in ("variable", "constant") else op.inputs
        before = reduce(or_, (needed.get(name, 0) for name in results), 0)
        if op.name in numbers:
            dependent += (before & ~on_device[op.device]).bit_count()
            before |= 1 << numbers[op.name]
        needed[op.name] = before
    return 1 - dependent / pairs


def _roles(ops: Sequence[Op]) -> dict[str, dict[str, int]]:
    own = "SyncDevice"  # of the harness, which waits for the device
    counts = Counter((str(op.device), op.role) for op in ops if op.device is not None and op.type != own)
    roles: dict[str, dict[str, int]] = {}
    for (device, role), count in sorted(counts.items()):
        if role in ("forward", "gradient"):
            roles.setdefault(device, {})[role] = count
    return roles
