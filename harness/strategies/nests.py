"""Nests from leaves by path: ``"x"``, ``"pair.0"`` or ``"out.left"``. Numbers make tuples, names make dicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from harness.errors import UsageError

Leaf = TypeVar("Leaf")


def pack(leaves: Iterable[tuple[str, Leaf]]) -> Any:
    """Return the nest with leaves at these paths; the empty path is a single leaf.

    Raises:
        UsageError: two leaves claim the same place, or the numbers of a tuple are not 0, 1, 2 …
    """
    items = list(leaves)
    if [path for path, _ in items] == [""]:
        return items[0][1]
    branches: dict[str, list[tuple[str, Leaf]]] = {}
    for path, leaf in items:
        head, _, rest = path.partition(".")
        branches.setdefault(head, []).append((rest, leaf))
    for head, inner in branches.items():
        if not head or (len(inner) > 1 and any(not rest for rest, _ in inner)):
            paths = ", ".join(repr(path) for path, _ in items)
            raise UsageError(f"paths {paths}: two leaves claim the same place; accepted: one leaf for each path")
    if all(head.isdecimal() for head in branches):
        if sorted(branches, key=int) != [str(index) for index in range(len(branches))]:
            raise UsageError(f"paths with the numbers {', '.join(branches)}; accepted: 0, 1, 2 … without a gap")
        return tuple(pack(branches[str(index)]) for index in range(len(branches)))
    return {head: pack(inner) for head, inner in branches.items()}


def leaf_at(nest: Any, path: str) -> Any:
    """The leaf of ``nest`` at ``path``."""
    for key in path.split(".") if path else ():
        nest = nest[int(key) if key.isdecimal() else key]
    return nest
