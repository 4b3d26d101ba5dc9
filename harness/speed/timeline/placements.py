"""The devices of the ops of a profile, from a recording of the same program.

The profiler does not report them. A recording has the parts into which TensorFlow splits each function, one per device,
with the names of their ops, and the eager ops in order with their devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.evidence.steps import Recording


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
    forward and gradient ops each device ran.
    """

    functions: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    eager: tuple[tuple[str, str | None], ...] = ()
    roles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def device_of(self, function: str | None, ops: frozenset[str]) -> str | None:
        """Find the only device that can have run these ops together, as a part of ``function``, or ``None``."""
        among = self.functions.get(function, self.parts) if function is not None else self.parts
        devices = {part.device for part in among if ops <= part.ops}
        return devices.pop() if len(devices) == 1 else None


def placements_of(recording: Recording) -> Placements:
    """Read the placements from a recording of one call."""
    functions: dict[str, tuple[Part, ...]] = {}
    for step in recording.steps:
        if step.body is not None:
            functions[step.type] = (*functions.get(step.type, ()), *_parts(step.body))
    parts = tuple(part for graph in recording.graphs for part in _parts(graph))
    eager = tuple((step.type, step.device) for step in recording.steps if not step.aside)
    return Placements(functions, parts, eager, _roles(recording))


def _parts(graph: Any) -> list[Part]:
    found = []
    for partition in graph.partitions:
        devices = {node.device for node in partition.node if node.device}
        if len(devices) == 1:
            found.append(Part(devices.pop(), frozenset(node.name for node in partition.node)))
    return found


def _roles(recording: Recording) -> dict[str, dict[str, int]]:
    from harness.evidence.build import build

    ops, *_ = build(recording)
    counts = Counter((str(op.device), op.role) for op in ops if op.device is not None)
    roles: dict[str, dict[str, int]] = {}
    for (device, role), count in sorted(counts.items()):
        if role in ("forward", "gradient"):
            roles.setdefault(device, {})[role] = count
    return roles
