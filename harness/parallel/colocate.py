"""Runs a function on a device so that its backward ops run there too: what TF1's ``colocate_gradients_with_ops`` did.

In TF2 a tape plays a function back wherever ``tape.gradient`` is called, so the backward pass of a program that is
spread over devices runs on one of them. Here the function is wrapped in ``tf.custom_gradient``; its gradient plays an
inner tape back inside the device scope. The gradient is wrapped in the same way, so that it holds for derivatives of
every order. Nothing is computed twice for a first derivative; for each further order the backward pass alone is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from harness._tensorflow import tape_may_record, tape_watches
from harness.parallel.closure import carried


def run_on(
    device: str,
    fn: Callable[..., Sequence[Any]],
    tensors: Sequence[Any],
    carrier: Callable[..., Any],
    hub: VariableHub | None = None,
) -> Any:
    """``fn(*tensors)``, a flat list of tensors, run forward and backward on ``device``.

    Args:
        device: full device name.
        fn: takes tensors, returns a flat sequence of tensors.
        tensors: its arguments.
        carrier: the user's callable inside ``fn``; tensors that it carries in closures or attributes get gradients.
        hub: of calls that share variables: adds up the gradients of a variable on ``device``.
    """
    import tensorflow as tf

    if tf.executing_eagerly() and not tape_may_record():
        with tf.device(device):
            return list(fn(*tensors))
    # While a graph is built, a tape outside of it may ask for any gradient later. In eager code what no tape watches
    # needs none, and watching it would cost a gradient that nobody reads.
    watched = _differentiable if not tf.executing_eagerly() else _watched
    # tf.is_tensor would take in variables, those of Keras too, whose dtype is a text.
    captured = [tensor for tensor in carried(carrier, lambda item: isinstance(item, tf.Tensor)) if watched(tensor)]
    if hub is not None:
        return _run_with_hub(device, fn, tensors, captured, watched, hub)
    count = len(tensors)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def region(*arguments: Any) -> Any:
        own = arguments[:count]
        sources = [*own, *captured]
        wanted = [index for index, tensor in enumerate(sources) if watched(tensor)]
        with tf.device(device), tf.GradientTape(persistent=True) as tape:
            for index in wanted:
                tape.watch(sources[index])
            outputs = list(fn(*own))
        # Read here, not in the gradient: the gradient of a branch of a tf.cond cannot reach a variable by itself.
        read = tape.watched_variables() if not tf.executing_eagerly() else ()
        values = {variable.ref(): tf.convert_to_tensor(variable) for variable in read}

        def gradient(*upstream: Any, variables: Sequence[Any] = ()) -> Any:
            read_there = [values.get(variable.ref(), variable) for variable in variables]
            of_sources, of_variables = _gradients(
                tape, device, outputs, sources, wanted, list(variables), read_there, upstream
            )
            return (of_sources, of_variables) if variables else of_sources

        return outputs, gradient

    with tf.device(device):
        return region(*tensors, *captured)


class VariableHub:
    """Adds up, on a device, the gradients that several calls on it give for one variable.

    A tape would add them up where ``tape.gradient`` is called, so that every call's gradient of every variable would
    go there. Each call gets copies of the variables' values; the gradients of the copies of one are added up here.
    """

    def __init__(self, device: str, calls: int) -> None:
        self._device = device
        self._calls = calls
        self._copies: dict[Any, list[Any]] = {}

    def copies(self, variables: Sequence[Any]) -> list[Any]:
        """A copy of the value of each variable, for one call."""
        return [self._of(variable).pop() for variable in variables]

    def _of(self, variable: Any) -> list[Any]:
        import tensorflow as tf

        if variable.ref() not in self._copies:

            @tf.custom_gradient  # type: ignore[untyped-decorator]
            def fan_out(value: Any) -> Any:
                def gradient(*upstream: Any) -> Any:
                    with tf.device(self._device):
                        return tf.add_n([_dense(part) for part in upstream])

                return [tf.identity(value) for _ in range(self._calls)], gradient

            with tf.device(self._device):
                self._copies[variable.ref()] = list(fan_out(tf.convert_to_tensor(variable)))
        return self._copies[variable.ref()]


def _run_with_hub(
    device: str,
    fn: Callable[..., Sequence[Any]],
    tensors: Sequence[Any],
    captured: Sequence[Any],
    watched: Callable[[Any], bool],
    hub: VariableHub,
) -> Any:
    """As :func:`run_on`, with gradients for the hub's copies instead of the variables."""
    import tensorflow as tf

    sources = [*tensors, *captured]
    wanted = [index for index, tensor in enumerate(sources) if watched(tensor)]
    # An outer tape records what runs here too, but never gets to it: what comes out below is another op's.
    with tf.device(device), tf.GradientTape(persistent=True) as tape:
        for index in wanted:
            tape.watch(sources[index])
        outputs = list(fn(*tensors))
    variables = list(tape.watched_variables())
    copies = hub.copies(variables)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def attach(*_: Any) -> Any:
        def gradient(*upstream: Any) -> Any:
            of_sources, of_variables = _gradients(tape, device, outputs, sources, wanted, variables, copies, upstream)
            with tf.device(device):
                return [*of_sources, *map(_dense, of_variables)]

        return outputs, gradient

    with tf.device(device):
        return attach(*sources, *copies)


