"""Matches backward ops with forward ops by how they are wired, in a graph that was built while nobody watched.

A tape names its ops ``gradient_tape/<name scope of the forward op>/<op>``. So each has a few candidates: the ops of
that scope whose gradient can have such an op. Then the wiring decides. A tensor goes from one backward op to the next
either within the gradient of one forward op, or from that of an op to that of an op before it; and what a backward op
reads besides gradients are the inputs and outputs of its own forward op. What is still open goes with its neighbours,
as the ops of one gradient are made in a row.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.bodies import Body, node_of, port_of
from harness.evidence.derivatives import PASSED_THROUGH, derivative_of, may_begin, may_go_on, may_make, reads_output

_TAPE = "gradient_tape/"
#: What ``tf.vectorized_map`` and a tape's ``jacobian`` make of a backward op is named ``<its name>/pfor/<op>``.
_VECTORISED = "/pfor/"
#: Types whose gradient is made without an op.
_NO_FORWARD = frozenset(
    {"AddN", "Const", "Fill", "Identity", "IdentityN", "NoOp", "OnesLike", "Placeholder", "ReadVariableOp", "Shape"}
    | {"VarHandleOp", "ZerosLike", "_Arg", "_DeviceArg", "_Retval", "PartitionedCall", "StatefulPartitionedCall"}
)
#: How far away a neighbour may be, in ops.
_NEAR = 3
#: Which input of the forward op these make the gradient of.
_WHICH = {"BackpropInput": 0, "BackpropInputV2": 0, "BackpropFilter": 1, "BackpropFilterV2": 1}


def pair(body: Body) -> dict[str, str | None]:
    """The forward op (its node's name) of each backward op of a body, ``None`` where it cannot be told."""
    return _Pairing(body.nodes).run()


@dataclass(eq=False, slots=True)
class _Node:
    index: int
    name: str
    type: str
    tensors: tuple[str, ...]
    #: Hands out the results of a function with a gradient of its own (``tf.custom_gradient``).
    custom: bool
    sources: tuple[_Node, ...] = ()
    #: Made by a tape.
    tape: bool = False
    #: Part of a backward pass: made by a tape, a sum of gradients, or made by a custom gradient.
    backward: bool = False
    #: The forward ops that it may belong to.
    open: set[_Node] = field(default_factory=set)


class _Pairing:
    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = [
            _Node(
                index,
                node.name,
                node.op,
                tuple([_tensor(text) for text in node.input if text[0] != "^"]),
                "_gradient_op_type" in node.attr,
            )
            for index, node in enumerate(nodes)
        ]
        self.by_name = {node.name: node for node in self.nodes}
        #: The backward op that an op was made of by vectorising it.
        self.vectorised: dict[str, str] = {}
        for node in self.nodes:
            makers = [self.by_name.get(node_of(text)) for text in node.tensors]
            node.sources = tuple([maker for maker in makers if maker is not None])
            node.tape = node.backward = node.name.startswith(_TAPE)
            whole, _, part = node.name.partition(_VECTORISED)
            if node.tape and part and whole in self.by_name:
                self.vectorised[node.name] = whole
                node.tape = node.backward = False
        self.tape = [node for node in self.nodes if node.tape]
        self.before_cache: dict[_Node, frozenset[_Node]] = {}
        self.inside_cache: dict[_Node, frozenset[str]] = {}
        #: From a backward op to one that reads it: (from, to, tensor, summed up on the way).
        self.edges: list[tuple[_Node, _Node, str, bool]] = []
        self.edges_at: dict[_Node, list[tuple[_Node, _Node, str, bool]]] = {}

    def run(self) -> dict[str, str | None]:
        self.solve()
        # Custom gradients make their ops under names of the user's choice. Once they are known, more is.
        while any(node.custom for node in self.nodes) and self.find_custom():
            self.solve()
        self.follow_readers()
        found: dict[str, str | None] = {}
        for node in self.nodes:
            if node.backward:
                found[node.name] = _result(next(iter(node.open))).name if len(node.open) == 1 else None
        found.update({name: found.get(whole) for name, whole in self.vectorised.items()})
        return found

    def solve(self) -> None:
        for node in self.nodes:
            # A sum of the gradients of a tensor that is used more than once.
            if node.type == "AddN" and node.sources and all(source.backward for source in node.sources):
                node.backward = True
        self.find_candidates()
        self.find_edges()
        self.narrow(self.edges)
        self.join_neighbours()

    def find_custom(self) -> bool:
        """Find ops of custom gradients: they read the gradient of what a custom gradient's function returned."""
        new = []
        for node in self.nodes:
            if node.backward or node.type.startswith("_"):
                continue
            for text in node.tensors:
                for maker, _ in self.makers(text):
                    node.open |= {
                        forward
                        for one in maker.open
                        for forward in (one, *self.before(one))
                        if forward.custom and not forward.backward
                    }
            if node.open:
                node.backward = True
                new.append(node)
        new += self.find_custom_helpers()
        for node in new:
            self.prefer_what_is_read(node)
        return bool(new)

    def find_custom_helpers(self) -> list[_Node]:
        """Ops that only ops of custom gradients read are theirs too."""
        readers = _readers(self.nodes)
        first = min((node.index for node in self.tape), default=0)
        found = []
        for node in reversed(self.nodes[first:]):
            own = readers.get(node, ())
            if node.backward or node.type.startswith("_") or not own:
                continue
            if all(reader.backward and not reader.tape and reader.open for reader in own):
                node.open = set(own[0].open)
                node.backward = True
                found.append(node)
        return found

    def inside(self, custom: _Node) -> frozenset[str]:
        """The tensors inside a function with a custom gradient: those behind its results that are not its arguments."""
        if custom not in self.inside_cache:
            found: set[str] = set()
            waiting = list(custom.tensors[:1])
            while waiting:
                text = waiting.pop()
                maker = self.by_name.get(node_of(text))
                if text not in found:
                    found.add(text)
                    waiting.extend(maker.tensors if maker is not None and text not in custom.tensors[1:] else ())
            self.inside_cache[custom] = frozenset(found)
        return self.inside_cache[custom]

    def find_candidates(self) -> None:
        by_scope: dict[str, list[_Node]] = {}
        begun = defaultdict[str, set[str]](set)
        for node in self.tape:
            begun[_scope(node)].add(node.type)
        for node in self.nodes:
            if node.type not in _NO_FORWARD:
                # An op is made in the scope around it (Tanh), or in one of its own name (a MatMul of tf.matmul).
                by_scope.setdefault(node.name, []).append(node)
                if not any(may_begin(node.type, begin) for begin in begun[node.name]):
                    by_scope.setdefault(node.name.rpartition("/")[0], []).append(node)
        for node in self.tape:
            if node.type == "Const":
                continue
            scope = _scope(node)
            while True:
                found = {
                    candidate
                    for candidate in by_scope.get(scope, ())
                    if may_make(candidate.type, node.type)
                    and candidate is not node
                    # The gradient of a gradient is made after it.
                    and (candidate.index < node.index or not candidate.tape)
                }
                node.open = {c for c in found if derivative_of(c.type) is not None} or found
                if node.open or not scope:
                    break
                scope = scope.rpartition("/")[0]
            self.prefer_what_is_read(node)

    def prefer_what_is_read(self, node: _Node) -> None:
        """Of the candidates keep those whose own tensors the op reads most of."""
        if len(node.open) < 2:
            return
        reads = {candidate: sum(self.is_own(text, candidate) for text in node.tensors) for candidate in node.open}
        most = max(reads.values())
        node.open = {candidate for candidate, count in reads.items() if count == most}

    def is_own(self, tensor: str, forward: _Node) -> bool:
        """Whether a tensor is an input or an output of a forward op."""
        if forward.custom and tensor in self.inside(forward):
            return True
        return tensor in forward.tensors or (node_of(tensor) == forward.name and reads_output(forward.type))

    def find_edges(self) -> None:
        self.edges, self.edges_at = [], {}
        for node in self.nodes:
            for text in node.tensors if node.backward and node.open else ():
                for maker, summed in self.makers(text):
                    if maker.open:
                        edge = (maker, node, text, summed)
                        self.edges.append(edge)
                        self.edges_at.setdefault(maker, []).append(edge)
                        self.edges_at.setdefault(node, []).append(edge)

    def makers(self, tensor: str) -> list[tuple[_Node, bool]]:
        """The backward ops that made a tensor; several where gradients are added up."""
        maker = self.by_name.get(node_of(tensor))
        if maker is None or not maker.backward:
            return []
        if maker.type == "AddN" and not maker.tape:
            return [(found, True) for text in maker.tensors for found, _ in self.makers(text)]
        return [(maker, False)]

    def narrow(self, edges: list[tuple[_Node, _Node, str, bool]]) -> None:
        """Drop candidates that no edge allows, until nothing changes."""
        waiting = deque(edges)
        while waiting:
            edge = waiting.popleft()
            maker, reader, tensor, summed = edge
            pairs = [
                (one, other)
                for one in maker.open
                for other in reader.open
                if self.allows(maker, one, reader, other, tensor, summed)
            ]
            if not pairs:
                continue  # wired in a way that is not understood: this edge says nothing
            for node, left in ((maker, {one for one, _ in pairs}), (reader, {other for _, other in pairs})):
                if len(left) < len(node.open):
                    node.open = left
                    waiting.extend(self.edges_at.get(node, ()))

    def allows(self, maker: _Node, one: _Node, reader: _Node, other: _Node, tensor: str, summed: bool) -> bool:
        """Whether ``maker`` can belong to ``one`` and ``reader`` to ``other``."""
        if one is other and not summed and may_go_on(one.type, maker.type, reader.type):
            return True
        if other in self.behind(maker, one, tensor) and may_begin(other.type, reader.type):
            return True
        return self.is_own(tensor, other)

    def behind(self, maker: _Node, forward: _Node, tensor: str) -> frozenset[_Node]:
        """The ops whose gradient ``tensor``, made by an op of ``forward``'s gradient, may be."""
        which = _which_input(maker, forward, tensor)
        if which is None or which >= len(forward.sources):
            return self.before(forward)
        source = forward.sources[which]
        return self.before(source) | {source} if source.type in PASSED_THROUGH else frozenset({source})

    def before(self, node: _Node) -> frozenset[_Node]:
        """The ops whose outputs a forward op reads, those behind ops that only hand gradients through included."""
        if node not in self.before_cache:
            self.before_cache[node] = frozenset()
            found: set[_Node] = set()
            for source in node.sources:
                found.add(source)
                if source.type in PASSED_THROUGH:
                    found |= self.before(source)
            self.before_cache[node] = frozenset(found)
        return self.before_cache[node]

    def join_neighbours(self) -> None:
        for node in self.nodes:
            if len(node.open) < 2:
                continue
            choice = self.neighbour(node)
            if choice is not None:
                node.open = {choice}
                self.narrow(self.edges_at.get(node, []))

    def neighbour(self, node: _Node) -> _Node | None:
        for distance in range(1, _NEAR + 1):
            for at in (node.index - distance, node.index + distance):
                if 0 <= at < len(self.nodes) and len(self.nodes[at].open) == 1:
                    (forward,) = self.nodes[at].open
                    if forward in node.open:
                        return forward
        return None

    def follow_readers(self) -> None:
        """A constant, or what is made of constants alone, belongs to the op that reads it."""
        readers = _readers(self.tape)
        for node in reversed(self.tape):
            if not node.open and node in readers:
                node.open = set(readers[node][0].open)


def _readers(nodes: Iterable[_Node]) -> dict[_Node, list[_Node]]:
    """The ops among ``nodes`` that read each op."""
    readers: dict[_Node, list[_Node]] = {}
    for node in nodes:
        for source in node.sources:
            readers.setdefault(source, []).append(node)
    return readers


def _which_input(maker: _Node, forward: _Node, tensor: str) -> int | None:
    """Which input of the forward op a tensor is the gradient of, where that can be told; else ``None``."""
    if forward.type in ("ConcatV2", "Pack"):
        if maker.type == "Slice":
            # Where each part begins is one output of a ConcatOffset each.
            tensor = next((text for text in maker.tensors if "ConcatOffset" in text), "")
        return port_of(tensor) if maker.type in ("Slice", "SplitV", "Unpack") and tensor else None
    if forward.type.endswith(tuple(_WHICH)):
        return None
    return next((at for ending, at in _WHICH.items() if maker.type.endswith(ending)), None)


def _result(forward: _Node) -> _Node:
    """The op whose result a custom gradient's function returned: it hands it through Identity and IdentityN."""
    while forward.type in ("Identity", "IdentityN") and forward.sources:
        forward = forward.sources[0]
    return forward


def _scope(node: _Node) -> str:
    """The name scope of a backward op's forward op, and perhaps of the gradient function inside it."""
    return node.name.removeprefix(_TAPE).rpartition("/")[0]


def _tensor(text: str) -> str:
    return text.removesuffix(":0") if text.count(":") == 1 else text
