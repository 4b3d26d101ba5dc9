"""Joins a recording into ops and transfers: eager ops as they ran, functions as they were placed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from harness._tensorflow import dtype_name, output_dtypes
from harness.devices.name import DeviceName
from harness.evidence.bodies import Graph
from harness.evidence.collectives import Collective, collectives_of
from harness.evidence.functions import compiled_by_xla
from harness.evidence.op import Op, Transfer
from harness.evidence.placed import kernels_of, ops_of, working_nodes
from harness.evidence.roles import role_of
from harness.evidence.sizes import transfers_of
from harness.evidence.steps import Recording, Step
from harness.evidence.transfers import Part, Transfers
from harness.evidence.userops import name_in_trace, user_ops
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


def build(recording: Recording) -> tuple[list[Op], Transfers, Callable[[], list[Collective]]]:
    """The ops, in the order in which they were started, the transfers, and what finds the collectives."""
    return _Builder(recording).build()


class _Builder:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.names = _Names()
        self.ops: list[Op] = []
        self.transfers: list[Part] = []
        self.collectives: list[Callable[[], list[Collective]]] = []
        #: Which op made a tensor.
        self.maker: dict[int, str] = {}
        self.fetched: set[tuple[int, DeviceName]] = set()
        #: Names of the nodes that belong to the functions whose graph this is, by the graph's id.
        self.own: dict[int, set[str]] = {}
        self.kernels_seen: Counter[tuple[str, DeviceName | None]] = Counter()

    def build(self) -> tuple[list[Op], Transfers, Callable[[], list[Collective]]]:
        steps = self.recording.steps
        # What several threads run at once comes in no order that would be the same in the next run.
        for step in [step for step in steps if not step.aside] + sorted(
            (step for step in steps if step.aside), key=lambda step: (step.scope or "", step.device or "")
        ):
            self.name(step)
        for step in steps:
            if step.type in self.recording.functions:
                self.add_call(step)
            else:
                self.add_eager(step)
        self.add_unseen()
        return self.checked(), Transfers(self.transfers), self.find_collectives

    def find_collectives(self) -> list[Collective]:
        """The collectives of the functions that ran; looked for when they are asked for."""
        return [found for part in self.collectives for found in part()]

    def checked(self) -> list[Op]:
        """Return the ops, with references only to ops that exist."""
        names = {op.name for op in self.ops}
        ops = []
        for op in self.ops:
            forward = op.forward if op.forward in names else None
            inputs = op.inputs
            if not names.issuperset(inputs):
                inputs = tuple([name for name in inputs if name in names])
            same = forward == op.forward and inputs is op.inputs
            ops.append(op if same else replace(op, forward=forward, inputs=inputs))
        return ops

    def name(self, step: Step) -> None:
        if step.type not in self.recording.functions:
            step.label = self.names.unique(step.type)
            return
        match = _FUNCTION.match(step.type)
        base = match["name"] if match is not None else step.type
        step.backward = match is not None and match["backward"] is not None
        step.label = self.names.unique(f"{base}.backward" if step.backward else base)

    def add_eager(self, step: Step) -> None:
        name = step.label
        device = _device(step.device)
        self.kernels_seen[step.type, device] += 1
        maker = self.maker
        self.ops.append(
            Op(
                name,
                step.type,
                step.type if device is not None else None,
                device,
                _device(step.scope),
                role_of(step.type, gradient=step.in_gradient),
                step.forward.label or None if step.forward is not None else None,
                _dtype_names(step.dtypes),
                tuple([maker[tensor_id] for tensor_id in step.inputs if tensor_id in maker]),
            )
        )
        if step.held and device is not None:
            self.fetch(step, device)
        for attribute, function in step.functions.items():
            self.add_data(f"{name}/{attribute}", function)
        for tensor_id in step.outputs:
            maker[tensor_id] = name

    def fetch(self, step: Step, device: DeviceName) -> None:
        """Note which inputs an eager op had to copy to its device; TensorFlow keeps the copy, so once per tensor."""
        for tensor_id, holder, size_bytes in step.held:
            if (tensor_id, device) not in self.fetched:
                self.fetched.add((tensor_id, device))
                tensor = self.maker.get(tensor_id, f"{step.label}:input")
                self.transfers.append(Transfer(DeviceName.parse(holder), device, tensor, size_bytes))

    def add_data(self, name: str, function: Any) -> None:
        """A function that a ``tf.data`` pipeline runs by itself: TensorFlow does not tell where its ops run."""
        for op in user_ops(Graph(function.node_def, self.recording.functions), DeviceName()).ops:
            requested = op.requested if op.requested != DeviceName() else None
            inputs = tuple([f"{name}/{source}" for source in op.inputs])
            dtypes = output_dtypes(op.type, op.attributes)
            self.ops.append(Op(f"{name}/{op.path}", op.type, None, None, requested, "data", None, dtypes, inputs))

    def add_call(self, step: Step) -> None:
        name = step.label
        requested = _device(step.scope) or DeviceName()
        arguments = [self.maker.get(tensor_id, "") for tensor_id in step.inputs]
        forward = step.forward if step.backward else None
        forward_name = forward.label if forward is not None else None
        gradient_of = self.graph_of(forward) if forward is not None else None
        function = self.recording.functions[step.type]
        if compiled_by_xla(function):
            self.ops.extend(
                cluster_ops(
                    self.graph_of(step),
                    device=_device(step.device),
                    requested=requested,
                    name=name,
                    gradient_of=gradient_of,
                    forward_name=forward_name,
                )
            )
            self.maker.update(dict.fromkeys(step.outputs, name))
            return
        if step.body is None:
            # TensorFlow ran the function and reported no graph, so its content is unknown.
            self.ops.append(Op(name, "PartitionedCall", None, None, requested, "control"))
            return
        # Ops that ran eagerly while the function ran are handed over in one with it.
        own = self.own.setdefault(id(step.body), set())
        own.update(node.name for node in function.node_def)
        written = user_ops(self.graph_of(step), requested, arguments=arguments, gradient_of=gradient_of)
        self.ops.extend(ops_of(step.body, written.ops, requested, name, forward_name))
        self.transfers.append(partial(transfers_of, step.body, name, step.shapes))
        self.collectives.append(partial(collectives_of, step.body, name, step.shapes))
        for index, path in written.returned.items():
            if index < len(step.outputs):
                self.maker[step.outputs[index]] = name_in_trace(path, name)

    def graph_of(self, call: Step) -> Graph:
        """What a call ran, as the user wrote it."""
        function = self.recording.functions[call.type]
        if call.body is None:
            return Graph(function.node_def, self.recording.functions)
        graph = Graph.of(call.body.before)
        own = {node.name for node in function.node_def}
        return Graph([node for node in graph.nodes if node.name != node.op or node.name in own], graph.library)

    def add_unseen(self) -> None:
        """Ops that no callback saw: started by a thread that is older than the trace, or by TensorFlow itself."""
        kernels: list[tuple[str, DeviceName]] = []
        for graph in self.recording.graphs:
            found = kernels_of(graph, self.own.get(id(graph), frozenset()))
            kernels.extend(found)
            if id(graph) not in self.own and len(found) < len(working_nodes(graph)):
                name = self.names.unique("function")
                whole = Graph.of(graph.before)
                own = Graph([node for node in whole.nodes if node.name != node.op], whole.library)
                self.ops.extend(ops_of(graph, user_ops(own, DeviceName()).ops, DeviceName(), name, None))
                self.transfers.append(partial(transfers_of, graph, name))
                self.collectives.append(partial(collectives_of, graph, name))
        for op_type, device in sorted(kernels):
            if not self.kernels_seen[op_type, device]:
                self.kernels_seen[op_type, device] += 1
                self.ops.append(Op(self.names.unique(op_type), op_type, op_type, device, None, role_of(op_type)))


def _device(name: str | None) -> DeviceName | None:
    return DeviceName.parse(name) if name else None


@lru_cache(maxsize=1024)
def _dtype_names(numbers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple([dtype_name(number) for number in numbers])
