"""Joins a recording into ops and transfers: eager ops as they ran, functions as they were placed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from harness._tensorflow import dtype_name
from harness.devices.name import DeviceName
from harness.evidence.functions import compiled_by_xla
from harness.evidence.op import Op, Transfer
from harness.evidence.placed import kernels_of, ops_of
from harness.evidence.recorder import Recording, Step
from harness.evidence.roles import role_of
from harness.evidence.sizes import transfers_of
from harness.evidence.transfers import Part, Transfers
from harness.evidence.userops import user_ops
from harness.evidence.xla import cluster_ops

_FUNCTION = re.compile(r"^__(?:inference|forward)_(?P<backward>__backward_)?(?P<name>.*?)(?:_\d+)+$")


class _Names:
    """Gives each op a name that is the same in each run: its type or its function, numbered in order."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()

    def unique(self, base: str) -> str:
        count = self.taken[base]
        self.taken[base] += 1
        return base if count == 0 else f"{base}_{count}"


def build(recording: Recording) -> tuple[list[Op], Transfers]:
    """The ops, in the order in which they were started, and the transfers of a recording."""
    return _Builder(recording).build()


class _Builder:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.names = _Names()
        self.ops: list[Op] = []
        self.transfers: list[Part] = []
        #: Which op made a tensor.
        self.maker: dict[int, str] = {}
        self.fetched: set[tuple[int, str]] = set()
        #: Names of the nodes that belong to the functions whose graph this is, by the graph's id.
        self.own: dict[int, set[str]] = {}
        self.kernels_seen: Counter[tuple[str, DeviceName | None]] = Counter()

    def build(self) -> tuple[list[Op], Transfers]:
        for step in self.recording.steps:
            if step.type in self.recording.functions:
                self.add_call(step)
            else:
                self.add_eager(step)
        self.add_unseen()
        names = {op.name for op in self.ops}
        ops = [
            op if op.forward is None or op.forward in names else replace(op, forward=None) for op in self.ops
        ]
        return ops, Transfers(self.transfers)

    def add_eager(self, step: Step) -> None:
        name = step.label = self.names.unique(step.type)
        device = DeviceName.parse(step.device) if step.device else None
        self.kernels_seen[step.type, device] += 1
        self.ops.append(
            Op(
                name=name,
                type=step.type,
                executed_type=step.type if device is not None else None,
                device=device,
                requested=DeviceName.parse(step.scope) if step.scope else None,
                role=role_of(step.type, gradient=step.in_gradient),
                forward=step.forward.label if step.forward is not None else None,
                dtypes=tuple([dtype_name(number) for number in step.dtypes]),
                inputs=tuple([self.maker[tensor_id] for tensor_id in step.inputs if tensor_id in self.maker]),
            )
        )
        self.fetch(step, device)
        for tensor_id in step.outputs:
            self.maker[tensor_id] = name

    def fetch(self, step: Step, device: DeviceName | None) -> None:
        """Note which inputs an eager op had to copy to its device; TensorFlow keeps the copy, so once per tensor."""
        if device is None or step.device is None:
            return
        for tensor_id, holder, size_bytes in step.held:
            if size_bytes is not None and (tensor_id, step.device) not in self.fetched:
                self.fetched.add((tensor_id, step.device))
                tensor = self.maker.get(tensor_id, f"{step.label}:input")
                self.transfers.append(Transfer(DeviceName.parse(holder), device, tensor, size_bytes))

    def add_call(self, step: Step) -> None:
        match = _FUNCTION.match(step.type)
        base = match["name"] if match else step.type
        backward = bool(match and match["backward"])
        name = step.label = self.names.unique(f"{base}.backward" if backward else base)
        requested = DeviceName.parse(step.scope) if step.scope else DeviceName()
        arguments = [f"={self.maker[at]}" if at in self.maker else "" for at in step.inputs]
        forward = step.forward if backward else None
        forward_name = forward.label if forward is not None else None
        backward_of = self.nodes_of(forward) if forward is not None else []
        function = self.recording.functions[step.type]
        if compiled_by_xla(function):
            self.ops.extend(
                cluster_ops(
                    self.recording.functions,
                    function,
                    device=DeviceName.parse(step.device) if step.device else None,
                    requested=requested,
                    name=name,
                    backward_of=backward_of,
                    forward_name=forward_name,
                )
            )
            self.maker.update(dict.fromkeys(step.outputs, name))
            return
        if step.body is None:
            # TensorFlow ran the function and told of no graph: nothing is known of what is in it.
            self.ops.append(Op(name, "PartitionedCall", None, None, requested, "control"))
            return
        graph = step.body.before
        # Ops that ran eagerly while the function ran are handed over in one with it.
        own = self.own.setdefault(id(step.body), set())
        own.update(node.name for node in function.node_def)
        nodes = [node for node in graph.node if node.name != node.op or node.name in own]
        library = {inner.signature.name: inner for inner in graph.library.function}
        written = user_ops(nodes, library, requested, arguments=arguments, backward_of=backward_of)
        self.ops.extend(ops_of(step.body, written, requested, name, forward_name))
        self.transfers.append(partial(transfers_of, step.body, name, step.shapes))
        for node in graph.node:
            if node.op == "_Retval" and node.attr["index"].i < len(step.outputs):
                self.maker[step.outputs[node.attr["index"].i]] = f"{name}/{node.input[0].partition(':')[0]}"

    def nodes_of(self, call: Step) -> list[Any]:
        """The nodes of the function that a call ran."""
        function = self.recording.functions.get(call.type)
        if call.body is not None:
            return list(call.body.before.node)
        return list(function.node_def) if function is not None else []

    def add_unseen(self) -> None:
        """Ops that no callback saw: started by a thread that is older than the trace, or by TensorFlow itself."""
        kernels: list[tuple[str, DeviceName]] = []
        for graph in self.recording.graphs:
            found = kernels_of(graph, self.own.get(id(graph), frozenset()))
            kernels.extend(found)
            if id(graph) not in self.own and len(found) < len(graph.partitions):
                name = self.names.unique("function")
                nodes = [node for node in graph.before.node if node.name != node.op]
                library = {function.signature.name: function for function in graph.before.library.function}
                self.ops.extend(ops_of(graph, user_ops(nodes, library, DeviceName()), DeviceName(), name, None))
                self.transfers.append(partial(transfers_of, graph, name))
        for op_type, device in sorted(kernels):
            if not self.kernels_seen[op_type, device]:
                self.kernels_seen[op_type, device] += 1
                self.ops.append(Op(self.names.unique(op_type), op_type, op_type, device, None, role_of(op_type)))
