"""Opens up a collected graph: its own nodes, and the bodies of the functions, branches and loops that it runs.

TensorFlow hands over the graph before optimisation together with a library of the functions that it calls. What it
places is that graph with the functions inlined; so each node gets the name that it has after inlining.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from harness.devices.name import DeviceName
from harness.evidence.functions import Kind, bodies_of, compiled_by_xla
from harness.evidence.marks import FORWARD_ATTRIBUTE
from harness.evidence.op_types import attribute_text

#: The name that TensorFlow gives to the function that computes the gradient of a loop's or a branch's function.
_GRADIENT_OF = re.compile(r"^(?P<forward>.+)_grad_\d+$")
#: ``gradients/<forward op>_grad/<op>``: what the symbolic gradient of a function calls its ops.
_SYMBOLIC = re.compile(r"(?:^|(?<=/))gradients(?:_\d+)?/")


#: A tensor: the path of the op that makes it, and which of the op's outputs it is.
Tensor = tuple[str, int]
#: In the place of the output's number: the op is only waited for.
WAITED_FOR = -1


@dataclass(eq=False)
class Body:
    """The nodes of one function where it is called, or of the whole graph.

    ``prefix`` stands before the names of its nodes once inlined. ``owner`` is the path of the node that runs it.
    ``forward`` is the body that this one computes the gradient of.
    """

    prefix: str
    requested: DeviceName
    nodes: list[Any]
    kind: Kind
    function: str = ""
    owner: str | None = None
    parent: Body | None = None
    #: What the arguments of the function are called inside, and the tensors that they are.
    arguments: dict[str, Tensor] = field(default_factory=dict)
    #: What the function returns: names of tensors inside.
    returns: list[str] = field(default_factory=list)
    #: The functions that it calls, by the name of the calling node.
    calls: dict[str, Body] = field(default_factory=dict)
    gradient: bool = False
    forward: Body | None = None
    unit: str | None = None
    #: Path of the innermost condition that decides whether this body runs.
    branch: str | None = None
    _renamed: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self.by_name = {node.name: node for node in self.nodes}

    def find(self, name: str) -> str | None:
        """The name here of a node that was called ``name`` while the function was built, or ``None``.

        TensorFlow renames a node that has the name of an argument or a result of its function: ``add`` to ``add_0``.
        """
        if name in self.by_name:
            return name
        if self._renamed is None:
            self._renamed = {}
            for node in self.nodes:
                base, _, number = node.name.rpartition("_")
                if base and number.isdigit() and base not in self.by_name:
                    known = self._renamed.get(base)
                    # The number 0 is never TensorFlow's way to tell two ops apart; otherwise it is the last one.
                    if known is None or not known.endswith("_0"):
                        self._renamed[base] = node.name
        return self._renamed.get(name)

    def inputs(self, node: Any) -> tuple[Tensor, ...]:
        """The tensors that a node reads."""
        return tuple([self.tensor_of(text) for text in node.input])

    def tensor_of(self, text: str) -> Tensor:
        """The tensor of this name. Arguments are followed out of the function, results of calls into it."""
        name = node_of(text)
        if text[0] == "^":
            return self.arguments[name][0] if name in self.arguments else self.prefix + name, WAITED_FOR
        if name in self.arguments:
            return self.arguments[name]
        at = port_of(text)
        called = self.calls.get(name)
        if called is not None and at < len(called.returns):
            return called.tensor_of(called.returns[at])
        return self.prefix + name, at


def node_of(text: str) -> str:
    """The node in the text of an input: ``name``, ``name:1``, ``name:output:0`` or ``^name``."""
    return text.removeprefix("^").partition(":")[0]


def port_of(text: str) -> int:
    """Which output of that node it is."""
    index = text.rpartition(":")[2]
    return int(index) if ":" in text and index.isdigit() else 0


@lru_cache(maxsize=4096)
def merge(inner: DeviceName, outer: DeviceName) -> DeviceName:
    """The device that ``inner`` asks for within ``outer``: what inner leaves open, outer decides."""
    return DeviceName(
        job=inner.job if inner.job is not None else outer.job,
        replica=inner.replica if inner.replica is not None else outer.replica,
        task=inner.task if inner.task is not None else outer.task,
        kind=inner.kind if inner.kind is not None else outer.kind,
        index=inner.index if inner.kind is not None else outer.index,
    )


@dataclass(frozen=True)
class Graph:
    """A graph before optimisation: its nodes (``NodeDef``), and the functions (``FunctionDef``) that it may call."""

    nodes: Sequence[Any]
    library: Mapping[str, Any]
    #: Of a function: what its arguments are called inside, and the tensors that it returns.
    arguments: Sequence[str] = ()
    returns: Sequence[str] = ()

    @classmethod
    def of(cls, definition: Any, own: Collection[str] | None = None) -> Graph:
        """From a ``GraphDef``; with ``own``, without all other nodes that are named after their type: eager ops'."""
        nodes = [node for node in definition.node if own is None or node.name != node.op or node.name in own]
        return cls(nodes, {function.signature.name: function for function in definition.library.function})

    @classmethod
    def of_function(cls, function: Any, library: Mapping[str, Any]) -> Graph:
        """From a ``FunctionDef``."""
        arguments = [argument.name for argument in function.signature.input_arg]
        returns = [function.ret[result.name] for result in function.signature.output_arg]
        return cls(function.node_def, library, arguments, returns)


