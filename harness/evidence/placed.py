"""What TensorFlow made of a collected graph: where each of the user's ops ran, and what was sent between devices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness._tensorflow import CollectedGraph, attribute_text, output_dtypes
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.evidence.roles import role_of
from harness.evidence.userops import FORWARD_PREFIX, OUTSIDE_PREFIX, UserOp

#: Inlining a branch or a loop body adds a number behind its part of the name: ``cond/then/_25/cond/Exp``.
_INLINED = re.compile(r"(?<=/)(then|else|body|cond|branch\d+)/_\d+(?=/)")
#: Where the optimizer puts what replaces ops, named after the rule and the last of those ops.
_REWRITTEN = re.compile(r"(?:^|(?<=/))ArithmeticOptimizer/(?P<rule>[A-Za-z0-9]+)_(?P<name>[^/]+)$")
SENDS = frozenset({"_Send", "_HostSend"})
#: Named after the op whose tensor they copy, with a number behind it: no evidence of where that op ran.
_COPIES = SENDS | {"_Recv", "_HostRecv"}
_ARGUMENTS = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"})
_PLUMBING = (
    _COPIES
    | _ARGUMENTS
    | frozenset({"NoOp", "Identity", "Enter", "Exit", "Merge", "Switch", "LoopCond", "NextIteration", "Const"})
    | {"IdentityN", "_SwitchN", "HostConst", "_HostConst", "ControlTrigger"}
)
_ADDITIONS = frozenset({"Add", "AddN", "AddV2"})
_CONSTANTS = frozenset({"Const", "HostConst", "_HostConst"})
#: What stands for an op that the optimizer has done away with: it computed the result itself, or needed none.
_REMOVED = _CONSTANTS | {"NoOp"}


@dataclass(frozen=True, slots=True)
class Placed:
    """A node as it was executed. ``device`` is ``None`` where several graphs at once say different things."""

    type: str
    device: DeviceName | None
    inputs: tuple[str, ...]


def working_nodes(graph: CollectedGraph) -> list[list[Any]]:
    """The nodes of each partition that do something, partitions that only hand over arguments left out."""
    parts = [[node for node in part.node if node.op not in _ARGUMENTS | _COPIES] for part in graph.partitions]
    return [nodes for nodes in parts if nodes]


def kernels_of(graph: CollectedGraph, own: Collection[str] = ()) -> list[tuple[str, DeviceName]]:
    """The eager kernels in what TensorFlow handed over as one graph: op type and device.

    ``own`` are the names of the nodes of the function whose graph it is, if it is one. Ops that run eagerly while a
    function runs, from another thread or from a ``tf.py_function``, are handed over together with its graph.
    """
    return [
        (nodes[0].op, DeviceName.parse(nodes[0].device))
        for nodes in working_nodes(graph)
        if len(nodes) == 1 and nodes[0].name == nodes[0].op and nodes[0].name not in own
    ]


def placed_nodes(graph: CollectedGraph, requested: DeviceName) -> dict[str, Placed]:
    """Every executed node by the name that its op has after inlining.

    Two calls that ran at the same time are handed over in one: of two nodes with one name, the one that is where
    ``requested`` says counts.
    """
    found: dict[str, Placed] = {}
    for part in graph.partitions:
        for node in part.node:
            if node.op in _COPIES:
                continue
            path = user_path(node.name)
            device = DeviceName.parse(node.device)
            known = found.get(path)
            if known is not None and known.device != device:
                choices = [d for d in (known.device, device) if d is not None and d.matches(requested)]
                one = choices[0] if len(choices) == 1 and requested != DeviceName() else None
                found[path] = Placed(node.op, one, known.inputs)
            else:
                found[path] = Placed(node.op, device, tuple(node.input))
    return found


def ops_of(
    graph: CollectedGraph, written: Sequence[UserOp], requested: DeviceName, name: str, forward_name: str | None
) -> list[Op]:
    """The ops of one executed function, named below ``name``.

    ``written`` are its ops as the user wrote them. ``forward_name`` is the name of the call whose backward function
    this is, if it is one.
    """
    placed = placed_nodes(graph, requested)
    taken_in = _taken_in(written, placed)
    ops = [_op(op, placed.get(op.unit or op.path) or taken_in.get(op.path), name, forward_name) for op in written]
    known = {op.path for op in written}
    shown = {id(node) for node in taken_in.values()}
    ops.extend(
        Op(
            name=f"{name}/{path}",
            type=node.type,
            executed_type=node.type,
            device=node.device,
            requested=None,
            role=role_of(node.type, path),
        )
        for path, node in placed.items()
        if path not in known and node.type not in _PLUMBING and id(node) not in shown
    )
    return ops


def _op(op: UserOp, found: Placed | None, name: str, forward_name: str | None) -> Op:
    forward = None
    if op.forward is not None:
        if op.forward.startswith(FORWARD_PREFIX):
            forward = f"{forward_name}/{op.forward[len(FORWARD_PREFIX) :]}"
        else:
            forward = f"{name}/{op.forward}"
    if found is not None and found.type in _REMOVED and op.type not in _PLUMBING:
        found = None
    return Op(
        name=f"{name}/{op.path}",
        type=op.type,
        executed_type=None if found is None else ("XlaCluster" if op.unit is not None else found.type),
        device=None if found is None else found.device,
        requested=op.requested if op.requested != DeviceName() else None,
        role="data" if op.in_data else role_of(op.type, op.path, gradient=op.gradient),
        forward=forward,
        dtypes=output_dtypes(op.type, op.attributes),
        inputs=tuple([outside(source, name) for source in op.inputs]),
        unit=f"{name}/{op.unit}" if op.unit is not None else None,
    )


def outside(source: str, name: str) -> str:
    """The name in the trace of an op by its path in the graph; a path of another graph is a name already."""
    return source.removeprefix(OUTSIDE_PREFIX) if source.startswith(OUTSIDE_PREFIX) else f"{name}/{source}"


def _taken_in(written: Sequence[UserOp], placed: Mapping[str, Placed]) -> dict[str, Placed]:
    """What ran in the place of ops that the optimizer took into another: MatMul in the _FusedMatMul of its BiasAdd."""
    by_path = {op.path: op for op in written}
    found: dict[str, Placed] = {}
    for path, node in placed.items():
        match = _REWRITTEN.search(path)
        last = by_path.get(path) if match is None else _replaced(path[: match.start()], match["name"], by_path, placed)
        if last is None or (match is None and not _is_fused(node.type, last.type)):
            continue
        if match is not None:
            found.setdefault(last.path, node)
        # The new op stands where the last of those that it took in stood; the others are found going up from there.
        frontier = [last]
        while frontier:
            sources = [by_path[source] for op in frontier for source in op.inputs if source in by_path]
            frontier = [
                op
                for op in sources
                if op.path not in placed
                and op.path not in found
                and op.type not in _CONSTANTS
                and (match is None or op.type in _ADDITIONS)
            ]
            found.update((op.path, node) for op in frontier)
    return found


def _replaced(scope: str, name: str, by_path: Mapping[str, UserOp], placed: Mapping[str, Placed]) -> UserOp | None:
    """The op that the optimizer replaced, from the name of the new one: ``add_3`` in ``AddOpsRewrite_Leaf_0_add_3``."""
    while name:
        op = by_path.get(scope + name)
        if op is not None and op.path not in placed:
            return op
        name = name.partition("_")[2]
    return None


def _is_fused(executed: str, written: str) -> bool:
    """Whether an op ran as one that does more than was written: not merely as another kernel of the same op."""
    return executed.startswith("_") and ("Fused" in executed or written not in executed)


def user_path(name: str) -> str:
    """The name of an op from that of its executed node."""
    return _INLINED.sub(r"\1", name)


def sends_of(graph: CollectedGraph) -> Iterator[tuple[Any, DeviceName, DeviceName]]:
    """The copies between devices of one executed function: the ``_Send`` node, from where, to where."""
    for part in graph.partitions:
        signals = {node.name for node in part.node if _is_signal(node)}
        for node in part.node:
            if node.op not in SENDS or not node.input or node.input[0].startswith("^"):
                continue
            source = attribute_text(node.attr, "send_device")
            destination = attribute_text(node.attr, "recv_device")
            if source and destination and source != destination and node.input[0].partition(":")[0] not in signals:
                yield node, DeviceName.parse(source), DeviceName.parse(destination)


def _is_signal(node: Any) -> bool:
    """Whether a constant is one of the empty ones that TensorFlow sends so that one op waits for another."""
    return (
        node.op in _CONSTANTS
        and "value" in node.attr
        and [dimension.size for dimension in node.attr["value"].tensor.tensor_shape.dim] == [0]
        and node.name.rpartition("/")[2].startswith("_")
    )
