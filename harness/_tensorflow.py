"""The only door to TensorFlow's private interface (``tensorflow.python.*``).

Everything that is touched behind it is checked first: what is not as expected raises
:class:`~harness.errors.TensorFlowInterfaceChanged`, never an empty recording.

The interfaces used, as found in TensorFlow 2.19 to 2.21:

- ``eager.context``: collected graphs after placement, the kernel cache, function definitions;
- ``framework.op_callbacks``: each eager op as it runs, each graph op as it is built;
- ``eager.backprop._gradient_function``: called once per forward op when a tape is played back;
- ``eager.imperative_grad``: plays a tape back;
- ``eager.record``: whether any tape is recording, and how a custom gradient comes onto a tape;
- ``framework.op_def_registry``: the dtypes of a node's outputs.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from harness.errors import EvidenceError, TensorFlowInterfaceChanged

#: Types whose tensors live in host memory whatever the device of the op (TENSORFLOW: int32, string, handles).
HOST_DTYPES = frozenset({"int32", "string", "resource", "variant"})
#: The same as numbers, as ``tensorflow/core/framework/types.proto`` has them.
HOST_DTYPE_NUMBERS = frozenset({3, 7, 20, 21})

_SIGNATURES = {
    "backprop._gradient_function": (
        "op_name",
        "attr_tuple",
        "num_inputs",
        "inputs",
        "outputs",
        "out_grads",
        "skip_input_indices",
        "forward_pass_name_scope",
    ),
    "op_callbacks.invoke_op_callbacks": ("op_type", "inputs", "attrs", "outputs", "op_name", "graph"),
    "imperative_grad.imperative_grad": (
        "tape",
        "target",
        "sources",
        "output_gradients",
        "sources_raw",
        "unconnected_gradients",
    ),
    "record.record_operation": (
        "op_type",
        "output_tensors",
        "input_tensors",
        "backward_function",
        "forward_function",
    ),
}


@dataclass(frozen=True)
class _Private:
    context: Any
    op_callbacks: Any
    backprop: Any
    imperative_grad: Any
    pywrap: Any
    record: Any
    op_def_registry: Any
    attr_value: Any


@lru_cache(maxsize=1)
def _private() -> _Private:
    """Import the private modules and check that they have the shape that this file was written for."""
    private = _Private(
        context=_module("tensorflow.python.eager.context"),
        op_callbacks=_module("tensorflow.python.framework.op_callbacks"),
        backprop=_module("tensorflow.python.eager.backprop"),
        imperative_grad=_module("tensorflow.python.eager.imperative_grad"),
        pywrap=_module("tensorflow.python.pywrap_tfe"),
        record=_module("tensorflow.python.eager.record"),
        op_def_registry=_module("tensorflow.python.framework.op_def_registry"),
        attr_value=_module("tensorflow.core.framework.attr_value_pb2"),
    )
    check_interface(private)
    return private


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TensorFlowInterfaceChanged(name, "a module", f"ImportError: {error}") from error


def check_interface(private: Any) -> None:
    """Raise :class:`TensorFlowInterfaceChanged` naming the first part that is not as expected."""
    wanted = {
        private.context: ("context", "Context"),
        private.op_callbacks: ("add_op_callback", "remove_op_callback", "invoke_op_callbacks"),
        private.pywrap: ("TFE_Py_RegisterGradientFunction",),
        private.record: ("could_possibly_record", "should_record_backprop", "record_operation"),
        private.backprop: ("_gradient_function",),
        private.imperative_grad: ("imperative_grad",),
        private.op_def_registry: ("get",),
        private.attr_value: ("AttrValue",),
    }
    for owner, names in wanted.items():
        _check_attributes(owner, owner.__name__, names)
    methods = (
        "add_op_callback",
        "clear_kernel_cache",
        "device_name",
        "disable_graph_collection",
        "enable_graph_collection",
        "ensure_initialized",
        "executing_eagerly",
        "export_run_metadata",
        "get_function_def",
        "has_function",
        "op_callbacks",
        "remove_op_callback",
        "_clear_caches",
    )
    _check_attributes(private.context.Context, f"{private.context.__name__}.Context", methods)
    for place, expected in _SIGNATURES.items():
        module, function = place.split(".")
        found = tuple(inspect.signature(getattr(getattr(private, module), function)).parameters)
        if found != expected:
            raise TensorFlowInterfaceChanged(
                f"{getattr(private, module).__name__}.{function}",
                f"parameters ({', '.join(expected)})",
                f"({', '.join(found)})",
            )


def _check_attributes(owner: Any, place: str, names: Sequence[str]) -> None:
    for name in names:
        if not hasattr(owner, name):
            raise TensorFlowInterfaceChanged(f"{place}.{name}", "to be there", "nothing")


def tape_may_record() -> bool:
    """Whether any tape or forward accumulator is active in this thread."""
    return bool(_private().record.could_possibly_record())


def tape_watches(tensor: Any) -> bool:
    """Whether an active tape watches ``tensor``, directly or through what it was computed from."""
    return bool(_private().record.should_record_backprop([tensor]))


@dataclass(frozen=True, slots=True)
class CollectedGraph:
    """What TensorFlow made of a function, or of one eager kernel. All are ``GraphDef`` protocol buffers.

    ``before`` is as the user wrote it, ``after`` optimised and still in one piece, ``partitions`` what was executed,
    one graph per device.
    """

    before: Any
    after: Any
    partitions: tuple[Any, ...]


class Observer(Protocol):
    """What is told while TensorFlow runs. ``run`` continues with what TensorFlow would have done.

    Each method is called in the thread that does the work.
    """

    def on_op(
        self, op_type: str, inputs: Any, outputs: Any, *, scope: str | None, name: str | None, graph: Any
    ) -> None:
        """An op ran (``graph`` is ``None``), or was added to a graph under ``name``."""

    def on_gradient(
        self, op_type: str, inputs: Any, outputs: Any, out_grads: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        """The gradient of one forward op is about to be computed; returns what ``run`` returns."""

    def on_region(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """A region with a backward function of its own was put on the tape: a custom gradient, a call of a function.

        What is returned comes back in :meth:`on_region_gradient`.
        """

    def on_region_gradient(self, region: Any, out_grads: Sequence[Any], run: Callable[[], Any]) -> Any:
        """The gradient of such a region is about to be computed; returns what ``run`` returns."""

    def on_play(self, targets: Any, seeds: Any, run: Callable[[], Any]) -> Any:
        """A tape is about to be played back from ``targets``, with ``seeds`` as their gradients or ``None``."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """TensorFlow's runtime while it is watched."""

    context: Any

    def collected(self) -> list[CollectedGraph]:
        """The graphs that were placed since the last call: of functions, and of eager kernels.

        Raises:
            TensorFlowInterfaceChanged: TensorFlow hands over nothing.
        """
        metadata = self.context.export_run_metadata()
        if metadata is None:
            raise TensorFlowInterfaceChanged("Context.export_run_metadata", "a RunMetadata", "None")
        return [
            CollectedGraph(graph.pre_optimization_graph, graph.post_optimization_graph, tuple(graph.partition_graphs))
            for graph in metadata.function_graphs
        ]

    def function(self, name: str) -> Any | None:
        """The definition (``FunctionDef``) of a function, or ``None`` where ``name`` is the type of a plain op."""
        return self.context.get_function_def(name) if self.context.has_function(name) else None


