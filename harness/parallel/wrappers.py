"""What is put in the place of TensorFlow's functions, so that each backward op runs beside its forward op.

TensorFlow plays a tape back where ``tape.gradient`` is called. It calls one Python function for the gradient of each
op, one for each region with a backward function of its own (a custom gradient, a call of a ``tf.function``), and one to
add up the gradients of a tensor. Each of them enters the device of the forward op here, if that op was noted within
``colocate_gradients``, which this thread is still in, or is pinned. For all other ops they do what they did before.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from harness._tensorflow import interface
from harness.parallel import graphs
from harness.parallel.places import Sums, device_of, device_of_input, entered, spec_of
from harness.parallel.recording import (
    active,
    eager_only,
    in_context,
    note_recorded,
    notes,
    pinned_if,
    place_of,
    run_within,
    runtime,
    thread,
    update,
)

#: The attribute of a trace in which the copy for colocated gradients is, and those in which backward functions are.
_TWIN = "_harness_colocated"
_CACHES = ("_cached_function_pairs", "_first_order_tape_functions", "_higher_order_tape_functions")


def _colocated_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(
        op_name: str, attrs: Any, count: int, inputs: Any, outputs: Any, out_grads: Any, skip: Any, scope: Any
    ) -> Any:
        noted = notes.get(id(attrs))
        sums = thread.plays[-1] if thread.plays else Sums(active=active())
        pinned = noted is not None and noted[3]
        device: str | None = None
        if pinned or sums.active:
            device, places = place_of(noted, op_name, inputs, outputs)
            is_here = noted is not None and device == sums.device and (sums.pinned or not pinned)
            if is_here and not sums.open and not sums.zeros:
                # Most gradients of an eager step take this short way: they belong where the tape is played back.
                grads = original(op_name, attrs, count, inputs, outputs, out_grads, skip, scope)
                return sums.note(grads, places)
        if device is None:
            if op_name != "ReadVariableOp":  # which hands its gradient through
                sums.consume(out_grads)
                thread.strangers += sums.active
            return original(op_name, attrs, count, inputs, outputs, out_grads, skip, scope)
        sums.consume(out_grads)
        if sums.scope is not None:
            # What the scopes below do, without their calls: this happens for every op of an eager tower.
            if pins := pinned and not sums.pinned:
                thread.pinned = True
            runtime.context._set_device(device, spec_of(device))
            try:
                arrived = sums.zeros_here(out_grads, device)
                grads = original(op_name, attrs, count, inputs, outputs, arrived, skip, scope)
            finally:
                runtime.context._set_device(*sums.scope)
                if pins:
                    thread.pinned = False
        else:
            with pinned_if(pinned), entered(device, runtime.context):
                arrived = sums.zeros_here(out_grads, device)
                grads = original(op_name, attrs, count, inputs, outputs, arrived, skip, scope)
        return sums.note(grads, places)

    return gradient


def _colocated_play(original: Callable[..., Any]) -> Callable[..., Any]:
    def play(tape: Any, target: Any, sources: Any, output_gradients: Any = None, *rest: Any, **named: Any) -> Any:
        sums = Sums(active=active(), pinned=thread.pinned)
        seeds = sums.seeds(target, output_gradients) if sums.active else output_gradients
        if runtime.context.executing_eagerly() and runtime.no_tape():
            sums.play_eagerly(runtime.context)
        thread.plays.append(sums)
        try:
            return original(tape, target, sources, seeds, *rest, **named)
        finally:
            thread.plays.pop()

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
        if not active():
            original(op_type, output_tensors, input_tensors, backward_function, *rest, **named)
            return
        pinned = thread.pinned
        if runtime.context.executing_eagerly():
            # The scope of the call, not a device: ops inside a function may have devices of their own, or none.
            device = runtime.context.device_name or ""
            places = tuple(map(device_of, input_tensors))
        else:
            device = (output_tensors[0].device or "") if len(output_tensors) else ""
            places = tuple(map(device_of_input, input_tensors))

        def backward(*out_grads: Any) -> Any:
            if not pinned and not active():
                return backward_function(*out_grads)
            sums = thread.plays[-1] if thread.plays else Sums()
            sums.consume(out_grads)
            with pinned_if(pinned), entered(device, runtime.context):
                arrived = sums.zeros_here(out_grads, device)
                if not thread.plays:
                    # A forward accumulator records the ops that follow, and nothing said so when it was opened.
                    update()
                grads = backward_function(*arrived)
            return sums.note(grads, places, is_new=op_type == "ReadVariableOp")

        original(op_type, output_tensors, input_tensors, backward, *rest, **named)

    return record


def _noted_record(original: Callable[..., Any]) -> Callable[..., Any]:
    def record(op_name: Any, inputs: Any, attrs: Any, outputs: Any) -> Any:
        if attrs and len(outputs) and active():
            note_recorded(op_name, attrs, inputs, outputs)
        return original(op_name, inputs, attrs, outputs)

    return record


def _own_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    def make(scope_type: Any = None) -> Any:
        found = original(scope_type)
        return found._replace(context=(found.context, "colocate_gradients")) if in_context() else found

    return make


def _own_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def of(trace: Any, *rest: Any, **named: Any) -> Any:
        """A trace keeps its backward functions. A copy of it, with room for others, keeps those that are colocated."""
        if active():
            if (twin := vars(trace).get(_TWIN)) is None:
                twin = copy.copy(trace)
                vars(twin).update({cache: {} for cache in _CACHES if cache in vars(trace)})
                twin = vars(trace).setdefault(_TWIN, twin)
            trace = twin
        return original(trace, *rest, **named)

    return of


def _without_notes(original: Callable[..., Any]) -> Callable[..., Any]:
    def wanted() -> Any:
        """Whether callbacks get graph ops. Each costs a protocol buffer, which some have no need of."""
        return not all(map(eager_only.__contains__, runtime.context.op_callbacks)) and original()

    return wanted


def _read_here(original: Callable[..., Any]) -> Callable[..., Any]:
    def read(variable: Any, indices: Any, name: Any = None) -> Any:
        """Read the variable on the shard's device first: TensorFlow looks rows up where the variable is."""
        import tensorflow as tf

        shard = thread.shard
        if shard is None or variable.dtype == tf.variant or _index_of(variable.device) == _index_of(shard):
            return original(variable, indices, name)
        with entered(shard, runtime.context):
            value = variable.read_value()
            return (tf.gather_nd if original.__name__ == "gather_nd" else tf.gather)(value, indices, name=name)

    return read


