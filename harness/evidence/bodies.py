"""Opens up a collected graph: its own nodes, and the bodies of the functions, branches and loops that it runs.

TensorFlow hands over the graph before optimisation together with a library of the functions that it calls. What it
places is that graph with the functions inlined; so each node gets the name that it has after inlining.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from harness.devices.name import DeviceName
from harness.evidence.functions import Kind, bodies_of, compiled_by_xla
from harness.evidence.marks import FORWARD_ATTRIBUTE

#: Names that TensorFlow gives to the functions that compute gradients: of a loop's or a branch's function, of a call.
_GRADIENT_OF = re.compile(r"^(?P<forward>.+)_grad_\d+$")
_BACKWARD = re.compile(r"__backward_")
#: ``gradients/<forward op>_grad/<op>``: what the symbolic gradient of a function calls its ops.
_SYMBOLIC = re.compile(r"(?:^|(?<=/))gradients(?:_\d+)?/")

@dataclass(eq=False)
class Body:
    """The nodes of one function where it is called, or of the whole graph.

    ``prefix`` stands before the names of its nodes once inlined. ``owner`` is the path of the node that runs it.
    ``forward`` is the body that this one computes the gradient of, and ``of`` the path of the op that ran that one.
    """

    prefix: str
    requested: DeviceName
    nodes: list[Any]
    kind: Kind
    function: str = ""
    owner: str | None = None
    parent: Body | None = None
    #: What the arguments of the function are called inside, and the paths of the ops that make them.
    arguments: dict[str, str] = field(default_factory=dict)
    gradient: bool = False
    forward: Body | None = None
    of: str | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        self.by_name = {node.name: node for node in self.nodes}

    def input_paths(self, node: Any) -> tuple[str, ...]:
        """Paths of the ops that make the inputs of a node, arguments of the function followed outwards."""
        found = []
        for text in node.input:
            name = node_of(text)
            found.append(self.arguments.get(name) or self.prefix + name)
        return tuple(found)


def node_of(text: str) -> str:
    """The node in the text of an input: ``name``, ``name:1``, ``name:output:0`` or ``^name``."""
    return text.removeprefix("^").partition(":")[0]


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


def open_bodies(
    nodes: Iterable[Any], library: Mapping[str, Any], requested: DeviceName, unit: str | None = None
) -> list[Body]:
    """The graph itself, then every function that it runs, a forward one before the one that computes its gradient."""
    root = Body("", requested, list(nodes), "graph", unit=unit)
    return _Opener(library).open(root)


class _Opener:
    def __init__(self, library: Mapping[str, Any]) -> None:
        self.library = library
        self.bodies: list[Body] = []
        self.by_function: dict[str, list[Body]] = {}

    def open(self, root: Body) -> list[Body]:
        self.add(root, frozenset())
        return self.bodies

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
            self.add(inside, above | {name})

    def inside(self, body: Body, node: Any, part: str, kind: Kind, name: str) -> Body:
        function = self.library[name]
        path = body.prefix + node.name
        unit = body.unit
        if unit is None and compiled_by_xla(node, function):
            unit = path
        names = [argument.name for argument in function.signature.input_arg]
        # The first input of a branch decides; it is no argument of the branch.
        given = body.input_paths(node)[1 if kind == "branch" else 0 :]
        forward = self.forward_of(body, node, part, name)
        return Body(
            prefix=f"{path}/{part}",
            requested=merge(device_of(node), body.requested),
            nodes=list(function.node_def),
            kind=kind,
            function=name,
            owner=path,
            parent=body,
            arguments={} if kind == "data" else dict(zip(names, given, strict=False)),
            gradient=body.gradient or self.forward_function(name) is not None,
            forward=forward,
            of=forward.owner if forward is not None else None,
            unit=unit,
        )

    def forward_function(self, name: str) -> str | None:
        """Name of the function that this one computes the gradient of, or ``None``."""
        attributes = self.library[name].attr
        if "forward_function_name" in attributes and _BACKWARD.search(name):
            return str(attributes["forward_function_name"].s.decode())
        if _BACKWARD.search(name):
            return ""
        match = _GRADIENT_OF.match(name)
        return _plain(match["forward"]) if match else None

    def forward_of(self, body: Body, node: Any, part: str, name: str) -> Body | None:
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
        named = node.attr[FORWARD_ATTRIBUTE].s.decode() if FORWARD_ATTRIBUTE in node.attr else None
        if named is None and body.forward is not None:
            named = symbolic_forward(node.name, body.forward)
        if named is not None:
            exact = [c for c in found if c.owner == (c.parent.prefix if c.parent else "") + named]
            if exact:
                return exact[0]
        inputs = body.input_paths(node)
        return max(found, key=lambda candidate: sum(path == candidate.owner for path in inputs))


def _plain(name: str) -> str:
    return name.removesuffix("_rewritten")


def symbolic_forward(name: str, forward: Body) -> str | None:
    """The node of ``forward`` whose gradient a node of this name computes: ``gradients/Tanh_grad/TanhGrad``."""
    for start in reversed(list(_SYMBOLIC.finditer(name))):
        rest = name[start.end() :]
        end = rest.rfind("_grad/")
        while end > 0:
            if rest[:end] in forward.by_name:
                return rest[:end]
            end = rest.rfind("_grad/", 0, end)
    return None


def device_of(node: Any) -> DeviceName:
    """The device that a node asks for."""
    return DeviceName.parse(node.device)
