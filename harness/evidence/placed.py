"""What TensorFlow made of a collected graph: where each of the user's ops ran, and what was sent between devices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness._tensorflow import CollectedGraph
from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.evidence.op_types import attribute_text, output_dtypes, written_type
from harness.evidence.roles import role_of
from harness.evidence.userops import UserOp, inputs_in_trace, name_in_trace
from harness.tensorflow_version import RECEIVES, SENDS

#: Inlining a branch or a loop body adds a number behind its part of the name: ``cond/then/_25/cond/Exp``.
_INLINED = re.compile(r"(?<=/)(then|else|body|cond|branch\d+)/_\d+(?=/)")
#: Where the optimizer puts what replaces ops, named after the rule and the last of those ops.
_REWRITTEN = re.compile(r"(?:^|(?<=/))ArithmeticOptimizer/(?P<rule>[A-Za-z0-9]+)_(?P<name>[^/]+)$")
#: The end of the name of an op that stands for a row of elementwise ops.
_COMPOSED = "/unary_ops_composition"
#: Named after the op whose tensor they copy, with a number behind it: no evidence of where that op ran.
_COPIES = frozenset({*SENDS, *RECEIVES})
_ARGUMENTS = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"})
_PLUMBING = (
    _COPIES
    | _ARGUMENTS
    | frozenset({"NoOp", "Identity", "Enter", "Exit", "Merge", "Switch", "LoopCond", "NextIteration", "Const"})
    | {"IdentityN", "_SwitchN", "HostConst", "_HostConst", "ControlTrigger"}
    # oneDNN's changes of memory layout: _MklToTf and _MklInputConversion.
    | {"_ToTf", "_InputConversion"}
)
_PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
_ADDITIONS = frozenset({"Add", "AddN", "AddV2"})
_CONSTANTS = frozenset({"Const", "HostConst", "_HostConst"})
#: What stands for an op that the optimizer has done away with: it computed the result itself, or needed none.
_REMOVED = _CONSTANTS | {"NoOp"}


@dataclass(frozen=True, slots=True)
class Placed:
    """A node as it was executed. ``device`` is ``None`` where several graphs at once say different things."""

    type: str
    device: DeviceName | None
    #: Types of the ops that the optimizer has made this one of.
    merged: tuple[str, ...] = ()


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
        (written_type(nodes[0].op), DeviceName.parse(nodes[0].device))
        for nodes in working_nodes(graph)
        # oneDNN replaces a kernel's type, and its name at times.
        if len(nodes) == 1 and written_type(nodes[0].name) == written_type(nodes[0].op) and nodes[0].name not in own
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
            op_type = written_type(node.op)
            known = found.get(path)
            if known is not None and known.device != device:
                choices = [d for d in (known.device, device) if d is not None and d.matches(requested)]
                one = choices[0] if len(choices) == 1 and requested != DeviceName() else None
                found[path] = Placed(op_type, one, known.merged)
            else:
                found[path] = Placed(op_type, device, _merged(node) if op_type.startswith("_") else ())
    return found


def _merged(node: Any) -> tuple[str, ...]:
    for attribute in ("fused_ops", "op_names"):
        if attribute in node.attr:
            return tuple([name.decode() for name in node.attr[attribute].list.s])
    return ()


def ops_of(
    graph: CollectedGraph, written: Sequence[UserOp], requested: DeviceName, name: str, forward_name: str | None
) -> list[Op]:
    """The ops of one executed function, named below ``name``.

    ``written`` are its ops as the user wrote them. ``forward_name`` is the name of the call whose backward function
    this is, if it is one.
    """
    placed = placed_nodes(graph, requested)
    taken_in = _taken_in(written, placed)
    ops = [
        op_of(op, placed.get(op.body.unit or op.path) or taken_in.get(op.path), name, forward_name) for op in written
    ]
    known = {op.path: op for op in written}
    shown = {id(node) for node in taken_in.values()}
    for path, node in placed.items():
        # A node named after its type is that of an eager op, which is listed by itself.
        if (
            path not in known
            and node.type not in _PLUMBING
            and written_type(path) != node.type
            and id(node) not in shown
        ):
            made_of = _replaced(path, known)
            forward = None if made_of is None else _forward(made_of, name, forward_name)
            role = role_of(node.type, path)
            ops.append(Op(f"{name}/{path}", node.type, node.type, node.device, None, role, forward))
    return ops


def executed_ops(graph: CollectedGraph, name: str) -> list[Op]:
    """The nodes of each partition as they ran, where one name stands for several."""
    return [
        Op(f"{name}/{device.short}/{user_path(node.name)}", op_type, op_type, device, None, role_of(op_type, node.name))
        for part in graph.partitions
        for node in part.node
        if (op_type := written_type(node.op)) not in _PLUMBING and (device := DeviceName.parse(node.device))
    ]


def runs_on(op_type: str, device: DeviceName | None) -> DeviceName | None:
    """Where an op's work is done: Python functions run on the host, on whatever device TensorFlow calls them.

    That of a custom device is done on several others.
    """
    if device is not None and device.kind == "CUSTOM":
        return None
    return replace(device, kind="CPU", index=0) if device is not None and op_type in _PYTHON else device


def _forward(op: UserOp, name: str, forward_name: str | None) -> str | None:
    return None if op.forward is None else name_in_trace(op.forward, name, forward_name)


def op_of(op: UserOp, found: Placed | None, name: str, forward_name: str | None) -> Op:
    """An op of the function that is called ``name``, which ran as ``found``."""
    if found is not None and found.type in _REMOVED and op.type not in _PLUMBING:
        found = None
    inputs, ports = inputs_in_trace(op, name)
    body = op.body
    return Op(
        name=f"{name}/{op.path}",
        type=op.type,
        executed_type=None if found is None else ("XlaCluster" if body.unit is not None else found.type),
        device=None if found is None else runs_on(op.type, found.device),
        requested=op.requested if op.requested != DeviceName() else None,
        role="data" if body.kind == "data" else role_of(op.type, op.path, gradient=op.gradient),
        forward=_forward(op, name, forward_name),
        dtypes=output_dtypes(op.type, op.node.attr),
        inputs=inputs,
        ports=ports,
        branch=f"{name}/{body.branch}" if body.branch is not None else None,
        unit=name_in_trace(body.unit, name) if body.unit is not None else None,
    )


def _taken_in(written: Sequence[UserOp], placed: Mapping[str, Placed]) -> dict[str, Placed]:
    """What ran in the place of ops that the optimizer took into another: MatMul in the _FusedMatMul of its BiasAdd."""
    by_path = {op.path: op for op in written}
    missing = {path: op for path, op in by_path.items() if path not in placed}
    found: dict[str, Placed] = {}
    for path, node in placed.items():
        last = _replaced(path, missing)
        if last is not None:
            found.setdefault(last.path, node)
        elif path in by_path and _is_fused(node.type, by_path[path].type):
            last = by_path[path]
        else:
            continue
        # The new op stands for the last of those that it took in; the others are found going up from there.
        frontier = [last]
        while frontier:
            sources = {source: missing[source] for op in frontier for source, _ in op.inputs if source in missing}
            frontier = [op for op in sources.values() if op.path not in found and _is_part(op, last, node)]
            found.update((op.path, node) for op in frontier)
    return found


def _replaced(path: str, candidates: Mapping[str, UserOp]) -> UserOp | None:
    """The op that the optimizer made a node of this name of, or ``None`` where it is none of the candidates."""
    if path.endswith(_COMPOSED):
        return candidates.get(path.removesuffix(_COMPOSED))
    match = _REWRITTEN.search(path)
    name = match["name"] if match is not None else ""
    while match is not None and name:
        # AddOpsRewrite_Leaf_0_add_3 stands for add_3.
        if path[: match.start()] + name in candidates:
            return candidates[path[: match.start()] + name]
        name = name.partition("_")[2]
    return None


def _is_part(op: UserOp, last: UserOp, node: Placed) -> bool:
    """Whether an op that is gone was taken into the node that stands for ``last``, and not just left out.

    On CPUs TensorFlow makes one op of a row of elementwise ones even across devices. What was to run on another device
    than the one op does is counted as left out: it did not run there, and the program did not put it here.
    """
    if op.type in _CONSTANTS or node.device is None or not node.device.matches(op.requested):
        return False
    if op.type in node.merged or op.type.removesuffix("V3") in node.type or node.type.startswith("_"):
        return True
    return op.type in _ADDITIONS and last.type in _ADDITIONS


def _is_fused(executed: str, written: str) -> bool:
    """Whether an op ran as one that does more than was written."""
    return executed.startswith("_") and executed not in (f"_{written}", f"_Host{written}")


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
