"""What is put in the place of TensorFlow's functions that build graphs: see ``wrappers.py``.

An op of a graph keeps by itself where it is. What is added to it here are Python attributes, which are not in the
``GraphDef``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

from harness.parallel.places import UNCHANGED, device_of_argument, device_of_graph_op, entered
from harness.parallel.recording import Pinned, active, pinned_if, runtime, thread

#: The attribute of pinned ops of a graph. It is Python's, and not in the ``GraphDef``.
_PINNED = "_harness_pinned"
#: The same of ops that were made while a tape was played back, whose place is colocated.
_BACKWARD = "_harness_backward"


def pinned_op(original: Callable[..., Any]) -> Callable[..., Any]:
    """Mark each op that is added to a graph, where it is pinned or a backward op."""

    def create(graph: Any, op: Any, *rest: Any, **named: Any) -> None:
        original(graph, op, *rest, **named)
        if thread.pinned:
            setattr(op, _PINNED, True)
        if thread.plays and active():
            setattr(op, _BACKWARD, True)
        if graph._colocation_stack and op.type == "Placeholder" and (thread.pinned or active()):
            # An argument is where the caller has it. TensorFlow colocates those that gradients of sums begin to read.
            op._clear_attr("_class")
            op._set_device("")

    return create


def colocated_scope(original: Callable[..., Any]) -> Callable[..., Any]:
    """Enter the device of the op whose gradient is built next."""

    def scope(op: Any, gradient_uid: Any, colocate_gradients_with_ops: bool) -> Any:
        thread.colocates_itself = bool(colocate_gradients_with_ops)
        pinned = hasattr(op, _PINNED)
        if colocate_gradients_with_ops or not (pinned or active()):
            return original(op, gradient_uid, colocate_gradients_with_ops)
        device = device_of_graph_op(op)
        return _pinned_on(device) if pinned else entered(device, runtime.context)

    return scope


def vectorised_there(original: Callable[..., Any]) -> Callable[..., Any]:
    """Enter the device of the op that is made anew."""

    @contextmanager
    def scope(graph: Any, op: Any) -> Iterator[None]:
        """Ops are made anew from ``op``, as by a tape's ``jacobian``: of a backward op, where that was to be."""
        there: AbstractContextManager[None] = UNCHANGED
        if hasattr(op, _BACKWARD) and not graph._colocation_stack:
            there = _pinned_on(op.device) if hasattr(op, _PINNED) else entered(op.device, runtime.context)
        with original(graph, op), there:
            yield

    return scope


@contextmanager
def _pinned_on(device: str) -> Iterator[None]:
    with Pinned(), entered(device, runtime.context):
        yield


def colocated_sum(original: Callable[..., Any]) -> Callable[..., Any]:
    """Add up the gradients of a tensor where that is."""

    def aggregate(grads: Any, op: Any, *rest: Any, **named: Any) -> Any:
        parts = [part for part in grads.get(op) or () if isinstance(part, list) and len(part) > 1]
        pinned = any(_is_pinned(grad) for part in parts for grad in part)
        if not parts or not (pinned or active()):
            return original(grads, op, *rest, **named)
        with pinned_if(pinned), entered(device_of_argument(op), runtime.context):
            return original(grads, op, *rest, **named)

    return aggregate


def _is_pinned(grad: Any) -> bool:
    return hasattr(getattr(getattr(grad, "values", grad), "op", None), _PINNED)


def one_sum(original: Callable[..., Any]) -> Callable[..., Any]:
    """Add up all gradients of a tensor in one op."""

    def add(tensor_list: Any, gradient_uid: Any) -> Any:
        """All at once: TensorFlow would add up those on each device first, and round otherwise than without devices."""
        import tensorflow as tf

        if thread.colocates_itself or not active():
            return original(tensor_list, gradient_uid)
        return tf.add_n(tensor_list)

    return add


def variable_before_loop(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the zeros of a variable from that which a loop is given."""

    def zeros(op: Any, index: int) -> Any:
        """Take the shape from the variable that goes into a loop, and not from the same one that comes out of it.

        A ``tf.function`` would have to return the latter, and TensorFlow refuses that where the loop and the variable
        are on different devices.
        """
        loop = op.type in ("While", "StatelessWhile") and op.outputs[index].dtype == "resource"
        if loop and (hasattr(op, _PINNED) or active()):
            return original(op.inputs[index].op, op.inputs[index].value_index)
        return original(op, index)

    return zeros


def with_eager_inputs(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give the gradient of a ``tf.cond`` the variables that it reads itself."""

    def inputs(cond_graph: Any, grad_graph: Any) -> Any:
        """An eager tensor among them, such as the handle of a variable, becomes a tensor of the graph around it.

        A custom gradient that computes something anew, such as that of ``tf.recompute_grad``, reads the variables anew
        too. TensorFlow 2.21 takes them for tensors of a graph, and stops: "Tensor.graph is undefined".
        """
        outer = grad_graph.outer_graph
        given = [
            outer.capture(each) if hasattr(each, "numpy") and hasattr(outer, "capture") else each
            for each in grad_graph.external_captures
        ]
        return original(cond_graph, SimpleNamespace(external_captures=given, outer_graph=outer))

    return inputs
