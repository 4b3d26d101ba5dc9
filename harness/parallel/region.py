"""Calls a function on a device: its ops, its backward ops, and the variables that it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from harness._tensorflow import as_autograph
from harness.lazy import tf
from harness.parallel.gradients import pinned_to
from harness.parallel.making import variables_on


def call_on(device: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``fn(*args, **kwargs)`` on ``device``; the results stay there.

    Args:
        device: full device name.
        fn: takes and returns nests of tensors; ``None`` and Python values in its results are handed through.
        args: arguments; tensors in them get gradients.
        kwargs: arguments by name.
    """
    given = {id(leaf) for leaf in tf.nest.flatten((list(args), dict(kwargs)))}
    with pinned_to(device):
        with variables_on(device):
            returned = as_autograph(inlined(fn))(*args, **kwargs)
        # What is handed through as it came has to come by this device.
        return tf.nest.map_structure(
            lambda leaf: tf.identity(leaf) if isinstance(leaf, tf.Tensor) and id(leaf) in given else leaf, returned
        )


def inlined(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The Python function of a ``tf.function`` where a graph is being built; ``fn`` itself otherwise.

    The backward function of a nested ``tf.function`` may tie an op to one of its arguments. TensorFlow ties all calls
    of it to one another then, and refuses to place them on different devices. What XLA compiles stays as it is.
    """
    inlined = getattr(fn, "python_function", None)
    if tf.executing_eagerly() or inlined is None or getattr(fn, "_jit_compile", None):
        return fn
    return cast("Callable[..., Any]", inlined)
