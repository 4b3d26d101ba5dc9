"""Which functions a node of a graph runs, and how TensorFlow runs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

Kind = Literal["graph", "call", "branch", "loop", "data"]


def bodies_of(node: Any, library: Collection[str]) -> Iterator[tuple[str, Kind, str]]:
    """The functions that become a part of the graph: (part of the name after inlining, kind, function's name)."""
    control = node.op.removeprefix("Stateless")
    if node.op in library:
        yield "", "call", node.op
    elif node.op in CALLS:
        yield "", "call", _function(node, "f")
    elif control == "If":
        yield "then/", "branch", _function(node, "then_branch")
        yield "else/", "branch", _function(node, "else_branch")
    elif control == "While":
        yield "cond/", "loop", _function(node, "cond")
        yield "body/", "loop", _function(node, "body")
    elif control == "Case":
        for index, branch in enumerate(node.attr["branches"].list.func):
            yield f"branch{index}/", "branch", branch.name
    elif "Dataset" in node.op:
        for attribute, value in sorted(node.attr.items()):
            if value.WhichOneof("value") == "func":
                yield f"{attribute}/", "data", value.func.name


def called_by(node: Any) -> Iterator[str]:
    """The names of all functions that the attributes of a node hold."""
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            yield from (function.name for function in value.list.func)


def compiled_by_xla(*holders: Any) -> bool:
    """Whether one of these (a call node, the function that it calls) says: XLA must compile this as one unit."""
    return any("_XlaMustCompile" in holder.attr and holder.attr["_XlaMustCompile"].b for holder in holders)


def _function(node: Any, attribute: str) -> str:
    return str(node.attr[attribute].func.name) if attribute in node.attr else ""
