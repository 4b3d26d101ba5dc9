"""What the proof asks TensorFlow about a graph: the bodies of its functions, and results of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness._tensorflow import graph_of_function, interface
from harness.lazy import tf
from harness.proof.sizes import Fails


def body_of(op: Any, attribute: str) -> Any:
    """The graph (``FuncGraph``) of the function that an attribute of a graph's op names."""
    return graph_of_function(op.graph, op.get_attr(attribute).name)


def run_kernel(op: Any, values: Sequence[Any]) -> list[Any]:
    """The results of a graph's op for these arrays, computed by its kernel."""
    private = interface()
    given = [tf.constant(value, tensor.dtype) for value, tensor in zip(values, op.inputs, strict=True)]
    attributes = tuple(part for each in op.op_def.attr for part in (each.name, op.get_attr(each.name)))
    with tf.init_scope():
        try:
            made = private.execute.execute(op.type, len(op.outputs), given, attributes, private.context.context())
        except tf.errors.OpError as error:
            raise Fails(f"{op.type} fails: {str(error.message).splitlines()[0]}") from error
    return [each.numpy() for each in made]