_watching = threading.Lock()


@contextmanager
def watched(observer: Observer) -> Iterator[Runtime]:
    """Tell ``observer`` of everything that TensorFlow does in the body; puts everything back afterwards.

    Threads that start in the body are watched too; of older threads only the collected graphs tell.

    Raises:
        EvidenceError: called inside a ``tf.function``, or the process is being watched already.
        TensorFlowInterfaceChanged: TensorFlow's private interface is not as expected.
    """
    private = _private()
    context = private.context.context()
    context.ensure_initialized()
    if not context.executing_eagerly():
        raise EvidenceError("trace was called inside a tf.function; call it from outside, on the function itself")
    if not _watching.acquire(blocking=False):
        raise EvidenceError("a trace is already being recorded in this process; record one at a time")
    with ExitStack() as undo:
        undo.callback(_watching.release)
        hooks = _Hooks(private, context, observer)
        undo.callback(hooks.stop)
        # Cached kernels and functions are not collected again, and cached constants are not made again: a second
        # trace would see less than the first.
        context.clear_kernel_cache()
        context._clear_caches()
        context.enable_graph_collection()
        undo.callback(context.disable_graph_collection)
        private.op_callbacks.add_op_callback(hooks.on_op)
        undo.callback(private.op_callbacks.remove_op_callback, hooks.on_op)
        private.pywrap.TFE_Py_RegisterGradientFunction(hooks.on_gradient)
        undo.callback(private.pywrap.TFE_Py_RegisterGradientFunction, hooks.gradient_function)
        for owner, name, replacement in (
            (private.imperative_grad, "imperative_grad", hooks.on_play),
            (private.record, "record_operation", hooks.on_record),
        ):
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        undo.callback(threading.settrace, threading.gettrace())  # type: ignore[arg-type]
        threading.settrace(hooks.on_thread)
        yield Runtime(context)


