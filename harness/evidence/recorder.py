"""Writes down what runs while a function is traced: each op, where it ran, and the graph of each function."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any

from harness._tensorflow import HOST_DTYPE_NUMBERS, CollectedGraph, Runtime, mark
from harness.devices.lost import require_hosts
from harness.devices.name import DeviceName
from harness.errors import EvidenceError, HostUnreachable
from harness.evidence.functions import called_by, compiled_by_xla
from harness.evidence.handing import Handing
from harness.evidence.marks import BACKWARD_ATTRIBUTE, FORWARD_ATTRIBUTE, FORWARD_ELSEWHERE_ATTRIBUTE
from harness.evidence.places import places_of_call
from harness.evidence.slices import SLICES, place_of_slice
from harness.evidence.steps import RecordedOp, Recording
from harness.evidence.tapes import Tapes
from harness.evidence.watching import run_new_op, watched
from harness.plural import plural


class Recorder(Tapes):
    """Observes TensorFlow; see :class:`harness.evidence.watching.Observer`."""

    def __init__(self) -> None:
        super().__init__()
        self.recording = Recording()
        self.runtime: Runtime
        self.thread = get_ident()
        self.lock = threading.RLock()
        self.handing = Handing()
        self.definitions: dict[str, Any | None] = {}
        self.bodies: dict[tuple[Any, ...], CollectedGraph] = {}
        #: Where ops ran that do not tell, by op type, scope and inputs; and the devices of all kernels of an op type.
        self.kernels: dict[tuple[Any, ...], str | None] = {}
        self.kernel_devices: dict[str, dict[str, None]] = {}
        self.unclaimed: list[CollectedGraph] = []

    def on_op(self, op_type: str, inputs: Any, attributes: Any, outputs: Any, scope: str | None) -> None:
        """An op ran."""
        outputs = outputs or ()
        step = self.step(op_type, inputs, outputs)
        if scope:
            step.scope = scope
        if get_ident() != self.thread:
            step.aside = True
        if "Dataset" in op_type:
            step.functions = self.functions_in(attributes)
        if op_type in SLICES:
            step.cut = place_of_slice(inputs, attributes)
        self.ran(step, inputs, outputs)
        self.add(step, attributes)

    def on_node(self, node: Any) -> None:
        """An op was added to a graph."""
        outputs = node.outputs
        step = self.step(node.type, node.inputs, outputs)
        step.name = node.name
        step.graph = id(node.graph)
        if step.in_gradient and outputs:
            self.mark(step, node)
        self.add(step)

    def step(self, op_type: str, inputs: Any, outputs: Any) -> RecordedOp:
        """Describe an op that runs within the gradient that this thread computes."""
        step = RecordedOp(op_type, [tensor._id for tensor in inputs], [tensor._id for tensor in outputs])
        forwards = self.stack.forwards
        if forwards:
            step.forward = forwards[-1]
            step.in_gradient = True
        return step

    def ran(self, step: RecordedOp, inputs: Any, outputs: Any) -> None:
        """Note where an eager op ran, and what it had to fetch from other devices."""
        step.places = places_of_call()
        if outputs:
            step.dtypes = tuple([tensor._datatype_enum() for tensor in outputs])
            for number, tensor in zip(step.dtypes, outputs, strict=True):
                if number not in HOST_DTYPE_NUMBERS:
                    step.device = tensor.backing_device
                    break
        function = self.definitions[step.type] if step.type in self.definitions else self.definition(step.type)
        step.shapes = [tensor._shape_tuple() for tensor in inputs]
        if function is not None:
            step.body = self.body(step, function, inputs)
        else:
            step.results = [tensor._shape_tuple() for tensor in outputs]
            device = step.device
            if device is None:
                device = step.device = self.kernel_device(step, inputs)
            moved = [tensor for tensor in inputs if tensor.backing_device != device]
            if moved and device is not None:
                step.held = [
                    (tensor._id, tensor.backing_device, int(tensor._num_elements() * tensor.dtype.size))
                    for tensor in moved
                    if tensor._datatype_enum() not in HOST_DTYPE_NUMBERS
                ]
            self.handing.begin(step, inputs)
        self.recording.steps.append(step)

    def on_turn_over(self) -> None:
        """This thread ran an op or a function, and others may run theirs."""
        self.handing.end()

    def on_error(self, name: str, outermost: bool) -> None:
        """An op of this type, or a function of this name, raised."""
        self.definition(name)
        self.recording.raised.add(name)
        if outermost:
            with self.lock, suppress(HostUnreachable):
                self.collect()
                # TensorFlow would report the graph of what raised as a part of that of the next function.
                run_new_op()
                self.runtime.collected()

    def definition(self, name: str) -> Any | None:
        """The function of this name, or ``None`` for a plain op."""
        if name not in self.definitions:
            function = self.definitions[name] = self.runtime.function(name)
            if function is not None:
                self.recording.functions[name] = function
                if compiled_by_xla(function):
                    self.define_called(function)
        return self.definitions[name]

    def define_called(self, function: Any) -> None:
        """Ask for the functions that a function calls: where no graph is collected that brings them."""
        for name in {name for node in function.node_def for name in called_by(node)}:
            if name not in self.definitions:
                inner = self.definition(name)
                if inner is not None:
                    self.define_called(inner)

    def functions_in(self, attributes: Any) -> Mapping[str, Any]:
        """The functions among the attributes of an op that runs as a part of a ``tf.data`` pipeline."""
        found = {}
        for name, value in zip(attributes[::2], attributes[1::2], strict=True):
            function = getattr(value, "function_def", None)
            if function is not None:
                found[str(name)] = function
                self.define_called(function)
        return found

    def body(self, step: RecordedOp, function: Any, inputs: Any) -> CollectedGraph | None:
        """The graph of this call. TensorFlow places a function once for each set of devices it is called with."""
        key = (step.type, step.scope, tuple(tensor.device for tensor in inputs))
        names = {node.name for node in function.node_def}
        with self.lock:
            self.collect()
            for index, graph in enumerate(self.unclaimed):
                if names <= {node.name for node in graph.before.node}:
                    self.bodies[key] = self.bodies[step.type,] = self.unclaimed.pop(index)
                    break
            return self.bodies.get(key) or self.bodies.get((step.type,))

    def kernel_device(self, step: RecordedOp, inputs: Any) -> str | None:
        """Where an op ran whose results, if any, live in host memory: the kernel that TensorFlow made for it says."""
        key = (step.type, step.scope, tuple((tensor._datatype_enum(), tensor.device) for tensor in inputs))
        if key not in self.kernels:
            with self.lock:
                new = [node for graph in self.collect() for node in graph.before.node if node.name == node.op]
            made = None
            for node in new:
                self.kernel_devices.setdefault(node.op, {})[node.device] = None
                made = node.device if node.op == step.type else made
            # No new kernel: one served that was made for other inputs, where a variable or the scope wants it.
            known = self.kernel_devices.get(step.type, {})
            held = [tensor.device for tensor in inputs[:1]]
            # Without a scope an op runs on the first device of a kind, on a GPU where it has a kernel there.
            default = sorted((d for d in known if d.endswith(":0")), key=lambda d: (_is_remote(d), ":GPU:" not in d))
            asked = [step.scope] if step.scope else default
            reads_resource = _reads_a_resource(inputs)
            order = [*held, *asked] if reads_resource else [*asked, *held]
            wanted = [device for device in order if device in known]
            if reads_resource and wanted[:1] == held:
                made = held[0]  # an op runs where its resource is; what is new may be another op's kernel
            if made is None and not known and reads_resource and _is_remote(inputs[0].device):
                made = str(inputs[0].device)  # in another process, whose kernels are not known here
            self.kernels[key] = made or (wanted or [None])[0] or (next(iter(known)) if len(known) == 1 else None)
        return self.kernels[key]

    def collect(self) -> list[CollectedGraph]:
        """Fetch what TensorFlow placed since the last time.

        TensorFlow asks all hosts of the cluster, and would wait for ever for a lost one: raise HostUnreachable instead.
        """
        require_hosts()
        new = self.runtime.collected()
        self.recording.graphs.extend(new)
        self.unclaimed.extend(new)
        return new

    def mark(self, step: RecordedOp, node: Any) -> None:
        """Write the forward op onto the node of a gradient op, so that it is known whenever the graph runs."""
        forward = step.forward
        if forward is None or not forward.name:
            mark(node, BACKWARD_ATTRIBUTE, "yes")
        else:
            here = forward.graph == step.graph
            mark(node, FORWARD_ATTRIBUTE if here else FORWARD_ELSEWHERE_ATTRIBUTE, forward.name)


@contextmanager
def record(*arguments: Any) -> Iterator[Recording]:
    """Record every op that TensorFlow executes in the body. Filled when the body ends, also when it raises.

    ``arguments`` are nests with the tensors that the body works on. Raises as :func:`harness.evidence.tracing.trace`.
    """
    import tensorflow as tf

    recorder = Recorder()
    given = tf.nest.flatten(arguments)
    tensors = [leaf for leaf in given if isinstance(leaf, tf.Tensor) and hasattr(leaf, "_id")]
    recorder.recording.arguments = [tensor._id for tensor in tensors]
    recorder.recording.kinds = [(tensor.dtype.name, tensor.shape.rank, *tensor.shape[1:]) for tensor in tensors]
    with watched(recorder):
        try:
            yield recorder.recording
        except BaseException:
            with recorder.lock, suppress(HostUnreachable):  # what the body raised says more
                recorder.collect()
            raise
        with recorder.lock:
            recorder.collect()
    check_complete(recorder.recording)


def check_complete(recording: Recording) -> None:
    """Raise where TensorFlow told nothing of what ran: the evidence would lack it without anyone noticing."""
    for step in recording.steps:
        function = recording.functions.get(step.type)
        # Of what XLA compiled there is no graph, and none is needed: it is one unit, where its results are.
        if function is not None and function.node_def and step.body is None and not compiled_by_xla(function):
            if _is_remote(step.device):
                raise EvidenceError(
                    f"the function {step.type} ran on {step.device}, and TensorFlow reports no graph when eager code "
                    "calls a function on a device of another process; call it within a tf.function, or verify with "
                    "modes=('graph',)"
                )
            raise EvidenceError(
                f"the function {step.type} ran, but TensorFlow collected no graph of it; "
                "stop other tracers and profilers during the call, and do not reset TensorFlow's context"
            )
    # Of an eager op that another process runs, TensorFlow collects no graph here; where it sent it, its results say.
    plain = [step for step in recording.steps if step.type not in recording.functions and not _is_remote(step.device)]
    if plain and not recording.graphs:
        raise EvidenceError(
            f"TensorFlow collected no graph of {plural(len(plain), 'op')} that ran (first: {plain[0].type}); stop "
            "other tracers and profilers during the call"
        )


def _reads_a_resource(inputs: Any) -> bool:
    """Whether an op's first input is a resource: TensorFlow runs it there, whatever its scope."""
    return bool(len(inputs)) and inputs[0].dtype.name == "resource"


def _is_remote(device: str | None) -> bool:
    return device is not None and not DeviceName.parse(device).in_this_process
