"""Runs the backward ops of any program beside their forward ops: ``harness.colocate_gradients``.

TensorFlow plays a tape back where ``tape.gradient`` is called. It calls one Python function for the gradient of each
op, one for each region with a backward function of its own (a custom gradient, a call of a ``tf.function``), and one to
add up the gradients of a tensor. Within the context each of them enters the device of the forward op.

Which forward op it is follows from the op's attributes: TensorFlow hands the very tuple that the op ran with to its
gradient function. Its device is noted when the op runs, or is added to a graph.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, overload

from harness._tensorflow import interface
from harness.parallel.places import Sums, device_of, entered
from harness.plural import plural

_Fn = TypeVar("_Fn", bound=Callable[..., Any])


class ColocateGradients(AbstractContextManager[None]):
    """What :func:`colocate_gradients` returns: a context manager and a decorator, for any number of uses."""

    def __init__(self) -> None:
        self._entered = threading.local()

    def __enter__(self) -> None:
        stack = self._entered.__dict__.setdefault("stack", [])
        stack.append(_enter())

    def __exit__(self, *error: object) -> None:
        if self._entered.stack.pop():
            _leave(raised=error[0] is not None)

    def __call__(self, fn: _Fn) -> _Fn:
        """``fn``, run within the context."""

        @functools.wraps(fn)
        def colocated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return colocated  # type: ignore[return-value]


@overload
def colocate_gradients(fn: None = None) -> ColocateGradients: ...
@overload
def colocate_gradients(fn: _Fn) -> _Fn: ...
def colocate_gradients(fn: Any = None) -> Any:
    """Run backward ops on the devices of their forward ops, in eager code and in graphs.

    TensorFlow 2 runs the backward ops of a program where ``tape.gradient`` is called, which is one device however many
    the program uses. Within this context, each backward op runs on the device of the op that it is the gradient of, the
    sum of several gradients of a tensor on the device of that tensor, and of a variable on the device of the variable.
    TensorFlow 1 had ``colocate_gradients_with_ops=True`` for it. No value changes.

    Use it as a context manager around the forward pass and ``tape.gradient``, or as a decorator of a function that does
    both. It holds for the thread that enters it, and for the replica threads of a strategy that are started within it.
    A ``tf.function`` has a trace of its own within the context. Contexts can be nested.

    Args:
        fn: a function to decorate; without it the context manager is returned.

    Raises:
        TensorFlowInterfaceChanged: TensorFlow's gradient functions are not as in the supported versions.
    """
    context = ColocateGradients()
    return context if fn is None else context(fn)


#: The device of each op, and of its inputs, by the identity of its attributes. A tape keeps these with the op.
_notes: dict[int, tuple[Any, str, Sequence[str | None] | None]] = {}
_NOTES_TO_SWEEP_AT = 4096
_sweep_at = _NOTES_TO_SWEEP_AT
#: Op types, as text and bytes, of which a tape keeps all inputs: it goes by the type alone.
_keeps_inputs: set[str | bytes] = set()


class _Thread(threading.local):
    """What this thread plays back, and how many ops it met that ran outside of the context."""

    def __init__(self) -> None:
        self.plays: list[Sums] = []
        #: Whether TensorFlow colocates by itself the gradients that it is building: ``tf.gradients`` does.
        self.colocates_itself = False
        self.strangers = 0


_thread = _Thread()
#: TensorFlow's context, and whether no tape records: they are asked for at each op. Set before any context is entered.
_context: Any = None
_no_tape: Callable[[], bool]
_installing = threading.Lock()
_contexts = 0
_uninstall: Callable[[], None] | None = None


def _enter() -> bool:
    """Enter the context in this thread; returns whether it is the outermost one."""
    global _contexts, _uninstall, _context, _no_tape
    private = interface()
    context = private.context.context()
    if _note in context.op_callbacks:
        return False
    with _installing:
        _context, _no_tape = context, private.pywrap.TFE_Py_TapeSetIsEmpty
        if _uninstall is None:
            _uninstall = _install()
        _contexts += 1
    _thread.strangers = 0
    # TensorFlow's own add_op_callback would slow down ops that are not run by its fast path, of which a tape tells.
    context.add_op_callback(_note)
    return True


def _leave(*, raised: bool) -> None:
    global _contexts, _uninstall
    if _active():
        _context.remove_op_callback(_note)
    with _installing:
        _contexts -= 1
        if not _contexts and _uninstall is not None:
            _uninstall()
            _uninstall = None
    _sweep()
    if _thread.strangers and not raised:
        warnings.warn(
            f"colocate_gradients: {plural(_thread.strangers, 'gradient')} belong to ops that ran "
            "before the context was entered, "
            "so that their devices are unknown and TensorFlow placed them; enter the context before the forward pass",
            RuntimeWarning,
            stacklevel=3,
        )


def _active() -> bool:
    """Whether this thread is within the context. TensorFlow hands its list of callbacks on to replica threads."""
    return _note in _context.op_callbacks


def _note(op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:  # noqa: ARG001
    """Note where an eager op ran. TensorFlow calls this after each."""
    if graph is None and attrs and outputs and not _no_tape():
        places = None if op_type in _keeps_inputs else [tensor.device for tensor in inputs]
        _notes[id(attrs)] = (attrs, outputs[0].device, places)
        if len(_notes) >= _sweep_at:
            _sweep()


def _sweep() -> None:
    """Drop the notes of ops that no tape keeps any more: nobody else has their attributes."""
    global _sweep_at
    for key, note in list(_notes.items()):
        # Referred to by the note and by the argument of getrefcount.
        if sys.getrefcount(note[0]) <= 2:
            _notes.pop(key, None)
    _sweep_at = max(_NOTES_TO_SWEEP_AT, 2 * len(_notes))


def _place_of(op_type: str, attrs: Any, inputs: Any, outputs: Any) -> tuple[str | None, Sequence[str | None]]:
    """The device of a forward op, ``None`` where it is unknown, and those of its inputs."""
    note = _notes.get(id(attrs))
    if note is not None and note[2] is not None:
        if op_type not in _keeps_inputs and inputs and not any(tensor is None for tensor in inputs):
            _keeps_inputs.update((op_type, op_type.encode()))
        return note[1], note[2]
    places = [device_of(tensor) for tensor in inputs or ()]
    if note is not None:
        return note[1], places
    for tensor in outputs or ():
        if tensor is not None:
            return device_of(tensor), places
    return _device_of_reader(op_type, inputs), places


def _device_of_reader(op_type: str, inputs: Any) -> str | None:
    """The device of the op of this type with these inputs in a graph; ``None`` if there is none, or they differ."""
    known = [(at, tensor) for at, tensor in enumerate(inputs or ()) if tensor is not None]
    if not known or not hasattr(known[0][1], "consumers") or hasattr(known[0][1], "numpy"):
        return None
    found = {
        op.device
        for op in known[0][1].consumers()
        if op.type == op_type and all(at < len(op.inputs) and op.inputs[at] is tensor for at, tensor in known)
    }
    return found.pop() if len(found) == 1 else None


def _colocated_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(
        op_name: str, attrs: Any, count: int, inputs: Any, outputs: Any, out_grads: Any, skip: Any, scope: Any
    ) -> Any:
        if not _active():
            return original(op_name, attrs, count, inputs, outputs, out_grads, skip, scope)
        device, places = _place_of(op_name, attrs, inputs, outputs)
        if device is None:
            # The reading of a variable hands its gradient through.
            _thread.strangers += op_name != "ReadVariableOp"
            return original(op_name, attrs, count, inputs, outputs, out_grads, skip, scope)
        plays = _thread.plays
        sums = plays[-1] if plays else Sums()
        sums.consume(out_grads)
        with entered(device, _context):
            out_grads = sums.zeros_here(out_grads, device)
            grads = original(op_name, attrs, count, inputs, outputs, out_grads, skip, scope)
        return sums.register(grads, places)

    return gradient


def _colocated_play(original: Callable[..., Any]) -> Callable[..., Any]:
    def play(tape: Any, target: Any, sources: Any, output_gradients: Any = None, *rest: Any, **named: Any) -> Any:
        if not _active():
            return original(tape, target, sources, output_gradients, *rest, **named)
        sums = Sums()
        seeds = sums.seeds(target, output_gradients)
        _thread.plays.append(sums)
        try:
            return original(tape, target, sources, seeds, *rest, **named)
        finally:
            _thread.plays.pop()

    return play


def _colocated_region(original: Callable[..., Any]) -> Callable[..., Any]:
    def record(
        op_type: Any,
        output_tensors: Any,
        input_tensors: Any,
        backward_function: Callable[..., Any],
        *rest: Any,
        **named: Any,
    ) -> None:
        if not _active():
            original(op_type, output_tensors, input_tensors, backward_function, *rest, **named)
            return
        if _context.executing_eagerly():
            # The scope of the call, not a device: ops inside a function may have devices of their own, or none.
            device = _context.device_name or ""
        else:
            device = (output_tensors[0].device or "") if len(output_tensors) else ""
        places = tuple(map(device_of, input_tensors))

        def backward(*out_grads: Any) -> Any:
            if not _active():
                return backward_function(*out_grads)
            sums = _thread.plays[-1] if _thread.plays else Sums()
            sums.consume(out_grads)
            with entered(device, _context):
                grads = backward_function(*sums.zeros_here(out_grads, device))
            return sums.register(grads, places)

        original(op_type, output_tensors, input_tensors, backward, *rest, **named)

    return record


def _noted_record(original: Callable[..., Any]) -> Callable[..., Any]:
    def record(op_name: Any, inputs: Any, attrs: Any, outputs: Any) -> Any:
        if attrs and len(outputs) and _active():
            _notes[id(attrs)] = (attrs, device_of(outputs[0]) or "", [device_of(tensor) for tensor in inputs])
        return original(op_name, inputs, attrs, outputs)

    return record


def _colocated_graph_scope(original: Callable[..., Any]) -> Callable[..., Any]:
    def scope(op: Any, gradient_uid: Any, colocate_gradients_with_ops: bool) -> Any:
        _thread.colocates_itself = bool(colocate_gradients_with_ops)
        if colocate_gradients_with_ops or not _active():
            return original(op, gradient_uid, colocate_gradients_with_ops)
        return entered(op.device, _context)

    return scope


def _colocated_graph_sum(original: Callable[..., Any]) -> Callable[..., Any]:
    def aggregate(grads: Any, op: Any, *rest: Any, **named: Any) -> Any:
        several = _active() and any(
            len(of_output) > 1 for of_output in grads.get(op) or () if isinstance(of_output, list)
        )
        with entered(_device_of_argument(op), _context) if several else nullcontext():
            return original(grads, op, *rest, **named)

    return aggregate


def _one_sum(original: Callable[..., Any]) -> Callable[..., Any]:
    def add(tensor_list: Any, gradient_uid: Any) -> Any:
        """All at once: TensorFlow would add up those on each device first, and round otherwise than without devices."""
        import tensorflow as tf

        if _thread.colocates_itself or not _active():
            return original(tensor_list, gradient_uid)
        return tf.add_n(tensor_list)

    return add


def _device_of_argument(op: Any) -> str:
    """The device of an op of a function, or of what the function was given in its place, such as a variable."""
    if op.type == "Placeholder":
        for outside, inside in getattr(op.graph, "captures", ()):
            if inside.op is op:
                return outside.device or ""
    return str(op.device)


def _own_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    def make(scope_type: Any = None) -> Any:
        found = original(scope_type)
        return found._replace(context=(found.context, "colocate_gradients")) if _active() else found

    return make


def _without_notes(original: Callable[..., Any]) -> Callable[..., Any]:
    def wanted() -> Any:
        """Whether callbacks get graph ops. Notes need none, and each costs a protocol buffer."""
        callbacks = _context.op_callbacks
        return original() and not (len(callbacks) == 1 and callbacks[0] is _note)

    return wanted


def _sum_there(original: Callable[..., Any]) -> Callable[..., Any]:
    def aggregate(grads: Any) -> Any:
        if len(grads) == 1 or not _thread.plays or not _active():
            return original(grads)
        return _thread.plays[-1].add_up(grads, original)

    return aggregate


def _noted_zeros(original: Callable[..., Any]) -> Callable[..., Any]:
    def zeros(*arguments: Any) -> Any:
        made = original(*arguments)
        if _thread.plays and made is not None and _active():
            _thread.plays[-1].add_zeros(made, lambda: original(*arguments))
        return made

    return zeros


_WRAPPERS = (
    ("backprop", "_gradient_function", _colocated_gradient),
    ("imperative_grad", "imperative_grad", _colocated_play),
    ("record", "record_operation", _colocated_region),
    ("record", "record_operation_backprop_only", _colocated_region),
    ("execute", "record_gradient", _noted_record),
    ("gradients_util", "_maybe_colocate_with", _colocated_graph_scope),
    ("gradients_util", "_AggregatedGrads", _colocated_graph_sum),
    ("gradients_util", "_MultiDeviceAddN", _one_sum),
    ("function_context", "make_function_context", _own_trace),
    ("op_callbacks", "should_invoke_op_callbacks", _without_notes),
)


def _install() -> Callable[[], None]:
    """Put the wrappers in the place of TensorFlow's functions; returns what puts those back."""
    private = interface()
    undo: list[Callable[[], None]] = []

    def replace(owner: Any, name: str, replacement: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, replacement)
        # Left in place where somebody wrapped it in turn: without a context it does nothing.
        undo.append(lambda: setattr(owner, name, original) if getattr(owner, name) is replacement else None)

    def register() -> None:
        private.pywrap.TFE_Py_RegisterGradientFunction(private.backprop._gradient_function)
        private.pywrap.TFE_Py_RegisterVSpace(private.backprop._default_vspace)

    for module, name, wrap in _WRAPPERS:
        owner = getattr(private, module)
        replace(owner, name, functools.wraps(getattr(owner, name))(wrap(getattr(owner, name))))
    space = private.backprop._default_vspace
    colocated = space._replace(
        aggregate_fn=_sum_there(space.aggregate_fn),
        zeros_fn=_noted_zeros(space.zeros_fn),
        zeros_like_fn=_noted_zeros(space.zeros_like_fn),
    )
    replace(private.backprop, "_default_vspace", colocated)
    register()

    def uninstall() -> None:
        for step in reversed(undo):
            step()
        register()

    return uninstall
