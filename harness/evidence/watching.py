"""Has everything that TensorFlow does in this process told to an observer, and puts everything back afterwards."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from harness._tensorflow import Interface, Runtime, interface
from harness.devices.lost import require_hosts
from harness.errors import EvidenceError
from harness.parallel.recording import eager_only
from harness.parallel.wrappers import stay_installed


class Observer(Protocol):
    """Gets calls while TensorFlow runs.

    Each method is called in the thread that does the work. Ops run as soon as TensorFlow is watched, before the body
    begins: Python frees a variable at any time.
    """

    runtime: Runtime

    def on_op(self, op_type: str, inputs: Any, attributes: Any, outputs: Any, scope: str | None) -> None:
        """An op ran. ``attributes`` has the name and the value of each attribute in turn."""

    def on_node(self, node: Any) -> None:
        """An op was added to a graph."""

    def on_recorded(self, op_type: str, attributes: Any, outputs: Sequence[Any]) -> None:
        """A tape records an op, as in a graph, with these attributes, which it hands to the op's gradient function."""

    def forward_of(self, attributes: Any) -> Any:
        """The op with these attributes, for :meth:`within`."""

    def on_region(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """A region with a backward function of its own was put on the tape: a custom gradient, a call of a function.

        What is returned is for :meth:`within`.
        """

    def within(self, forward: Any, run: Callable[[], Any]) -> Any:
        """Run what computes the gradient of ``forward``, an op or a region, or of no single op if it is ``None``."""

    def on_turn_over(self) -> None:
        """This thread ran an op or a function, has yet to return from it, and others may run theirs."""

    def on_error(self, name: str, outermost: bool) -> None:
        """An op of this type, or a function of this name, raised; ``outermost``: nothing is running any more.

        Nothing is called for the ops that this method runs.
        """


_watching = threading.Lock()
#: How long a thread waits for its turn, in seconds, before it concludes that the thread whose turn it is waits for it.
#: An op takes milliseconds, but on a busy machine placing a function for the first time took longer than 0.5 s, and
#: what two threads then ran at once was mixed up. Threads that do wait for each other lose this time once.
_PATIENCE_S = 10.0


@contextmanager
def watched(observer: Observer) -> Iterator[None]:
    """Tell ``observer`` of everything that TensorFlow does in the body; puts everything back afterwards.

    All threads of Python are watched, those that start in the body and older ones. They run one op or function at a
    time each: what TensorFlow collects of two at once, it mixes up. What TensorFlow's own threads run (the ops of a
    ``tf.py_function``) is known from the collected graphs alone.

    Raises:
        EvidenceError: called inside a ``tf.function``, or the process is being watched already.
        TensorFlowInterfaceChanged: TensorFlow's private interface is not as expected.
        HostUnreachable: a host of the cluster is lost. TensorFlow would wait for it without end.
    """
    private = interface()
    # Installed within the body, they would be lost with what is put in place below.
    stay_installed()
    context = private.context.context()
    context.ensure_initialized()
    if not context.executing_eagerly():
        raise EvidenceError(
            "harness.trace was called inside a tf.function; call harness.trace outside, and give it the tf.function"
        )
    if not _watching.acquire(blocking=False):
        raise EvidenceError("a trace is already being recorded in this process; record one at a time")
    with ExitStack() as undo:
        undo.callback(_watching.release)
        hooks = _Hooks(private, context, observer)
        undo.callback(hooks.stop)
        # Cached kernels and functions are not collected again, and cached constants are not made again: a second
        # trace would see less than the first.
        require_hosts()
        context.clear_kernel_cache()
        context._clear_caches()
        context.enable_graph_collection()
        undo.callback(context.disable_graph_collection)
        runtime = observer.runtime = Runtime(context)
        # What raised while an earlier trace was recorded would be reported with the first function of this one.
        run_new_op()
        runtime.collected()
        undo.push(lambda error, *_: None if error is not None else _check_collecting(runtime))
        # Nodes of graphs are seen as they are made. For a callback TensorFlow writes each into a protocol buffer.
        eager_only.append(hooks.on_op)
        undo.callback(eager_only.remove, hooks.on_op)
        private.op_callbacks.add_op_callback(hooks.on_op)
        undo.callback(private.op_callbacks.remove_op_callback, hooks.on_op)
        private.pywrap.TFE_Py_RegisterGradientFunction(hooks.on_gradient)
        undo.callback(private.pywrap.TFE_Py_RegisterGradientFunction, hooks.gradient_function)
        for owner, name, replacement in (
            (private.backprop, "_gradient_function", hooks.on_gradient),
            (private.imperative_grad, "imperative_grad", hooks.on_play),
            (private.record, "record_operation", hooks.on_region),
            (private.execute, "record_gradient", hooks.on_recorded),
            (private.graph, "_create_op_internal", hooks.on_nodes(private.graph._create_op_internal)),
            (private.context.Context, "call_function", hooks.in_turn(private.context.Context.call_function, 1)),
            (private.pywrap, "TFE_Py_FastPathExecute", hooks.in_turn(_reads_variables(private), 1)),
            (private.pywrap, "TFE_Py_Execute", hooks.in_turn(private.pywrap.TFE_Py_Execute, 2)),
        ):
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        undo.callback(threading.settrace, threading.gettrace())
        threading.settrace(hooks.on_thread)
        yield


def _reads_variables(private: Interface) -> Callable[..., Any]:
    """What runs an eager op, with each variable that it is given read by an op of its own.

    TensorFlow would read it too, but tell nobody, so that the op would seem to use no variable.
    """
    run = private.pywrap.TFE_Py_FastPathExecute

    def call(*arguments: Any) -> Any:
        return run(*[each.value() if isinstance(each, private.variable) else each for each in arguments])

    return call


_sentinels = itertools.count()


def run_new_op() -> None:
    """Run an op that has never run before. TensorFlow reports it, and with it the graphs of functions that raised."""
    import tensorflow as tf

    with tf.init_scope(), tf.device(None):
        tf.raw_ops.StringFormat(inputs=[], template=f"harness {next(_sentinels)}")


def _check_collecting(runtime: Runtime) -> None:
    """Raise if TensorFlow no longer reports what it runs. An op that has never run before has to show up."""
    run_new_op()
    require_hosts()
    if not any(node.op == "StringFormat" for graph in runtime.collected() for node in graph.before.node):
        raise EvidenceError(
            "TensorFlow stopped collecting graphs while the function ran, so evidence is missing; stop other "
            "tracers and profilers, such as tf.summary.trace_on, during the call"
        )


class _Hooks:
    """What is put in the place of TensorFlow's own functions. Does nothing of its own once it has been stopped."""

    def __init__(self, private: Interface, context: Any, observer: Observer) -> None:
        self.context = context
        self.observer: Observer | None = observer
        self.gradient_function = private.backprop._gradient_function
        self.imperative_grad = private.imperative_grad.imperative_grad
        self.record_operation = private.record.record_operation
        self.record_gradient = private.execute.record_gradient
        self.trace_function = threading.gettrace()
        self.turn = threading.RLock()
        self.patience_s = _PATIENCE_S
        #: Whether a thread, by its number, takes turns, and those that are in their turn.
        self.takes_turns: dict[int, bool] = {}
        self.in_their_turn: set[int] = set()
        #: The threads, by their number, whose error the observer is looking into.
        self.in_error: set[int] = set()

    def stop(self) -> None:
        """Tapes and threads that live on keep these hooks."""
        self.observer = None

    def on_op(
        self,
        op_type: Any,
        inputs: Any,
        attrs: Any,
        outputs: Any,
        op_name: str | None = None,  # noqa: ARG002
        graph: Any = None,
    ) -> Any:
        observer = self.observer
        if observer is None:
            # TensorFlow is going through the list: removing any but the last one would make it skip the next.
            if self.context.op_callbacks[-1] == self.on_op:
                self.context.remove_op_callback(self.on_op)
        elif graph is None and threading.get_ident() not in self.in_error:
            name = op_type if isinstance(op_type, str) else op_type.decode()
            observer.on_op(name, inputs, attrs, outputs, self.context.device_name)
            # Of an op whose arguments TensorFlow had to convert first, this is called after the turn.
            if threading.get_ident() not in self.in_their_turn:
                observer.on_turn_over()
        # For the next callback, and in a graph for TensorFlow, which adds up slices of it and the lists between them.
        return outputs if graph is None or outputs is None else list(outputs)

    def on_nodes(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``create``, which adds an op to a graph, so that the observer gets each op."""

        def created(*arguments: Any, **named: Any) -> Any:
            node = create(*arguments, **named)
            if self.observer is not None:
                self.observer.on_node(node)
            return node

        return created

    def on_gradient(self, *arguments: Any) -> Any:
        observer = self.observer
        if observer is None:
            return self.gradient_function(*arguments)
        return observer.within(observer.forward_of(arguments[1]), lambda: self.gradient_function(*arguments))

    def on_play(self, *arguments: Any, **named: Any) -> Any:
        observer = self.observer

        def run() -> Any:
            return self.imperative_grad(*arguments, **named)

        return run() if observer is None else observer.within(None, run)

    def on_recorded(self, op_name: Any, inputs: Any, attrs: Any, outputs: Any) -> Any:
        if self.observer is not None:
            self.observer.on_recorded(op_name, attrs, outputs)
        return self.record_gradient(op_name, inputs, attrs, outputs)

    def on_region(
        self,
        op_type: Any,
        output_tensors: Any,
        input_tensors: Any,
        backward_function: Any,
        forward_function: Any = None,
    ) -> None:
        region = self.observer.on_region(input_tensors, output_tensors) if self.observer is not None else None

        def backward(*out_grads: Any) -> Any:
            observer = self.observer
            if observer is None:
                return backward_function(*out_grads)
            return observer.within(region, lambda: backward_function(*out_grads))

        self.record_operation(op_type, output_tensors, input_tensors, backward, forward_function)

    def on_thread(self, frame: Any, event: Any, argument: Any) -> Any:
        """Called by Python as a new thread starts."""
        self.join()
        sys.settrace(self.trace_function)
        return self.trace_function(frame, event, argument) if self.trace_function is not None else None

    def on_error(self, name: str, outermost: bool) -> None:
        """Tell the observer of an error, unless it raised itself in what it runs because of one."""
        me = threading.get_ident()
        if self.observer is None or me in self.in_error:
            return
        self.in_error.add(me)
        try:
            self.observer.on_error(name, outermost)
        finally:
            self.in_error.discard(me)

    def join(self) -> bool:
        """Watch this thread too: TensorFlow keeps its callbacks per thread. Returns whether it takes turns."""
        if isinstance(threading.current_thread(), threading._DummyThread):
            # A thread of TensorFlow runs a tf.py_function, within an op that has the turn.
            turns = False
        else:
            turns = True
            for callback in list(self.context.op_callbacks):
                hooks = getattr(callback, "__self__", None)
                if isinstance(hooks, _Hooks) and hooks.observer is None:
                    self.context.remove_op_callback(callback)  # of an earlier trace
            if self.observer is not None and self.on_op not in self.context.op_callbacks:
                self.context.add_op_callback(self.on_op)
        self.takes_turns[threading.get_ident()] = turns
        return turns

    def in_turn(self, run: Callable[..., Any], name_at: int) -> Callable[..., Any]:
        """``run``, by one thread at a time. Its argument ``name_at`` is the type of the op, or the function's name."""
        number_of_this_thread = threading.get_ident

        def call(*arguments: Any) -> Any:
            if self.observer is None:
                return run(*arguments)
            me = number_of_this_thread()
            turns = self.takes_turns.get(me)
            if turns is None:
                turns = self.join()
            has_turn = turns and self.turn.acquire(timeout=self.patience_s)
            if turns and not has_turn:
                self.patience_s = 0.0
            first = turns and me not in self.in_their_turn
            if first:
                self.in_their_turn.add(me)
            try:
                return run(*arguments)
            except BaseException as error:
                # TensorFlow has collected what was to run. Of arguments that it must convert first, it ran nothing.
                if type(error).__name__ != "_FallbackException":
                    self.on_error(str(arguments[name_at]), first)
                raise
            finally:
                if first:
                    self.in_their_turn.discard(me)
                if has_turn:
                    self.turn.release()
                if turns and self.observer is not None:
                    self.observer.on_turn_over()

        return call
