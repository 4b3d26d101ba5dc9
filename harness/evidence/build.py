"""Joins a recording into ops and transfers: eager ops as they ran, functions as they were placed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from harness._tensorflow import CollectedGraph
from harness.devices.name import DeviceName
from harness.evidence.bodies import Graph, Tensor
from harness.evidence.functions import compiled_by_xla
from harness.evidence.handing import shared
from harness.evidence.op import Op, Part, Transfer, Transfers
from harness.evidence.op_types import dtype_name
from harness.evidence.placed import Placed, executed_ops, kernels_of, op_of, ops_of, runs_on, working_nodes
from harness.evidence.places import places_in
from harness.evidence.roles import LOOKUPS, role_of
from harness.evidence.sizes import Collective, Shape, collectives_of, shapes_of, transfers_of
from harness.evidence.slices import Place, places_of_slices
from harness.evidence.steps import RecordedOp, Recording
from harness.evidence.trace import Trace
from harness.evidence.userops import OUTSIDE_PREFIX, name_in_trace, user_ops
from harness.evidence.work import estimate, work_of

_Found = TypeVar("_Found")

#: The number of the dtype of handles, as ``tensorflow/core/framework/types.proto`` has it.
_RESOURCE = 20
_FUNCTION = re.compile(r"^__(?:inference|forward)_(?P<backward>__backward_)?(?P<name>.*?)(?:_\d+)+$")


def build(recording: Recording, outputs: Any = None) -> Trace:
    """The trace of a recording."""
    return _Builder(recording).build(outputs)


class _Builder:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.taken: Counter[str] = Counter()
        self.ops: list[Op] = []
        self.transfers: list[Part] = []
        #: Called on demand: functions that return the collectives, and the work, shapes and so on of ops by name.
        self.collectives: list[Callable[[], list[Collective]]] = []
        self.work: list[Callable[[], Mapping[str, float]]] = [self.work_of_eager_ops]
        self.shapes: list[Callable[[], Mapping[str, Sequence[Shape]]]] = [self.shapes_of_eager_ops]
        self.places: list[Callable[[], Mapping[str, tuple[str, ...]]]] = [lambda: self.eager_places]
        self.slices: list[Callable[[], Mapping[str, Place]]] = [lambda: self.eager_slices]
        #: By the name of an eager op: its type, the shapes of its inputs and results; and the lines of the program.
        self.eager_shapes: dict[str, tuple[str, Sequence[Shape], Sequence[Shape]]] = {}
        self.eager_places: dict[str, tuple[str, ...]] = {}
        self.eager_slices: dict[str, Place] = {}
        #: The op that made a tensor, and which of its outputs it is.
        self.maker: dict[int, Tensor] = {
            tensor_id: (f"argument[{index}]", 0) for index, tensor_id in enumerate(recording.arguments)
        }
        #: The number of each variable whose handle an op or a function was given, by the name that stands for it.
        self.variables: dict[str, int] = {}
        self.fetched: set[tuple[int, DeviceName]] = set()
        #: Names of the nodes that belong to the functions whose graph this is, by the graph's id.
        self.own: dict[int, set[str]] = {}
        self.kernels_seen: Counter[tuple[str, DeviceName | None]] = Counter()

    def build(self, outputs: Any) -> Trace:
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
        used = {
            op.name: numbers
            for op in self.ops
            if (numbers := tuple([self.variables[name] for name in op.inputs if name in self.variables]))
        }
        return Trace(
            tuple(self.checked()),
            Transfers(self.transfers),
            outputs,
            shared(steps),
            {f"argument[{index}]": kind for index, kind in enumerate(self.recording.kinds)},
            used,
            lambda: [found for part in self.collectives for found in part()],
            partial(_together, self.work),
            partial(_together, self.shapes),
            partial(_together, self.places),
            partial(_together, self.slices),
        )

    def work_of_eager_ops(self) -> dict[str, float]:
        return {name: estimate(*shapes) for name, shapes in self.eager_shapes.items()}

    def shapes_of_eager_ops(self) -> dict[str, Sequence[Shape]]:
        return {name: results for name, (_, _, results) in self.eager_shapes.items()}

    def raised(self, graph: CollectedGraph) -> set[str]:
        """The nodes of a graph that belong to a function that raised."""
        names = {node.name for node in graph.before.node}
        functions = [self.recording.functions[name] for name in self.recording.raised & set(self.recording.functions)]
        found = [{node.name for node in function.node_def} for function in functions]
        return set[str]().union(*(nodes for nodes in found if nodes <= names))

    def checked(self) -> list[Op]:
        """Return the ops, with references only to ops that exist."""
        names = {op.name for op in self.ops}
        ops = []
        for op in self.ops:
            forward = op.forward if op.forward in names else None
            inputs = op.inputs
            ports = op.ports
            if not names.issuperset(inputs):
                known = [at for at, name in enumerate(inputs) if name in names or name.startswith("argument[")]
                inputs = tuple([inputs[at] for at in known])
                ports = tuple([ports[at] for at in known]) if ports else ()
            same = forward == op.forward and inputs is op.inputs
            ops.append(op if same else replace(op, forward=forward, inputs=inputs, ports=ports))
        return ops

    def unique(self, base: str) -> str:
        """Give an op a name that is the same in each run: its type or its function, numbered in order."""
        count = self.taken[base]
        self.taken[base] += 1
        return base if count == 0 else f"{base}_{count}"

    def name(self, step: RecordedOp) -> None:
        if step.type not in self.recording.functions:
            step.label = self.unique(step.type)
            return
        match = _FUNCTION.match(step.type)
        base = match["name"] if match is not None else step.type
        step.backward = match is not None and match["backward"] is not None
        step.label = self.unique(f"{base}.backward" if step.backward else base)

    def add_eager(self, step: RecordedOp) -> None:
        name = step.label
        self.kernels_seen[step.type, _device(step.device)] += 1
        device = runs_on(step.type, _device(step.device))
        if role_of(step.type) in ("update", "variable") or step.type in LOOKUPS:
            self.note_variable(step.inputs[0] if step.inputs else None)
        given = [self.maker[tensor_id] for tensor_id in step.inputs if tensor_id in self.maker]
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
                tuple([maker for maker, _ in given]),
                ports=tuple([port for _, port in given]) if any(port for _, port in given) else (),
            )
        )
        self.eager_shapes[name] = step.type, step.shapes, step.results
        self.eager_places[name] = step.places
        if step.cut:
            self.eager_slices[name] = step.cut
        if step.held and device is not None:
            self.fetch(step, device)
        for attribute, function in step.functions.items():
            self.add_data(f"{name}/{attribute}", function)
        self.maker.update((tensor_id, (name, port)) for port, tensor_id in enumerate(step.outputs))

    def note_variable(self, tensor_id: int | None) -> None:
        """Give the variable with this handle a number, unless an op made the handle."""
        if tensor_id is not None and tensor_id not in self.maker:
            name = f"variable[{len(self.variables)}]"
            self.variables[name] = len(self.variables)
            self.maker[tensor_id] = name, 0

    def fetch(self, step: RecordedOp, device: DeviceName) -> None:
        """Note which inputs an eager op had to copy to its device; TensorFlow keeps the copy, so once per tensor."""
        for tensor_id, holder, size_bytes in step.held:
            if (tensor_id, device) not in self.fetched:
                self.fetched.add((tensor_id, device))
                maker, _ = self.maker.get(tensor_id, ("", 0))
                tensor = f"{step.label}:input" if maker.partition("[")[0] in ("", "argument") else maker
                self.transfers.append(Transfer(DeviceName.parse(holder), device, tensor, size_bytes))

    def add_data(self, name: str, function: Any) -> None:
        """A function that a ``tf.data`` pipeline runs by itself: TensorFlow does not tell where its ops run."""
        written = user_ops(Graph(function.node_def, self.recording.functions), DeviceName()).ops
        self.ops.extend(replace(op_of(op, None, name, None), role="data") for op in written)

    def add_call(self, step: RecordedOp) -> None:
        name = step.label
        requested = _device(step.scope) or DeviceName()
        for tensor_id, argument in zip(
            step.inputs, self.recording.functions[step.type].signature.input_arg, strict=False
        ):
            if argument.type == _RESOURCE:
                self.note_variable(tensor_id)
        arguments = [self.maker.get(tensor_id) for tensor_id in step.inputs]
        forward = step.forward if step.backward else None
        forward_name = forward.label if forward is not None else None
        gradient_of = self.graph_of(forward) if forward is not None else None
        function = self.recording.functions[step.type]
        compiled = compiled_by_xla(function)
        body = step.body
        if body is None and not compiled:
            # TensorFlow ran the function and reported no graph, so its content is unknown.
            self.ops.append(Op(name, "PartitionedCall", None, None, requested, "control"))
            return
        unit = OUTSIDE_PREFIX + name if compiled else None
        written = user_ops(self.graph_of(step), requested, arguments=arguments, gradient_of=gradient_of, unit=unit)
        self.places.append(partial(places_in, written.ops, name, step.type))
        self.slices.append(partial(places_of_slices, written.ops, name))
        for index, (path, port) in written.returned.items():
            if index < len(step.outputs):
                self.maker[step.outputs[index]] = name_in_trace(path, name), port
        if body is None or compiled:
            # XLA made one unit of it, which ran on one device.
            device = _device(step.device)
            cluster = Placed("XlaCluster", device) if device is not None else None
            self.ops.extend(op_of(op, cluster, name, forward_name) for op in written.ops)
            return
        # Ops that ran eagerly while the function ran are handed over in one with it.
        own = self.own.setdefault(id(body), set())
        own.update(node.name for node in function.node_def)
        self.ops.extend(ops_of(body, written.ops, requested, name, forward_name))
        self.transfers.append(partial(transfers_of, body, name, step.shapes))
        self.collectives.append(partial(collectives_of, body, name, step.shapes))
        self.work.append(partial(work_of, body, written.ops, name, step.shapes))
        self.shapes.append(partial(shapes_of, body, name, step.shapes))

    def graph_of(self, call: RecordedOp) -> Graph:
        """What a call ran, as the user wrote it."""
        function = self.recording.functions[call.type]
        if call.body is None:
            return Graph.of_function(function, self.recording.functions)
        return Graph.of(call.body.before, {node.name for node in function.node_def})

    def add_unseen(self) -> None:
        """Ops that no callback saw: started by a thread that is older than the trace, or by TensorFlow itself."""
        kernels: list[tuple[str, DeviceName]] = []
        meshes = any("/device:CUSTOM:" in (step.device or "") for step in self.recording.steps)
        for graph in self.recording.graphs:
            known = self.own.get(id(graph), self.raised(graph))
            found = kernels_of(graph, known)
            kernels.extend(found)
            if known or id(graph) in self.own or len(found) == len(working_nodes(graph)):
                continue
            if meshes:
                # A mesh of DTensor runs one function on each of its devices, all under the same names.
                self.ops.extend(executed_ops(graph, self.unique("function")))
            else:
                name = self.unique("function")
                written = user_ops(Graph.of(graph.before, ()), DeviceName()).ops
                self.ops.extend(ops_of(graph, written, DeviceName(), name, None))
                self.transfers.append(partial(transfers_of, graph, name))
                self.collectives.append(partial(collectives_of, graph, name))
        for op_type, device in sorted(kernels):
            if not self.kernels_seen[op_type, device] and op_type not in self.recording.raised:
                self.kernels_seen[op_type, device] += 1
                self.ops.append(Op(self.unique(op_type), op_type, op_type, device, None, role_of(op_type)))


def _together(parts: Sequence[Callable[[], Mapping[str, _Found]]]) -> dict[str, _Found]:
    return {name: found for part in parts for name, found in part().items()}


def _device(name: str | None) -> DeviceName | None:
    return DeviceName.parse(name) if name else None


@lru_cache(maxsize=1024)
def _dtype_names(numbers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple([dtype_name(number) for number in numbers])
