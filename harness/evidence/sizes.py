"""How large the tensors are that a function's graph sends between devices, or gives to collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness._tensorflow import CollectedGraph
from harness.devices.name import DeviceName
from harness.evidence.op import Transfer
from harness.evidence.passes import unroll
from harness.evidence.placed import sends_of, user_path
from harness.evidence.roles import role_of
from harness.lazy import tf

#: Shape of an argument of the function, ``None`` for what is not known.
Shape = Sequence[int | None] | None


def transfers_of(graph: CollectedGraph, name: str, shapes: Sequence[Shape] = ()) -> list[Transfer]:
    """The copies between devices of one executed function.

    Args:
        graph: of the function.
        name: of its call in the trace.
        shapes: of what it was called with, in the order of its ``_Arg`` nodes.
    """
    sends = list(sends_of(graph))
    if not sends:
        return []
    sizes = sizes_of(graph.after, [node.input[0] for node, _, _ in sends], shapes)
    return [
        Transfer(source, destination, f"{name}/{user_path(node.input[0])}", sizes.get(node.input[0]))
        for node, source, destination in sends
    ]


def sizes_of(graph: Any, tensors: Sequence[str], shapes: Sequence[Shape]) -> dict[str, int]:
    """Sizes in bytes of those of ``tensors`` (``node`` or ``node:1``) whose shape follows from the graph.

    TensorFlow works the shapes out as it imports the graph, from the shapes of the arguments on.
    """
    whole = imported(graph, shapes)
    if whole is None:
        return {}
    sizes = {}
    for text in tensors:
        name, _, index = text.partition(":")
        try:
            tensor = whole.get_operation_by_name(name).outputs[int(index or 0)]
        except (KeyError, IndexError):
            continue  # made by the partitioning, after this graph
        count = tensor.shape.num_elements()
        if count is not None and tensor.dtype.size:
            sizes[text] = int(count * tensor.dtype.size)
    return sizes


def shapes_of(graph: CollectedGraph, name: str, shapes: Sequence[Shape] = ()) -> dict[str, list[Shape]]:
    """The shapes of what each op of one executed function makes; arguments as for ``transfers_of``."""
    whole = imported(graph.after, shapes)
    operations = () if whole is None else whole.get_operations()
    return {f"{name}/{user_path(op.name)}": [shape_of(tensor) for tensor in op.outputs] for op in operations}


def shape_of(tensor: Any) -> Shape:
    """The shape of a tensor of a graph."""
    return None if tensor.shape.rank is None else tuple(tensor.shape)


def imported(graph: Any, shapes: Sequence[Shape]) -> Any | None:
    """The ``tf.Graph`` of a definition, whose tensors have shapes; ``None`` where TensorFlow does not import it."""
    definition = _with_shapes(graph, shapes)
    whole = tf.Graph()
    try:
        with whole.as_default():
            tf.graph_util.import_graph_def(definition, name="")
    except (ValueError, tf.errors.OpError):
        # Some nodes exist only after placement; TensorFlow imports no graph that has them.
        return None
    return whole


def _with_shapes(graph: Any, shapes: Sequence[Shape]) -> Any:
    """A copy of the graph without devices, its arguments of the shapes that they were called with.

    TensorFlow knows no shape of what a loop is given and hands on to its next pass. Here, there is one pass.
    """
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph)
    unroll(copy)
    for node in copy.node:
        node.device = ""
        node.attr.pop("_class", None)
        if node.op == "_Arg" and node.attr["index"].i < len(shapes):
            shape = shapes[node.attr["index"].i]
            if shape is not None and "_handle_shapes" not in node.attr:
                known = tf.compat.v1.AttrValue.ListValue(shape=[tf.TensorShape(shape).as_proto()])
                node.attr["_output_shapes"].list.CopyFrom(known)
    return copy


@dataclass(frozen=True, slots=True)
class Collective:
    """One device's part of a collective op. ``size_bytes`` is what it gives to it, ``None`` where that is not known."""

    type: str
    device: DeviceName
    name: str
    size_bytes: int | None = None


def collectives_of(graph: CollectedGraph, name: str, shapes: Sequence[Shape] = ()) -> list[Collective]:
    """The collectives of one executed function; arguments as for :func:`transfers_of`."""
    nodes = [node for part in graph.partitions for node in part.node if role_of(node.op) == "collective" and node.input]
    if not nodes:
        return []
    # The first input of each, before tensors were sent between partitions.
    given = {node.name: node.input[0] for node in graph.after.node if role_of(node.op) == "collective" and node.input}
    sizes = sizes_of(graph.after, [given[node.name] for node in nodes if node.name in given], shapes)
    return [
        Collective(node.op, DeviceName.parse(node.device), f"{name}/{node.name}", sizes.get(given.get(node.name, "")))
        for node in nodes
    ]
