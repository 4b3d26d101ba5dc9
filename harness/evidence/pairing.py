"""Matches backward ops with forward ops by how they are wired, in a graph that was built while nobody watched.

A tape names its ops ``gradient_tape/<name scope of the forward op>/<op>``, and makes all ops of one forward op's
gradient in a row. Within the scope the forward op is the one whose gradient can have such an op, and whose tensors it
reads: the gradient that arrives, the forward op's own inputs and outputs, or what another op of the same gradient made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.bodies import Body, node_of
from harness.evidence.derivatives import PASSED_THROUGH, may_make

_TAPE = "gradient_tape/"
#: An op of a gradient that finishes what the one before it began: sums and shapes back what was broadcast.
_FINISHES = frozenset({("Sum", "Reshape"), ("Reshape", "Tile"), ("Reshape", "BroadcastTo"), ("Tile", "RealDiv")})


def pair(body: Body) -> dict[str, str | None]:
    """The forward op (its node's name) of each backward op of a body, ``None`` where it cannot be told."""
    return _Pairing(body).run()


@dataclass(slots=True)
class _Node:
    index: int
    name: str
    type: str
    inputs: tuple[str, ...]
    #: The tensors that this op makes the gradients of, if it is a backward op.
    gradient_of: frozenset[str] = frozenset()
    forward: _Node | None = None
    tied: tuple[_Node, ...] = field(default=())


class _Pairing:
    def __init__(self, body: Body) -> None:
        self.nodes = [
            _Node(index, node.name, node.op, tuple(_tensor(text) for text in node.input if not text.startswith("^")))
            for index, node in enumerate(body.nodes)
        ]
        self.by_name = {node.name: node for node in self.nodes}
        self.by_scope: dict[str, list[_Node]] = {}
        for node in self.nodes:
            self.by_scope.setdefault(node.name, []).append(node)
            scope = node.name.rpartition("/")[0]
            self.by_scope.setdefault(scope, []).append(node)
        self.behind_cache: dict[str, frozenset[str]] = {}
        self.backward: set[str] = set()

    def run(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for node in self.nodes:
            if node.name.startswith(_TAPE):
                self.backward.add(node.name)
                self.settle(node)
            elif node.type == "AddN" and node.inputs and all(node_of(t) in self.backward for t in node.inputs):
                self.backward.add(node.name)
                node.gradient_of = frozenset().union(*(self.by_name[node_of(t)].gradient_of for t in node.inputs))
                found[node.name] = None
        self.break_ties()
        for node in self.nodes:
            if node.name.startswith(_TAPE):
                found[node.name] = node.forward.name if node.forward is not None else None
        return found

    def settle(self, node: _Node) -> None:
        ranked: dict[int, tuple[float, _Node]] = {}
        for candidate in self.candidates(node):
            ranked[candidate.index] = (self.score(node, candidate), candidate)
        if not ranked:
            return
        best = max(score for score, _ in ranked.values())
        top = [candidate for score, candidate in ranked.values() if score == best]
        if len(top) == 1:
            self.assign(node, top[0])
        elif best > 0 or not node.inputs:
            node.tied = tuple(top)
            node.gradient_of = frozenset().union(*(self.inputs_of(candidate) for candidate in top))

    def assign(self, node: _Node, forward: _Node) -> None:
        node.forward = forward
        node.tied = ()
        node.gradient_of = self.inputs_of(forward)

    def candidates(self, node: _Node) -> Iterator[_Node]:
        """Ops that were made earlier, in the scope that the name says, whose gradient can have an op of this type."""
        scope = node.name.removeprefix(_TAPE).rpartition("/")[0]
        while True:
            found = [
                candidate
                for candidate in self.by_scope.get(scope, ())
                if candidate.index < node.index and may_make(candidate.type, node.type)
            ]
            if found or not scope:
                yield from found
                return
            scope = scope.rpartition("/")[0]

    def score(self, node: _Node, forward: _Node) -> float:
        own = {*forward.inputs}
        score = 0.0
        for tensor in node.inputs:
            maker = self.by_name.get(node_of(tensor))
            if tensor in own or node_of(tensor) == forward.name:
                score += 1.0
            if maker is None or maker.name not in self.backward:
                continue
            if maker.forward is forward:
                score += 2.5 if (maker.type, node.type) in _FINISHES else 1.5
            if any(node_of(source) == forward.name for source in self.behind(maker)):
                score += 2.0
        return score

    def behind(self, maker: _Node) -> frozenset[str]:
        """The tensors that an op makes the gradients of; where an op hands its gradient on unchanged, its inputs too."""
        found: set[str] = set()
        for tensor in maker.gradient_of:
            found |= self.passed(tensor)
        return frozenset(found)

    def passed(self, tensor: str) -> frozenset[str]:
        if tensor not in self.behind_cache:
            self.behind_cache[tensor] = frozenset({tensor})
            found = {tensor}
            maker = self.by_name.get(node_of(tensor))
            if maker is not None and maker.type in PASSED_THROUGH:
                for source in maker.inputs:
                    found |= self.passed(source)
            self.behind_cache[tensor] = frozenset(found)
        return self.behind_cache[tensor]

    def inputs_of(self, forward: _Node) -> frozenset[str]:
        return frozenset(forward.inputs)

    def break_ties(self) -> None:
        """What is left open belongs with its neighbours: a gradient's ops are made in a row."""
        for node in self.nodes:
            if not node.tied:
                continue
            for distance in (1, -1, 2, -2, 3, -3):
                at = node.index + distance
                if 0 <= at < len(self.nodes) and self.nodes[at].forward in node.tied:
                    forward = self.nodes[at].forward
                    assert forward is not None
                    self.assign(node, forward)
                    break


def _tensor(text: str) -> str:
    """The name of a tensor, the same for ``node`` and ``node:0``."""
    return text.removesuffix(":0") if text.count(":") == 1 else text
