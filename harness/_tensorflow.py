"""The only door to TensorFlow's private interface (``tensorflow.python.*``).

Everything that is touched behind it is checked first: what is not as expected raises
:class:`~harness.errors.TensorFlowInterfaceChanged`, never an empty recording.

The modules used are in ``_MODULES``, as found in the versions that ``harness.tensorflow_version`` names. A function
that needs another one, such as the classes of the profiler's files, imports and checks it itself.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.errors import EvidenceError, TensorFlowInterfaceChanged
from harness.tensorflow_version import PRIVATE_SIGNATURES, XPLANE_FIELDS, untested

#: Types whose tensors live in host memory whatever the device of the op (TENSORFLOW: int32, string, handles).
HOST_DTYPES = frozenset({"int32", "string", "resource", "variant"})
#: The same as numbers, as ``tensorflow/core/framework/types.proto`` has them.
HOST_DTYPE_NUMBERS = frozenset({3, 7, 20, 21})
_EXTENSION = (
    "RegisterGradientFunction",
    "RegisterVSpace",
    "FastPathExecute",
    "TapeSetIsEmpty",
    "TapeSetIsStopped",
    "TapeSetShouldRecordBackprop",
)
_MODULES = {
    "context": "eager.context",  # collected graphs after placement, the kernel cache, function definitions
    "op_callbacks": "framework.op_callbacks",  # each eager op as it runs, each graph op as it is built
    "backprop": "eager.backprop",  # _gradient_function, called once per forward op when a tape is played back
    "imperative_grad": "eager.imperative_grad",  # plays a tape back
    "pywrap": "pywrap_tfe",  # what the tape calls
    "tape": "eager.tape",  # opens and closes tapes
    "record": "eager.record",  # regions with a backward function of their own
    "op_def_registry": "framework.op_def_registry",  # the dtypes of a node's outputs
    "kernels": "framework.kernels",  # which kinds of device an op has a kernel for
    "func_graph": "framework.func_graph",  # FuncGraph, made whenever a function is traced
    "ops": "framework.ops",  # _EagerTensorBase._numpy, through which Python reads every tensor; Graph
    "execute": "eager.execute",  # record_gradient
    "gradients_util": "ops.gradients_util",  # gradients in graphs
    "script_ops": "ops.script_ops",  # tf.numpy_function, which runs no op in eager code; EagerFunc of tf.py_function
    "control_flow_state": "ops.control_flow_state",  # the gradients of results that nobody reads
    "cond": "ops.cond_v2",  # what the gradient of a tf.cond is given
    "function_context": "eager.polymorphic_function.function_context",  # what a tf.function is traced anew for
    "concrete_function": "eager.polymorphic_function.concrete_function",  # keeps the backward functions of a trace
    "variables": "ops.resource_variable_ops",  # BaseResourceVariable, whose rows are looked up
    "constants": "framework.constant_op",  # convert_to_eager_tensor, which makes a tensor without an op
}
#: Classes in them, by the names that they have here.
_CLASSES = {
    "graph": "ops.Graph",
    "variable": "variables.BaseResourceVariable",
    "trace": "concrete_function.ConcreteFunction",
    "rewriting": "concrete_function._DelayedRewriteGradientFunctions",
    "python_function": "script_ops.EagerFunc",
}


class Interface(SimpleNamespace):
    """The private modules and classes, by the names in ``_MODULES`` and ``_CLASSES``; checked."""


@lru_cache(maxsize=1)
def interface() -> Interface:
    """Import the private modules and check that they have the shape that this file was written for."""
    found = Interface(**{name: _module(f"tensorflow.python.{path}") for name, path in _MODULES.items()})
    for name, place in _CLASSES.items():
        module, class_name = place.split(".")
        owner = getattr(found, module)
        _check_attributes(owner, owner.__name__, (class_name,))
        setattr(found, name, getattr(owner, class_name))
    found.attr_value = _module("tensorflow.core.framework.attr_value_pb2")
    check_interface(found)
    unknown = untested(_module("tensorflow").__version__)
    if unknown is not None:
        warnings.warn(unknown, RuntimeWarning, stacklevel=2)
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TensorFlowInterfaceChanged(name, "a module", f"ImportError: {error}") from error


def check_interface(private: Any) -> None:
    """Raise :class:`TensorFlowInterfaceChanged` naming the first part that is not as expected."""
    wanted = {
        private.context: ("context", "Context"),
        private.op_callbacks: ("add_op_callback", "remove_op_callback"),
        private.pywrap: tuple(f"TFE_Py_{name}" for name in _EXTENSION),
        private.backprop: ("_default_vspace",),
        private.op_def_registry: ("get",),
        private.kernels: ("get_registered_kernels_for_op",),
        private.attr_value: ("AttrValue",),
        private.func_graph: ("FuncGraph",),
        private.script_ops: ("py_func_common",),
        private.ops: ("_EagerTensorBase", "get_default_graph"),
        private.graph: ("_colocation_stack", "_create_op_internal", "_device_function_stack", "device"),
        private.variable: ("handle",),
    }
    for owner, names in wanted.items():
        _check_attributes(owner, owner.__name__, names)
    now = f"{private.context.__name__}.context()"
    _check_attributes(private.context.context(), now, ("_soft_device_placement", "_thread_local_data"))
    _check_attributes(private.context.context()._thread_local_data, now, ("op_callbacks",))
    methods = """
        add_op_callback call_function clear_kernel_cache device device_name devices disable_graph_collection
        enable_graph_collection ensure_initialized executing_eagerly export_run_metadata get_function_def
        get_graph_debug_info has_function op_callbacks remove_op_callback _clear_caches _set_device
    """
    _check_attributes(private.context.Context, f"{private.context.__name__}.Context", methods.split())
    makers = ("aggregate_fn", "ones_fn", "ones_like_fn", "zeros_fn", "zeros_like_fn")
    _check_attributes(private.backprop._default_vspace, "backprop._default_vspace", makers)
    tensors = f"{private.ops.__name__}._EagerTensorBase"
    _check_attributes(private.ops._EagerTensorBase, tensors, ("_numpy", "_numpy_internal"))
    for place, expected in PRIVATE_SIGNATURES.items():
        module, function = place.split(".")
        owner = getattr(private, module)
        _check_attributes(owner, owner.__name__, (function,))
        found = list(inspect.signature(getattr(owner, function)).parameters)
        if found != expected.split():
            raise TensorFlowInterfaceChanged(
                f"{owner.__name__}.{function}",
                f"parameters ({', '.join(expected.split())})",
                f"({', '.join(found)})",
            )


def _check_attributes(owner: Any, place: str, names: Sequence[str]) -> None:
    for name in names:
        if not hasattr(owner, name):
            raise TensorFlowInterfaceChanged(f"{place}.{name}", "an attribute", "none")


@dataclass(slots=True)
class Count:
    """How often something happened so far."""

    times: int = 0


def count_traces() -> AbstractContextManager[Count]:
    """Count the functions that are traced in the body, of any ``tf.function``, ``tf.data`` pipeline or Keras model."""
    return _counted(interface().func_graph.FuncGraph, "__init__")


def count_reads() -> AbstractContextManager[Count]:
    """Count how often Python reads the value of a tensor in the body: ``numpy()``, ``float()``, ``if``, ``print``."""
    return _counted(interface().ops._EagerTensorBase, "_numpy")


def uncounted_value(tensor: Any) -> Any:
    """Return the value of an eager tensor as a NumPy array, which :func:`count_reads` does not count."""
    return tensor._numpy_internal()


def constants_made(note: Callable[[Any], None]) -> AbstractContextManager[Count]:
    """Call ``note`` with each eager tensor that is made of a Python or NumPy value in the body."""
    return _counted(interface().constants, "convert_to_eager_tensor", note)


@contextmanager
def _counted(owner: Any, name: str, note: Callable[[Any], None] = lambda _: None) -> Iterator[Count]:
    """Count the calls of a function, which is put back as it was when the body ends; ``note`` gets their results."""
    count = Count()
    original = owner.__dict__[name]

    @wraps(original)
    def method(*arguments: Any, **keywords: Any) -> Any:
        count.times += 1
        note(made := original(*arguments, **keywords))
        return made

    setattr(owner, name, method)
    try:
        yield count
    finally:
        setattr(owner, name, original)


@dataclass(frozen=True, slots=True)
class CollectedGraph:
    """What TensorFlow made of a function, or of one eager kernel. All are ``GraphDef`` protocol buffers.

    ``before`` is as the user wrote it, ``after`` optimised and still in one piece, ``partitions`` what was executed,
    one graph per device.
    """

    before: Any
    after: Any
    partitions: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Runtime:
    """TensorFlow's runtime while it is watched."""

    context: Any

    def collected(self) -> list[CollectedGraph]:
        """The graphs that were placed since the last call: of functions, and of eager kernels."""
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


