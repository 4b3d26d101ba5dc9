"""Calls a function on a device: its ops, its backward ops, and the variables that it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness._tensorflow import as_autograph
from harness.parallel.colocate import VariableHub, inlined, run_on
from harness.parallel.making import variables_on


def call_on(
    device: str,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    hub: VariableHub | None = None,
) -> Any:
    """``fn(*args, **kwargs)`` on ``device``; the results stay there.

    Args:
        device: full device name.
        fn: takes and returns nests of tensors; ``None`` and Python values in its results are handed through.
        args: arguments; tensors in them get gradients.
        kwargs: arguments by name.
        hub: of several calls of ``fn`` on ``device``, so that the gradients of a variable are added up there.
    """
    import tensorflow as tf

    arguments = (list(args), dict(kwargs))
    leaves = tf.nest.flatten(arguments)
    tensor_at = [index for index, leaf in enumerate(leaves) if isinstance(leaf, tf.Tensor)]
    called = as_autograph(inlined(fn))
    returned: list[Any] = []

    def body(*tensors: Any) -> list[Any]:
        own = list(leaves)
        for index, tensor in zip(tensor_at, tensors, strict=True):
            own[index] = tensor
        packed_args, packed_kwargs = tf.nest.pack_sequence_as(arguments, own)
        returned.append(called(*packed_args, **packed_kwargs))
        # What is handed through as it came has to come by this device.
        return [
            tf.identity(leaf) if any(leaf is tensor for tensor in tensors) else leaf
            for leaf in tf.nest.flatten(returned[-1])
            if isinstance(leaf, tf.Tensor)
        ]

    with variables_on(device):
        tensors = iter(run_on(device, body, [leaves[index] for index in tensor_at], fn, hub))
    kept = [next(tensors) if isinstance(leaf, tf.Tensor) else leaf for leaf in tf.nest.flatten(returned[-1])]
    return tf.nest.pack_sequence_as(returned[-1], kept)
