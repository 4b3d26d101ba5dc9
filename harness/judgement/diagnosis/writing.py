"""Stands between a program and its variables: what it writes is replaced, changed, or gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from harness.judgement.diagnosis.leaves import explains, factor_of, is_real
from harness.judgement.diagnosis.question import Question
from harness.judgement.runs import Program
from harness.judgement.state import ASSIGNING, assigning_class
from harness.parallel.closure import keras_classes


@contextmanager
def applying(apply: Callable[..., Any]) -> Iterator[None]:
    """Call ``apply(original, optimizer, grads, variables)`` where a Keras optimizer applies gradients."""
    # Keras 2 has no such method.
    originals = {owner: owner.apply for owner in keras_classes("optimizers.Optimizer") if hasattr(owner, "apply")}

    def method(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, grads, trainable_variables=None, **_: apply(original, self, grads, trainable_variables)

    for owner, original in originals.items():
        setattr(owner, "apply", method(original))  # noqa: B010 - mypy knows no such attribute of a type
    try:
        yield
    finally:
        for owner, original in originals.items():
            setattr(owner, "apply", original)  # noqa: B010


@contextmanager
def writes(instead: Callable[..., Any]) -> Iterator[None]:
    """Call ``instead(variable, value, perform)`` for each write to a variable; ``perform(value)`` makes it."""
    owner = assigning_class()
    originals = {name: getattr(owner, name) for name in ASSIGNING}

    def method(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, value, *rest, **named: instead(self, value, lambda new: original(self, new, *rest, **named))

    for name, original in originals.items():
        setattr(owner, name, method(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)


#: What to do where each shard's gradients are applied.
AVERAGED = "average the shards' gradients first, and apply them once"
#: An optimizer, and the gradients and variables that it is given.
Applied = tuple[Any, list[Any], Any]


def follow(question: Question) -> bool:
    """Whether wrong variables follow from wrong gradients among the results: the update is replayed with those."""
    pairs = [
        (leaf.expected, leaf.found)
        for leaf in question.wrong
        if leaf.part != "state"
        and leaf.expected is not None
        and leaf.found is not None
        and leaf.found.shape == leaf.expected.shape
    ]

    def replaced(value: Any) -> Any:
        import tensorflow as tf

        if not hasattr(value, "numpy") or isinstance(value, tf.IndexedSlices):
            return value
        array = np.asarray(value.numpy())
        if not is_real(array):
            return value
        have = array.astype(np.float64)
        for expected, own in pairs:
            factor = factor_of(have, expected.astype(np.float64)) if expected.shape == array.shape else None
            if factor is not None and np.allclose(
                array, factor * expected, rtol=1e-4, atol=1e-6 * float(np.max(np.abs(array)) or 1.0)
            ):
                return tf.constant((factor * own).astype(array.dtype))
        return value

    def apply(original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> Any:
        return original(optimizer, [replaced(grad) for grad in grads], variables)

    def write(_: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        return perform(replaced(value))

    with applying(apply) if applied_by(question) else writes(write):
        result = question.run(gradients=False)
    return explains(result, [leaf for leaf in question.wrong if leaf.part == "state"])


def applied_by(
    question: Question, program: Program | None = None, inputs: Mapping[str, Any] | None = None
) -> list[Applied]:
    """What the reference, or a program, gives its optimizers for the batch or other inputs. None of it is applied."""
    calls: list[Applied] = []

    def gather(_: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> None:
        calls.append((optimizer, list(grads), variables))

    with applying(gather):
        result = question.run(program.fn if program else None, inputs, gradients=False)
        return calls if result is not None else []


def scaled(grads: Sequence[Any], factor: float) -> list[Any]:
    """Gradients times a factor."""
    import tensorflow as tf

    def times(grad: Any) -> Any:
        if isinstance(grad, tf.IndexedSlices):
            return tf.IndexedSlices(times(grad.values), grad.indices, grad.dense_shape)
        return grad * tf.cast(factor, grad.dtype)

    return list(grads) if factor == 1 else [None if grad is None else times(grad) for grad in grads]