def _gradients(
    tape: Any,
    device: str,
    outputs: list[Any],
    sources: list[Any],
    wanted: list[int],
    variables: list[Any],
    values: list[Any],
    upstream: Sequence[Any],
) -> tuple[list[Any], list[Any]]:
    """Gradients for ``sources``, of which ``wanted`` are watched, and for ``variables``, on ``device``."""
    import tensorflow as tf

    kept = [index for index, output in enumerate(outputs) if _differentiable(output)]
    grads = _play_back(
        tape,
        device,
        [outputs[index] for index in kept],
        [*(sources[index] for index in wanted), *variables],
        [_dense(upstream[index]) for index in kept],
        values,
    )
    by_source = dict(zip(wanted, grads, strict=False))
    with tf.device(device):
        of_sources = [_handed_on(by_source.get(index), upstream) for index in range(len(sources))]
    return of_sources, list(grads[len(wanted) :])


def _play_back(
    tape: Any, device: str, outputs: list[Any], sources: list[Any], seeds: list[Any], values: list[Any]
) -> list[Any]:
    """Gradients of ``outputs`` with respect to ``sources``, made on ``device``, and differentiable there again.

    The last ``sources`` are variables; ``values`` are the tensors that were read from them.
    """
    import tensorflow as tf

    if not outputs:
        return [None] * len(sources)
    with tf.device(device):
        grads = tape.gradient(outputs, sources, output_gradients=seeds)
    if tf.executing_eagerly() and not tape_may_record():
        return list(grads)
    with tf.device(device):
        return _differentiable_again(tape, device, list(grads), outputs, sources, seeds, values)


def _differentiable_again(
    tape: Any,
    device: str,
    grads: list[Any],
    outputs: list[Any],
    sources: list[Any],
    seeds: list[Any],
    values: list[Any],
) -> list[Any]:
    """``grads`` themselves, with gradients of their own on ``device``.

    Each is tied to a copy of its source, which has its shape: the gradient of the copy is that of the gradient. All
    copies come out of one region, whose gradient plays the tape back once, so that a graph grows with the number of
    gradients. One that nobody reads can be pruned from a graph, for it is tied by itself.
    IndexedSlices are handed through: their second derivative is right, but runs where TensorFlow puts it.
    """
    import tensorflow as tf

    tied = [index for index, grad in enumerate(grads) if isinstance(grad, tf.Tensor)]
    #: Which gradients the gradient that is being computed depends on. Zeros for the others could meet infinity.
    arrived: set[int] = set()
    if not tied:
        return grads

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def copies(*given: Any) -> Any:
        def second(*upstream: Any) -> Any:
            asked = [(index, part) for index, part in zip(tied, upstream, strict=True) if index in arrived]
            arrived.clear()
            with tf.device(device), tape:
                for seed in seeds:
                    tape.watch(seed)
                again = tape.gradient(outputs, [sources[index] for index, _ in asked], output_gradients=seeds)
            there = [(grad, part) for grad, (_, part) in zip(again, asked, strict=True) if isinstance(grad, tf.Tensor)]
            parts = _play_back(
                tape, device, [grad for grad, _ in there], [*seeds, *sources], [part for _, part in there], values
            )
            with tf.device(device):
                return [_dense(part) for part in parts]

        return [tf.identity(given[len(seeds) + index]) for index in tied], second

    links = [*seeds, *sources[: len(sources) - len(values)], *map(tf.convert_to_tensor, values)]
    for index, copy in zip(tied, copies(*links), strict=True):
        grads[index] = _tie(grads[index], copy, functools.partial(arrived.add, index))
    return grads


def _tie(grad: Any, copy: Any, arrive: Callable[[], None]) -> Any:
    """Return ``grad``. Its gradient goes to ``copy``, and then ``arrive`` is called."""
    import tensorflow as tf

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def tie(grad: Any, _: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            arrive()
            return None, upstream

        return grad, gradient

    return tie(grad, copy)


def inlined(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The Python function of a ``tf.function`` where a graph is being built; ``fn`` itself otherwise.

    The backward function of a nested ``tf.function`` may tie an op to one of its arguments. TensorFlow ties all calls
    of it to one another then, and refuses to place them on different devices. What XLA compiles stays as it is.
    """
    import tensorflow as tf

    inlined = getattr(fn, "python_function", None)
    if tf.executing_eagerly() or inlined is None or getattr(fn, "_jit_compile", None):
        return fn
    return cast("Callable[..., Any]", inlined)


def _handed_on(grad: Any, upstream: Sequence[Any]) -> Any:
    """A gradient, dense. One that is handed through as it came comes by this device, as its forward value did."""
    import tensorflow as tf

    return tf.identity(grad) if any(grad is part for part in upstream) else _dense(grad)


def _dense(grad: Any) -> Any:
    import tensorflow as tf

    return tf.convert_to_tensor(grad) if isinstance(grad, tf.IndexedSlices) else grad


def _differentiable(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def _watched(tensor: Any) -> bool:
    return _differentiable(tensor) and tape_watches(tensor)