def open_bodies(root: Body, library: Mapping[str, Any], forward: Sequence[Body] = ()) -> list[Body]:
    """A graph itself, then every function that it runs, a forward one before the one that computes its gradient.

    ``forward`` are the bodies of the graph whose gradient this one computes, if it does.
    """
    opener = _Opener(library)
    for body in forward:
        opener.by_function.setdefault(_plain(body.function), []).append(body)
    opener.add(root, frozenset())
    return opener.bodies


class _Opener:
    def __init__(self, library: Mapping[str, Any]) -> None:
        self.library = library
        self.bodies: list[Body] = []
        self.by_function: dict[str, list[Body]] = {}

    def add(self, body: Body, above: frozenset[str]) -> None:
        self.bodies.append(body)
        calls = [
            (node, part, kind, name)
            for node in body.nodes
            for part, kind, name in bodies_of(node, self.library)
            if name in self.library and name not in above
        ]
        calls.sort(key=lambda call: self.forward_function(call[3]) is not None)
        for node, part, kind, name in calls:
            inside = self.inside(body, node, part, kind, name)
            self.by_function.setdefault(_plain(name), []).append(inside)
            if kind == "call":
                body.calls[node.name] = inside
            self.add(inside, above | {name})

    def inside(self, body: Body, node: Any, part: str, kind: Kind, name: str) -> Body:
        function = self.library[name]
        path = body.prefix + node.name
        names = [argument.name for argument in function.signature.input_arg]
        # The first input of a branch decides; it is no argument of the branch.
        given = body.inputs(node)[1 if kind == "branch" else 0 :]
        forward = self.forward_of(body, node, name)
        return Body(
            prefix=f"{path}/{part}",
            requested=merge(device_of(node), body.requested),
            nodes=list(function.node_def),
            kind=kind,
            function=name,
            owner=path,
            parent=body,
            arguments={} if kind == "data" else dict(zip(names, given, strict=False)),
            returns=[function.ret[result.name] for result in function.signature.output_arg],
            gradient=body.gradient or self.forward_function(name) is not None,
            forward=forward,
            unit=body.unit or (path if compiled_by_xla(node, function) else None),
            branch=path if kind == "branch" else body.branch,
        )

    def forward_function(self, name: str) -> str | None:
        """Name of the function that this one computes the gradient of, or ``None``."""
        if "__backward_" in name:
            return attribute_text(self.library[name].attr, "forward_function_name") or ""
        match = _GRADIENT_OF.match(name)
        return _plain(match["forward"]) if match else None

    def forward_of(self, body: Body, node: Any, name: str) -> Body | None:
        """The body that the one of a backward function computes the gradient of."""
        forward = self.forward_function(name)
        if forward is None:
            return None
        near = (body, body.forward)
        found = [c for c in self.by_function.get(forward, ()) if c.parent in near and c.parent is not None]
        if not forward:
            # The function does not say; what feeds it does.
            found = [c for bodies in self.by_function.values() for c in bodies if c.parent is body and c.kind == "call"]
        found = found or self.by_function.get(forward, [])
        if len(found) <= 1:
            return found[0] if found else None
        named = attribute_text(node.attr, FORWARD_ATTRIBUTE)
        if named is None and body.forward is not None:
            named = symbolic_forward(node.name, body.forward)
        if named is not None:
            exact = [c for c in found if c.parent is not None and c.owner == f"{c.parent.prefix}{c.parent.find(named)}"]
            if exact:
                return exact[0]
        # Several calls of one function: it is the one that feeds this. A gradient that reads nothing of its forward
        # call, such as that of a sum, could be of any of them, and stays without one.
        inputs = [body.prefix + node_of(text) for text in node.input]
        fed = [sum(path == candidate.owner for path in inputs) for candidate in found]
        best = [candidate for candidate, count in zip(found, fed, strict=True) if count == max(fed) > 0]
        return best[0] if len(best) == 1 else None


def _plain(name: str) -> str:
    return name.removesuffix("_rewritten")


def symbolic_forward(name: str, forward: Body) -> str | None:
    """The node of ``forward`` whose gradient a node of this name computes: ``gradients/Tanh_grad/TanhGrad``."""
    for start in reversed(list(_SYMBOLIC.finditer(name))):
        rest = name[start.end() :]
        end = rest.rfind("_grad/")
        while end > 0:
            found = forward.find(rest[:end])
            if found is not None:
                return found
            end = rest.rfind("_grad/", 0, end)
    return None


def device_of(node: Any) -> DeviceName:
    """The device that a node asks for."""
    return DeviceName.parse(node.device)
