"""Writes down what runs while a function is traced: each op, and for each backward op its forward op.

TensorFlow computes a gradient op by op: the ops that run while it asks for the gradient of one forward op are that
forward op's backward ops. Which forward op it is follows from what it is asked with: its outputs, else its inputs,
else (an op of which TensorFlow keeps neither, such as BiasAdd) the tensor whose gradient arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness._tensorflow import HOST_DTYPE_NUMBERS, CollectedGraph, Runtime, mark, watched
from harness.errors import EvidenceError
from harness.evidence.functions import called_by, compiled_by_xla
from harness.evidence.marks import BACKWARD_ATTRIBUTE, FORWARD_ATTRIBUTE, FORWARD_ELSEWHERE_ATTRIBUTE

_SUMS = frozenset({"AddN", "AddV2"})
_IDENTITIES = frozenset({"Identity", "IdentityN"})


class Step:
    """One op as it ran eagerly, or as it was added to a graph (then ``graph`` says to which).

    ``device`` is where an eager op ran, ``None`` where nothing tells. ``held`` lists inputs that another device held:
    (tensor id, device, size in bytes or ``None`` for what lives in host memory). ``body`` is the graph of a function.
    """

    __slots__ = (
        "body",
        "device",
        "dtypes",
        "forward",
        "graph",
        "held",
        "in_gradient",
        "inputs",
        "label",
        "name",
        "outputs",
        "scope",
        "shapes",
        "type",
    )

    def __init__(self, type_: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        self.type = type_
        self.inputs = inputs
        self.outputs = outputs
        self.scope: str | None = None
        self.dtypes: tuple[int, ...] = ()
        self.device: str | None = None
        self.held: list[tuple[int, str, int | None]] = []
        self.name: str | None = None
        self.graph: int | None = None
        self.forward: Step | None = None
        self.in_gradient = False
        self.body: CollectedGraph | None = None
        #: Shapes of the inputs of a call.
        self.shapes: tuple[tuple[int | None, ...] | None, ...] = ()
        #: Name of the op in the trace; given when the trace is built.
        self.label = ""


@dataclass
class Recording:
    """What :func:`record` saw."""

    #: Eager ops and calls, in the order in which they ended.
    steps: list[Step] = field(default_factory=list)
    #: All graphs that TensorFlow handed over, those of ``Step.body`` included.
    graphs: list[CollectedGraph] = field(default_factory=list)
    #: Definitions (``FunctionDef``) of the functions that were called, and of those that a compiled one calls.
    functions: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Play:
    """One playing back of a tape."""

    #: From a gradient to the tensors that it is the gradient of.
    gradient_of: dict[int, list[int]] = field(default_factory=dict)
    played: set[int] = field(default_factory=set)


class _Stack(threading.local):
    """What this thread is computing gradients of: plays of tapes, and in each the forward op."""

    def __init__(self) -> None:
        self.plays: list[_Play] = []
        self.forwards: list[Step | None] = []


class Recorder:
    """Observes TensorFlow; see :class:`harness._tensorflow.Observer`."""

    def __init__(self) -> None:
        self.recording = Recording()
        self.runtime: Runtime | None = None
        self.stack = _Stack()
        self.lock = threading.RLock()
        self.producer: dict[int, Step] = {}
        self.consumers: dict[tuple[str, tuple[int, ...]], list[Step]] = {}
        self.definitions: dict[str, Any | None] = {}
        self.bodies: dict[tuple[Any, ...], CollectedGraph] = {}
        self.kernel_devices: dict[tuple[Any, ...], str | None] = {}
        self.unclaimed: list[CollectedGraph] = []

    def on_op(
        self, op_type: str, inputs: Any, outputs: Any, *, scope: str | None, name: str | None, graph: Any
    ) -> None:
        """An op ran, or was added to a graph."""
        outputs = outputs or ()
        step = Step(op_type, tuple([tensor._id for tensor in inputs]), tuple([tensor._id for tensor in outputs]))
        stack = self.stack
        if stack.forwards:
            step.forward = stack.forwards[-1]
            step.in_gradient = True
        if graph is None:
            step.scope = scope or None
            self.ran(step, inputs, outputs)
        else:
            step.name = name
            step.graph = id(graph)
            if step.in_gradient and outputs:
                self.mark(step, outputs[0])
        for tensor_id in step.outputs:
            self.producer[tensor_id] = step
        if not step.in_gradient or len(stack.plays) > 0:
            self.consumers.setdefault((op_type, step.inputs), []).append(step)
        if stack.plays and op_type in _SUMS:
            self.add_up(step, stack.plays[-1])

    def ran(self, step: Step, inputs: Any, outputs: Any) -> None:
        """Note where an eager op ran, and what it had to fetch from other devices."""
        step.dtypes = tuple([tensor._datatype_enum() for tensor in outputs])
        for number, tensor in zip(step.dtypes, outputs, strict=True):
            if number not in HOST_DTYPE_NUMBERS:
                step.device = tensor.backing_device
                break
        function = self.definition(step.type)
        if function is not None:
            step.body = self.body(step, function, inputs)
            step.shapes = tuple([tensor._shape_tuple() for tensor in inputs])
        elif step.device is None:
            step.device = self.kernel_device(step, inputs)
        with self.lock:
            self.recording.steps.append(step)
        if function is None:
            for tensor in inputs:
                holder = tensor.backing_device
                if holder != step.device:
                    step.held.append((tensor._id, holder, _size_bytes(tensor)))

    def definition(self, name: str) -> Any | None:
        """The function of this name, or ``None`` for a plain op."""
        if name not in self.definitions:
            assert self.runtime is not None
            function = self.definitions[name] = self.runtime.function(name)
            if function is not None:
                self.recording.functions[name] = function
                if compiled_by_xla(function):
                    # No graph is collected for it, so that the functions it calls have to be asked for.
                    for inner in {inner for node in function.node_def for inner in called_by(node)}:
                        self.definition(inner)
        return self.definitions[name]

    def body(self, step: Step, function: Any, inputs: Any) -> CollectedGraph | None:
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

    def kernel_device(self, step: Step, inputs: Any) -> str | None:
        """Where an op ran whose results, if any, live in host memory: the kernel that TensorFlow made for it says."""
        key = (step.type, step.scope, tuple((tensor._datatype_enum(), tensor.device) for tensor in inputs))
        if key not in self.kernel_devices:
            with self.lock:
                found = [
                    node.device
                    for graph in self.collect()
                    for node in graph.before.node
                    if node.op == step.type and node.name == node.op
                ]
            self.kernel_devices[key] = found[-1] if found else None
        return self.kernel_devices[key]

    def collect(self) -> list[CollectedGraph]:
        """Fetch what TensorFlow placed since the last time."""
        assert self.runtime is not None
        new = self.runtime.collected()
        self.recording.graphs.extend(new)
        self.unclaimed.extend(new)
        return new

    def mark(self, step: Step, output: Any) -> None:
        """Write the forward op onto the node of a gradient op, so that it is known whenever the graph runs."""
        forward = step.forward
        if forward is None or not forward.name:
            mark(output, BACKWARD_ATTRIBUTE, "yes")
        else:
            here = forward.graph == step.graph
            mark(output, FORWARD_ATTRIBUTE if here else FORWARD_ELSEWHERE_ATTRIBUTE, forward.name)

    def add_up(self, step: Step, play: _Play) -> None:
        """The tape adds up the gradients of a tensor that is used more than once."""
        origins = [origin for tensor_id in step.inputs for origin in play.gradient_of.get(tensor_id, ())]
        if origins and step.outputs and step.forward is None:
            play.gradient_of.setdefault(step.outputs[0], []).extend(origins)

    def on_play(self, targets: Any, seeds: Any, run: Callable[[], Any]) -> Any:
        """A tape is played back."""
        play = _Play()
        for target, seed in zip(_listed(targets), _listed(seeds), strict=False):
            if hasattr(seed, "_id") and hasattr(target, "_id"):
                play.gradient_of.setdefault(seed._id, []).append(target._id)
        self.stack.plays.append(play)
        try:
            # What runs outside of any op's gradient belongs to no single forward op: seeds, and sums of gradients.
            return self.within(None, run)
        finally:
            self.stack.plays.pop()

    def on_gradient(
        self, op_type: str, inputs: Any, outputs: Any, out_grads: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        """The gradient of one op is computed."""
        play = self.stack.plays[-1] if self.stack.plays else _Play()
        forward = self.forward_step(op_type, inputs, outputs, out_grads, play)
        result = self.within(forward, run)
        if forward is not None:
            play.played.add(id(forward))
            self.note(play, result, forward.inputs)
        return result

    def on_region(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """A custom gradient, or a call: its forward op is the one that made its first output."""
        step = self.through_identities(outputs[0]._id) if outputs and hasattr(outputs[0], "_id") else None
        return step, tuple(getattr(tensor, "_id", -1) for tensor in inputs)

    def on_region_gradient(self, region: Any, out_grads: Sequence[Any], run: Callable[[], Any]) -> Any:
        """The gradient of such a region is computed."""
        forward, inputs = region if region is not None else (None, ())
        result = self.within(forward, run)
        if self.stack.plays:
            self.note(self.stack.plays[-1], result, inputs)
        return result

    def within(self, forward: Step | None, run: Callable[[], Any]) -> Any:
        self.stack.forwards.append(forward)
        try:
            return run()
        finally:
            self.stack.forwards.pop()

    def note(self, play: _Play, grads: Any, sources: tuple[int, ...]) -> None:
        for grad, source in zip(_listed(grads), sources, strict=False):
            for tensor in (grad, getattr(grad, "values", None)):
                if hasattr(tensor, "_id"):
                    play.gradient_of.setdefault(tensor._id, []).append(source)

    def forward_step(
        self, op_type: str, inputs: Any, outputs: Any, out_grads: Sequence[Any], play: _Play
    ) -> Step | None:
        for tensor in outputs or ():
            step = self.producer.get(getattr(tensor, "_id", -1))
            if step is not None and step.type == op_type:
                return step
        ids = tuple(getattr(tensor, "_id", -1) for tensor in inputs or ())
        same = self.consumers.get((op_type, ids), []) if ids and -1 not in ids else []
        if len(same) == 1:
            return same[0]
        arriving = [step for step in self.steps_behind(out_grads, play) if step.type == op_type]
        if same:
            # The same op on the same inputs more than once, such as on two devices.
            arriving = [step for step in arriving if step in same] or same
        fresh = [step for step in arriving if id(step) not in play.played]
        return (fresh or arriving or [None])[-1]

    def steps_behind(self, grads: Sequence[Any], play: _Play) -> list[Step]:
        """The ops that made the tensors that these are the gradients of, in the order in which they were met."""
        found = []
        for grad in grads:
            for tensor in (grad, getattr(grad, "values", None)):
                for origin in play.gradient_of.get(getattr(tensor, "_id", -1), ()):
                    for step in (self.producer.get(origin), self.through_identities(origin)):
                        if step is not None and step not in found:
                            found.append(step)
        return found

    def through_identities(self, tensor_id: int) -> Step | None:
        """The op that made a tensor; a custom gradient hands its tensors through an Identity or IdentityN."""
        step = self.producer.get(tensor_id)
        while step is not None and step.type in _IDENTITIES:
            source = step.inputs[step.outputs.index(tensor_id)]
            maker = self.producer.get(source)
            if maker is None:
                return step
            tensor_id, step = source, maker
        return step


def _listed(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)


def _size_bytes(tensor: Any) -> int | None:
    """Size of an eager tensor; ``None`` for what lives in host memory and is not copied between devices."""
    if tensor._datatype_enum() in HOST_DTYPE_NUMBERS:
        return None
    return int(tensor._num_elements() * tensor.dtype.size)


@contextmanager
def record() -> Iterator[Recording]:
    """Record every op that TensorFlow executes in the body. Filled when the body ends, also when it raises.

    Raises:
        EvidenceError: a recording is already under way in this process, or TensorFlow ran ops and told of no graph.
        TensorFlowInterfaceChanged: TensorFlow's private interface is not as expected.
    """
    recorder = Recorder()
    with watched(recorder) as runtime:
        recorder.runtime = runtime
        try:
            yield recorder.recording
        finally:
            with recorder.lock:
                recorder.collect()
    check_complete(recorder.recording)


def check_complete(recording: Recording) -> None:
    """Raise where ops ran and TensorFlow told of none of them: the evidence would be empty without anyone noticing."""
    plain = [step for step in recording.steps if step.type not in recording.functions]
    called = [step for step in recording.steps if step.type in recording.functions and not compiled_by_xla(recording.functions[step.type])]
    if recording.graphs:
        return
    if plain or called:
        first = (plain or called)[0].type
        raise EvidenceError(
            f"{len(recording.steps)} op(s) ran (the first: {first}), but TensorFlow collected no graph; "
            "something switched graph collection off while the function ran (tf.summary.trace_off?); run it without that"
        )


