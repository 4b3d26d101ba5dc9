"""How often the ops in loops of a placed graph run, as far as constants tell.

TensorFlow lowers a loop to a *frame*: ``Enter`` brings a value in, ``Merge`` takes it from there or from the pass
before (``NextIteration``), ``LoopCond`` says whether there is another pass, and ``Exit`` hands the value on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.lazy import tf

#: What hands on a number as it is.
_VIEWS = frozenset({"Enter", "Identity", "Merge"})


def unroll(graph: Any) -> None:
    """Let each loop of a ``GraphDef`` have one pass, of ops that TensorFlow knows the shapes of."""
    passed = {node.name for node in graph.node if node.op == "NextIteration"}
    for node in graph.node:
        if node.op == "Enter" or (node.op == "Merge" and _name(node.input[-1]) in passed):
            node.op = "Identity"
            del node.input[1:]
            for name in {*node.attr} - {"T"}:
                del node.attr[name]


def passes(graph: Any) -> dict[str, int]:
    """How often each node in a loop of a ``GraphDef`` runs, by its name, where that is known."""
    nodes = {node.name: node for node in graph.node}
    if not any(node.op == "LoopCond" for node in graph.node):
        return {}
    frames = _frames(nodes)
    counts: dict[tuple[str, ...], int] = {}
    for node in graph.node:
        if node.op == "LoopCond" and (count := _count(nodes, node.input[0])) is not None:
            counts[frames[node.name]] = count
    found = {}
    for name, frame in frames.items():
        number = 1
        for depth in range(len(frame)):
            number *= counts.get(frame[: depth + 1], 1)
        if frame and number > 0:
            found[name] = number
    return found


def _frames(nodes: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The loops that each node is in, the outermost first."""
    found: dict[str, tuple[str, ...]] = {}
    for start in nodes:
        stack = [start]
        while stack:
            name = stack[-1]
            node = nodes[name]
            read = [_name(text) for text in node.input[: 1 if node.op == "Merge" else None]]
            read = [each for each in read if each in nodes]
            if name not in found and (missing := [each for each in read if each not in found and each not in stack]):
                stack += missing
                continue
            stack.pop()
            frame = max((found.get(each, ()) for each in read), key=len, default=())
            if node.op == "Enter":
                frame = (*frame, node.attr["frame_name"].s.decode())
            found.setdefault(name, frame[:-1] if node.op == "Exit" else frame)
    return found


def _count(nodes: Mapping[str, Any], condition: str) -> int | None:
    """How often a condition holds for a number that grows by one in each pass; ``None`` where it is another one."""
    node = nodes[_name(condition)]
    if node.op == "LogicalAnd":
        known = [count for text in node.input[:2] if (count := _count(nodes, text)) is not None]
        return min(known, default=None)
    if node.op != "Less":
        return None
    first, last = (_number(nodes, text) for text in node.input[:2])
    return None if first is None or last is None else max(last - first, 0)


def _number(nodes: Mapping[str, Any], text: str) -> int | None:
    """The whole number that a tensor is, in a loop at first, and after a loop in the end.

    A loop that computes a gradient counts up to the number of passes that its forward loop took.
    """
    node = nodes.get(_name(text))
    while node is not None and node.op in _VIEWS and node.input:
        node = nodes.get(_name(node.input[0]))
    if node is not None and node.op == "Exit":
        counted, condition = (nodes[_name(each)] for each in nodes[_name(node.input[0])].input[:2])
        first, passed = _number(nodes, counted.input[0]), _count(nodes, condition.input[0])
        return None if first is None or passed is None else first + passed
    if node is None or node.op != "Const":
        return None
    value = tf.make_ndarray(node.attr["value"].tensor)
    return int(value) if value.ndim == 0 and value.dtype.kind in "iu" else None


def _name(text: str) -> str:
    """The node that a tensor, or a control input, is of."""
    return text.partition(":")[0].removeprefix("^")