class _Hooks:
    """What is put in the place of TensorFlow's own functions. Does nothing of its own once it has been stopped."""

    def __init__(self, private: _Private, context: Any, observer: Observer) -> None:
        self.context = context
        self.observer: Observer | None = observer
        self.gradient_function = private.backprop._gradient_function
        self.imperative_grad = private.imperative_grad.imperative_grad
        self.record_operation = private.record.record_operation
        self.trace_function = threading.gettrace()

    def stop(self) -> None:
        """Tapes and threads that live on keep these hooks."""
        self.observer = None

    def on_op(
        self, op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: str | None = None, graph: Any = None
    ) -> None:
        observer = self.observer
        if observer is None:
            self.context.remove_op_callback(self.on_op)
            return
        observer.on_op(
            op_type if isinstance(op_type, str) else op_type.decode(),
            inputs,
            outputs,
            scope=self.context.device_name if graph is None else None,
            name=op_name,
            graph=graph,
        )

    def on_gradient(self, *arguments: Any) -> Any:
        observer = self.observer
        if observer is None:
            return self.gradient_function(*arguments)
        op_type, _, _, inputs, outputs, out_grads, _, _ = arguments
        return observer.on_gradient(op_type, inputs, outputs, out_grads, lambda: self.gradient_function(*arguments))

    def on_play(self, tape: Any, target: Any, sources: Any, output_gradients: Any = None, *rest: Any, **named: Any) -> Any:
        observer = self.observer

        def run() -> Any:
            return self.imperative_grad(tape, target, sources, output_gradients, *rest, **named)

        return run() if observer is None else observer.on_play(target, output_gradients, run)

    def on_record(
        self, op_type: Any, output_tensors: Any, input_tensors: Any, backward_function: Any, forward_function: Any = None
    ) -> None:
        region = self.observer.on_region(input_tensors, output_tensors) if self.observer is not None else None

        def backward(*out_grads: Any) -> Any:
            observer = self.observer
            if observer is None:
                return backward_function(*out_grads)
            return observer.on_region_gradient(region, out_grads, lambda: backward_function(*out_grads))

        self.record_operation(op_type, output_tensors, input_tensors, backward, forward_function)

    def on_thread(self, frame: Any, event: str, argument: Any) -> Any:
        """Called by Python as a new thread starts. TensorFlow's callbacks are kept per thread."""
        if self.observer is not None and self.on_op not in self.context.op_callbacks:
            self.context.add_op_callback(self.on_op)
        sys.settrace(self.trace_function)
        return self.trace_function(frame, event, argument) if self.trace_function is not None else None


def as_autograph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` as AutoGraph would have it inside the ``tf.function`` that is being built; ``fn`` itself in eager code."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return fn
    autograph = tf.__internal__.autograph
    converted: Callable[..., Any] = autograph.tf_convert(fn, autograph.control_status_ctx())
    return converted


def mark(tensor: Any, attribute: str, text: str) -> None:
    """Put a text attribute on the graph node that makes ``tensor``. It survives inlining and placement."""
    tensor.op._set_attr(attribute, _private().attr_value.AttrValue(s=text.encode()))


def attribute_text(attributes: Mapping[str, Any], name: str) -> str | None:
    """A text attribute of a node, or ``None``."""
    return attributes[name].s.decode() if name in attributes else None


@lru_cache(maxsize=1024)
def _output_arguments(op_type: str) -> tuple[Any, ...]:
    definition = _private().op_def_registry.get(op_type)
    return () if definition is None else tuple(definition.output_arg)


@lru_cache(maxsize=64)
def dtype_name(number: int) -> str:
    """Name of a dtype from its number in ``types.proto``."""
    import tensorflow as tf

    return str(tf.dtypes.as_dtype(number).name)


def output_dtypes(op_type: str, attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the dtypes of a node's outputs, from its op definition and attributes. Empty where not known."""
    names: list[str] = []
    for argument in _output_arguments(op_type):
        if argument.type_list_attr:
            types = list(attributes[argument.type_list_attr].list.type) if argument.type_list_attr in attributes else []
        elif argument.type_attr:
            types = [attributes[argument.type_attr].type] if argument.type_attr in attributes else []
        else:
            types = [argument.type]
        if argument.number_attr and argument.number_attr in attributes:
            types = types * attributes[argument.number_attr].i
        names.extend(dtype_name(kind) for kind in types if kind)
    return tuple(names)
