"""The ops of a collected graph as the user wrote them, each backward op with its forward op.

Which forward op it is comes, in this order, from: the attribute that the recorder wrote while the graph was built; the
name that TensorFlow gives to the op (``gradients/Tanh_grad/TanhGrad``); and how the op is wired
(:mod:`harness.evidence.pairing`), for a graph that was built before it was first traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness._tensorflow import attribute_text
from harness.devices.name import DeviceName
from harness.evidence.bodies import Body, device_of, merge, open_bodies, symbolic_forward
from harness.evidence.pairing import pair
from harness.evidence.marks import BACKWARD_ATTRIBUTE, FORWARD_ATTRIBUTE, FORWARD_ELSEWHERE_ATTRIBUTE
from harness.evidence.roles import in_gradient_scope

#: Sums of gradients: they belong to no single forward op.
_SUMS = frozenset({"AddN"})


@dataclass(slots=True)
class UserOp:
    """One op as written. ``path`` is its name once inlined, ``forward`` the path of a backward op's forward op."""

    path: str
    type: str
    requested: DeviceName
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    gradient: bool
    forward: str | None
    unit: str | None
    #: Runs inside a ``tf.data`` pipeline: TensorFlow does not say where.
    in_data: bool


def user_ops(
    nodes: Sequence[Any],
    library: Mapping[str, Any],
    requested: DeviceName,
    *,
    arguments: Sequence[str] = (),
    backward_of: Sequence[Any] = (),
    unit: str | None = None,
) -> list[UserOp]:
    """All ops of a graph, those of the functions that it runs included.

    Args:
        nodes: of the graph before optimisation (``NodeDef``).
        library: its functions (``FunctionDef``) by name.
        requested: the device that the call of the graph asked for.
        arguments: paths of the ops that made the inputs of the graph, in the order of its ``_Arg`` nodes.
        backward_of: the nodes of the function whose gradient this graph computes, if it is a backward function. The
            ``forward`` of its ops then lies in that function.
        unit: path of the XLA cluster that the whole graph is, if it is one.
    """
    bodies = open_bodies(nodes, library, requested, unit)
    root = bodies[0]
    if backward_of:
        root.gradient = True
        root.forward = Body(FORWARD_PREFIX, requested, list(backward_of), "graph")
    root.arguments.update(_arguments(root, arguments))
    found = []
    for body in bodies:
        found.extend(_ops(body))
    return found


#: Stands before the name of an op in another graph: the one whose gradient a backward function computes.
FORWARD_PREFIX = "//"


def _arguments(root: Body, paths: Sequence[str]) -> dict[str, str]:
    """Which op outside made each argument of the graph."""
    if not paths:
        return {}
    nodes = [node for node in root.nodes if node.op in ("_Arg", "_DeviceArg")]
    return {
        node.name: paths[node.attr["index"].i]
        for node in nodes
        if node.attr["index"].i < len(paths) and paths[node.attr["index"].i]
    }


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
        if forward is None and gradient and node.op not in _SUMS:
            forward = body.of
        ops.append(
            UserOp(
                path=body.prefix + node.name,
                type=node.op,
                requested=merge(device_of(node), body.requested),
                attributes=node.attr,
                inputs=body.input_paths(node),
                gradient=gradient or forward is not None,
                forward=forward,
                unit=body.unit,
                in_data=body.kind == "data",
            )
        )
    return ops


def _named(body: Body, node: Any) -> str | None:
    """The forward op that an attribute, or the node's own name, says."""
    forward = body.forward
    here = attribute_text(node.attr, FORWARD_ATTRIBUTE)
    if here is not None and here in body.by_name:
        return body.prefix + here
    symbolic = symbolic_forward(node.name, forward) if forward is not None else None
    if forward is not None and symbolic is not None:
        return forward.prefix + symbolic
    elsewhere = attribute_text(node.attr, FORWARD_ELSEWHERE_ATTRIBUTE)
    around: Body | None = body
    while elsewhere is not None and around is not None:
        for candidate in (around.forward, around.parent):
            if candidate is not None and elsewhere in candidate.by_name:
                return candidate.prefix + elsewhere
        around = around.parent
    symbolic = symbolic_forward(node.name, body)
    return body.prefix + symbolic if symbolic is not None else None


def _needs_pairing(body: Body) -> bool:
    """Whether there are ops that a tape made in this body while nobody watched."""
    return any(
        node.name.startswith("gradient_tape/")
        and FORWARD_ATTRIBUTE not in node.attr
        and BACKWARD_ATTRIBUTE not in node.attr
        and FORWARD_ELSEWHERE_ATTRIBUTE not in node.attr
        and body.forward is None
        for node in body.nodes
    )