def _index_of(device: str) -> tuple[Any, Any]:
    import tensorflow as tf

    spec = tf.DeviceSpec.from_string(device)
    return spec.device_type, spec.device_index


def _sum_there(original: Callable[..., Any]) -> Callable[..., Any]:
    def aggregate(grads: Any) -> Any:
        return thread.plays[-1].add_up(grads, original) if len(grads) > 1 and thread.plays else original(grads)

    return aggregate


def _python_within(original: Callable[..., Any]) -> Callable[..., Any]:
    def make(made: Any, func: Callable[..., Any], *rest: Any, **named: Any) -> None:
        """Keep that the function of a ``tf.py_function`` is within the context: a graph runs it in another thread."""
        original(made, functools.partial(run_within, func) if active() else func, *rest, **named)

    return make


def _tape_seen(original: Callable[..., Any]) -> Callable[..., Any]:
    def open_or_close(*tape: Any, **named: Any) -> Any:
        result = original(*tape, **named)
        update()
        return result

    return open_or_close


def _noted_zeros(original: Callable[..., Any]) -> Callable[..., Any]:
    def zeros(*arguments: Any) -> Any:
        made = original(*arguments)
        if thread.plays and made is not None:
            thread.plays[-1].add_zeros(made, lambda: original(*arguments))
        return made

    return zeros


_WRAPPERS = (
    ("backprop", "_gradient_function", _colocated_gradient),
    ("imperative_grad", "imperative_grad", _colocated_play),
    ("record", "record_operation", _colocated_region),
    ("record", "record_operation_backprop_only", _colocated_region),
    ("execute", "record_gradient", _noted_record),
    ("gradients_util", "_maybe_colocate_with", graphs.colocated_scope),
    ("gradients_util", "_AggregatedGrads", graphs.colocated_sum),
    ("gradients_util", "_MultiDeviceAddN", graphs.one_sum),
    ("control_flow_state", "ZerosLike", graphs.variable_before_loop),
    ("cond", "_resolve_grad_inputs", graphs.with_eager_inputs),
    ("function_context", "make_function_context", _own_trace),
    ("trace", "_select_forward_and_backward_functions", _own_backward),
    ("rewriting", "forward_backward", _own_backward),
    ("op_callbacks", "should_invoke_op_callbacks", _without_notes),
    ("python_function", "__init__", _python_within),
    ("tape", "push_new_tape", _tape_seen),
    ("tape", "push_tape", _tape_seen),
    ("tape", "pop_tape", _tape_seen),
    ("graph", "_create_op_helper", graphs.pinned_op),
    ("graph", "_original_op", graphs.vectorised_there),
    ("variable", "sparse_read", _read_here),
    ("variable", "gather_nd", _read_here),
)

_installing = threading.Lock()
_holders = 0
_stays = False
_uninstall: Callable[[], None] | None = None


def install() -> None:
    """Put the wrappers in place, until :func:`release` was called as often."""
    global _holders, _uninstall
    private = interface()
    with _installing:
        runtime.context, runtime.no_tape = private.context.context(), private.pywrap.TFE_Py_TapeSetIsEmpty
        runtime.of_thread, runtime.stopped = runtime.context._thread_local_data, private.pywrap.TFE_Py_TapeSetIsStopped
        if _uninstall is None:
            _uninstall = _replace_all().close
        _holders += 1


def release() -> None:
    """Take the wrappers out again where nobody else needs them."""
    global _holders, _uninstall
    with _installing:
        _holders -= 1
        if not _holders and _uninstall is not None:
            _uninstall()
            _uninstall = None


def stay_installed() -> None:
    """Put the wrappers in place for good: a tape may ask for the gradient of a pinned op at any time."""
    global _stays
    if not _stays:
        install()
        _stays = True


def _replace_all() -> ExitStack:
    """Put the wrappers in the place of TensorFlow's functions; what is returned puts those back."""
    private = interface()
    undo = ExitStack()

    def replace(owner: Any, name: str, replacement: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, replacement)
        # Left in place where somebody wrapped it in turn: without a context it does nothing.
        undo.callback(lambda: setattr(owner, name, original) if getattr(owner, name) is replacement else None)

    def register() -> None:
        private.pywrap.TFE_Py_RegisterGradientFunction(private.backprop._gradient_function)
        private.pywrap.TFE_Py_RegisterVSpace(private.backprop._default_vspace)

    undo.callback(register)
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
    return undo