def lines_of(function: str) -> dict[str, list[tuple[str, int, str]]]:
    """File, line and function of the frames in which each node of a function was made, the innermost first."""
    context = interface().context.context()
    if not context.has_function(function):
        return {}
    info = context.get_graph_debug_info(function)
    frames = {number: (info.files[each.file_index], each.line, each.func) for number, each in info.frames_by_id.items()}
    traces = {node: info.traces_by_id[number].frame_id for node, number in info.name_to_trace_id.items()}
    return {node: [frames[number] for number in reversed(numbers)] for node, numbers in traces.items()}


def parse_xspace(data: bytes, where: str) -> Any:
    """The profile (an ``XSpace`` protocol buffer) in the bytes of a file; ``where`` names the file in messages.

    Raise EvidenceError if the bytes are no profile.
    """
    module = _module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    for name, fields in XPLANE_FIELDS.items():
        _check_attributes(module, module.__name__, (name,))
        known = getattr(module, name).DESCRIPTOR.fields_by_name
        missing = [field for field in fields if field not in known]
        if missing:
            raise TensorFlowInterfaceChanged(f"{module.__name__}.{name}.{missing[0]}", "a field", "none")
    decoding = _module("google.protobuf.message")
    try:
        return module.XSpace.FromString(data)
    except decoding.DecodeError as error:
        raise EvidenceError(f"{where}: not a TensorFlow profile: {error}") from error


