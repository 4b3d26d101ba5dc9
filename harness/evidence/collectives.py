"""The collectives of a trace: on which device each ran, and how many bytes that device gave to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness._tensorflow import CollectedGraph
from harness.devices.name import DeviceName
from harness.evidence.roles import role_of
from harness.evidence.sizes import Shape, sizes_of


@dataclass(frozen=True, slots=True)
class Collective:
    """One device's part of a collective op. ``size_bytes`` is what it gives to it, ``None`` where that is not known."""

    type: str
    device: DeviceName
    name: str
    size_bytes: int | None = None


def collectives_of(graph: CollectedGraph, name: str, shapes: Sequence[Shape] = ()) -> list[Collective]:
    """The collectives of one executed function; arguments as for ``sizes.transfers_of``."""
    nodes = [node for part in graph.partitions for node in part.node if role_of(node.op) == "collective" and node.input]
    if not nodes:
        return []
    # The first input of each, before tensors were sent between partitions.
    given = {node.name: node.input[0] for node in graph.after.node if role_of(node.op) == "collective" and node.input}
    sizes = sizes_of(graph.after, [given[node.name] for node in nodes if node.name in given], shapes)
    return [
        Collective(node.op, DeviceName.parse(node.device), f"{name}/{node.name}", sizes.get(given.get(node.name, "")))
        for node in nodes
    ]
