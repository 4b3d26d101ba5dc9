"""The ops of a collected graph as the user wrote them, each backward op with its forward op.

Which forward op it is comes, in this order, from: the attribute that the recorder wrote while the graph was built; the
name that TensorFlow gives to the op (``gradients/Tanh_grad/TanhGrad``); and how the op is wired
(:mod:`harness.evidence.pairing`), for a graph that was built before it was first traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.devices.name import DeviceName
from harness.evidence.bodies import Body, Graph, Tensor, device_of, merge, open_bodies, symbolic_forward
from harness.evidence.marks import BACKWARD_ATTRIBUTE, FORWARD_ATTRIBUTE, FORWARD_ELSEWHERE_ATTRIBUTE, MARKS
from harness.evidence.op_types import attribute_text
from harness.evidence.pairing import pair
from harness.evidence.roles import in_gradient_scope


@dataclass(slots=True)
class UserOp:
    """One op as written. ``path`` is its name once inlined, ``forward`` the path of a backward op's forward op."""

    path: str
    type: str
    #: The function that it is a node of, or the graph, and what stands there.
    body: Body
    node: Any
    requested: DeviceName
    inputs: tuple[Tensor, ...]
    gradient: bool
    forward: str | None


@dataclass(frozen=True, slots=True)
class UserOps:
    """The ops of a graph, and its results by their number."""

    ops: list[UserOp]
    returned: dict[int, Tensor]


#: Stands before the name of an op in another graph: the one whose gradient a backward function computes.
FORWARD_PREFIX = "//"
#: Stands before the name, in the trace, of an op outside the graph.
OUTSIDE_PREFIX = "="


def user_ops(
    graph: Graph,
    requested: DeviceName,
    *,
    arguments: Sequence[Tensor | None] = (),
    gradient_of: Graph | None = None,
    unit: str | None = None,
) -> UserOps:
    """All ops of a graph, those of the functions that it runs included.

    Args:
        graph: as the user wrote it.
        requested: the device that the call of the graph asked for.
        arguments: the inputs of the graph in the order of its ``_Arg`` nodes, each by the name in the trace of the
            op that made it; ``None`` where that is not known.
        gradient_of: the graph whose gradient this one computes, if it is that of a backward function. The ``forward``
            of its ops then lies in that graph, and begins with :data:`FORWARD_PREFIX`.
        unit: name of the XLA cluster that the whole graph is, if it is one.
    """
    root = Body("", requested, list(graph.nodes), "graph", unit=unit)
    root.arguments.update(_arguments(graph, arguments))
    forward: list[Body] = []
    if gradient_of is not None:
        forward = open_bodies(Body(FORWARD_PREFIX, requested, list(gradient_of.nodes), "graph"), gradient_of.library)
        root.gradient = True
        root.forward = forward[0]
    ops = [op for body in open_bodies(root, graph.library, forward) for op in _ops(body)]
    results = [(node.attr["index"].i, node.input[0]) for node in root.nodes if node.op == "_Retval" and node.input]
    returned = {index: root.tensor_of(text) for index, text in results or enumerate(graph.returns)}
    return UserOps(ops, returned)


def name_in_trace(path: str, call: str, forward_call: str | None = None) -> str:
    """The name in the trace of an op of a graph, by its path.

    Args:
        path: in the graph, or with one of the prefixes above outside of it.
        call: the name of the graph's call.
        forward_call: that of the call whose gradient the graph computes, if it does.
    """
    if path.startswith(FORWARD_PREFIX):
        return f"{forward_call}/{path.removeprefix(FORWARD_PREFIX)}"
    return path.removeprefix(OUTSIDE_PREFIX) if path.startswith(OUTSIDE_PREFIX) else f"{call}/{path}"


def inputs_in_trace(op: UserOp, call: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The ``inputs`` and the ``ports`` of an op in the trace."""
    names = tuple([name_in_trace(path, call) for path, _ in op.inputs])
    return names, tuple([port for _, port in op.inputs]) if any(port for _, port in op.inputs) else ()


def _arguments(graph: Graph, given: Sequence[Tensor | None]) -> dict[str, Tensor]:
    """The tensor outside that each argument of the graph is."""
    numbered = [*((name, at) for at, name in enumerate(graph.arguments))]
    numbered += [(node.name, node.attr["index"].i) for node in graph.nodes if node.op in ("_Arg", "_DeviceArg")]
    known = {name: given[at] for name, at in numbered if at < len(given)}
    return {name: (OUTSIDE_PREFIX + tensor[0], tensor[1]) for name, tensor in known.items() if tensor is not None}


def _ops(body: Body) -> list[UserOp]:
    wired = pair(body) if _needs_pairing(body) else {}
    ops = []
    for node in body.nodes:
        if node.op.startswith("_"):
            continue
        gradient = body.gradient or BACKWARD_ATTRIBUTE in node.attr or in_gradient_scope(node.name)
        forward = _named(body, node)
        if forward is None and node.name in wired:
            gradient = True
            partner = wired[node.name]
            forward = body.prefix + partner if partner is not None else None
        # A sum of gradients belongs to no single forward op.
        if forward is None and gradient and node.op != "AddN":
            forward = body.forward.owner if body.forward is not None else None
        ops.append(
            UserOp(
                path=body.prefix + node.name,
                type=node.op,
                body=body,
                node=node,
                requested=merge(device_of(node), body.requested),
                inputs=body.inputs(node),
                gradient=gradient or forward is not None,
                forward=forward,
            )
        )
    return ops


def _named(body: Body, node: Any) -> str | None:
    """The forward op that an attribute, or the node's own name, says."""
    forward = body.forward
    here = attribute_text(node.attr, FORWARD_ATTRIBUTE)
    if here is not None and (found := body.find(here)) is not None:
        return body.prefix + found
    if forward is not None and (found := symbolic_forward(node.name, forward)) is not None:
        return forward.prefix + found
    elsewhere = attribute_text(node.attr, FORWARD_ELSEWHERE_ATTRIBUTE)
    around: Body | None = body
    while elsewhere is not None and around is not None:
        for candidate in (around.forward, around.parent):
            if candidate is not None and (found := candidate.find(elsewhere)) is not None:
                return candidate.prefix + found
        around = around.parent
    found = symbolic_forward(node.name, body)
    return body.prefix + found if found is not None else None


def _needs_pairing(body: Body) -> bool:
    """Whether there are ops that a tape made in this body while nobody watched."""
    return body.forward is None and any(
        node.name.startswith("gradient_tape/") and not any(mark in node.attr for mark in MARKS) for node in body.nodes
    )