def cluster_addresses() -> dict[str, str]:
    """The address (``host:port``) of each task of the cluster, such as ``/job:worker/replica:0/task:1``."""
    context = interface().context.context()
    _check_attributes(context, "Context", ("get_server_def",))
    server = context.get_server_def()
    if server is None:
        return {}
    return {
        f"/job:{job.name}/replica:0/task:{index}": address
        for job in server.cluster.job
        for index, address in job.tasks.items()
    }


def memory_limits() -> dict[str, int]:
    """What the allocator of each device of this process may have in all, in bytes, by the device's full name.

    A device without a limit reports 0. Of a GPU it is what TensorFlow takes without memory growth.
    """
    private = interface()
    session = _module("tensorflow.python.client.pywrap_tf_session")
    _check_attributes(session, session.__name__, ("TF_DeviceListMemoryBytes",))
    names = ("TFE_ContextListDevices", "TF_DeviceListCount", "TF_DeviceListName", "TF_DeleteDeviceList")
    _check_attributes(private.pywrap, private.pywrap.__name__, names)
    context = private.context.context()
    context.ensure_initialized()
    devices = private.pywrap.TFE_ContextListDevices(context._handle)
    try:
        return {
            private.pywrap.TF_DeviceListName(devices, index): int(session.TF_DeviceListMemoryBytes(devices, index))
            for index in range(private.pywrap.TF_DeviceListCount(devices))
        }
    finally:
        private.pywrap.TF_DeleteDeviceList(devices)


def load_pluggable_device(library: Path) -> None:
    """Take in a library of devices. It cannot be taken back, and a second one of the same platform aborts the process.

    Raise RuntimeError if TensorFlow refuses the library.
    """
    loading = _module("tensorflow.python.framework.load_library")
    _check_attributes(loading, loading.__name__, ("load_pluggable_device_library",))
    loading.load_pluggable_device_library(str(library))
    # In graphs that need much memory, TensorFlow adds up in variables of TensorFlow 1, which such devices do not have.
    context, config = interface().context.context(), _module("tensorflow.core.protobuf.config_pb2").ConfigProto()
    _check_attributes(context, "context.Context", ("_config",))
    config.MergeFrom(context._config or config)
    config.graph_options.rewrite_options.memory_optimization = 1  # NO_MEM_OPT
    context._config = config


def context_started() -> bool:
    """Whether this process has TensorFlow's devices, which are made once."""
    context = interface().context.context()
    _check_attributes(context, "context.Context", ("_context_handle",))
    return context._context_handle is not None


def follow_splits(arrange: Callable[[list[tuple[int, float | None]]], None]) -> None:
    """Call ``arrange`` with what a program makes of the GPUs of a pluggable device, which TensorFlow itself ignores.

    When the runtime starts, it gets each visible GPU by its number, or each part of one with its memory limit in MiB.
    """
    context = interface().context.context()
    names = ("_compute_device_options", "_virtual_device_map", "_visible_device_list", "_pluggable_devices")
    _check_attributes(context, "context.Context", (*names, "_context_handle"))
    compute = context._compute_device_options

    def options_of(device_type: str = "GPU") -> Any:
        options = compute(device_type)
        gpus = enumerate(context._pluggable_devices or ())
        shown = [(number, gpu) for number, gpu in gpus if gpu in context._visible_device_list]
        if device_type == "PluggableDevice" and shown:
            split = [(number, context._virtual_device_map.get(gpu)) for number, gpu in shown]
            parts = [(number, part and part.memory_limit) for number, made in split for part in made or (None,)]
            if context._context_handle is None:
                arrange(parts)
            options.visible_device_list = ",".join(f"GPU:{number}" for number in range(len(parts)))
        return options

    context._compute_device_options = options_of


def train_keras_without_xla() -> None:
    """Make Keras's ``jit_compile="auto"`` mean no XLA in this process, for devices that XLA has no compiler for.

    Keras takes every GPU for one that XLA compiles for. What is asked for with ``jit_compile=True`` is left as it is.
    """
    trainer = _module("keras.src.trainers.trainer")
    _check_attributes(trainer, trainer.__name__, ("Trainer",))
    _check_attributes(trainer.Trainer, f"{trainer.__name__}.Trainer", ("_resolve_auto_jit_compile",))
    trainer.Trainer._resolve_auto_jit_compile = lambda _: False


def as_autograph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` as AutoGraph would have it inside the ``tf.function`` that is being built; ``fn`` itself in eager code."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return fn
    autograph = tf.__internal__.autograph
    converted: Callable[..., Any] = autograph.tf_convert(fn, autograph.control_status_ctx())
    return converted


def clone_of_tf_function(fn: Any, python_function: Callable[..., Any]) -> Any:
    """A ``tf.function`` with the options of ``fn`` that traces ``python_function``."""
    _check_attributes(type(fn), f"{type(fn).__module__}.{type(fn).__name__}", ("_clone",))
    return fn._clone(python_function)


@contextmanager
def op_callback(callback: Callable[..., Any]) -> Iterator[None]:
    """Call ``callback(op_type, inputs, attributes, outputs, graph)`` for each op of this thread in the body.

    ``graph`` is ``None`` where an op ran. While a graph is built, the tensors that ``callback`` returns replace the
    results of the op.
    """
    private = interface().op_callbacks

    def on_op(op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> Any:  # noqa: ARG001
        kind = op_type if isinstance(op_type, str) else op_type.decode()
        return callback(kind, inputs, attrs, outputs or (), graph)

    private.add_op_callback(on_op)
    try:
        yield
    finally:
        private.remove_op_callback(on_op)


def mark(node: Any, attribute: str, text: str) -> None:
    """Put a text attribute on a node of a graph. It survives inlining and placement."""
    node._set_attr(attribute, interface().attr_value.AttrValue(s=text.encode()))


def graph_of_function(graph: Any, name: str) -> Any:
    """The graph of a function that another graph calls."""
    _check_attributes(graph, "FuncGraph", ("_get_function",))
    function = graph._get_function(name)
    _check_attributes(function, "a function of a graph", ("graph",))
    return function.graph
