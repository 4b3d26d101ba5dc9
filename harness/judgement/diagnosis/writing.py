"""Stands between a program and its variables: what it writes is replaced, changed, or gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.judgement.state import ASSIGNING, assigning_class


@contextmanager
def applying(apply: Callable[..., Any]) -> Iterator[None]:
    """Call ``apply(original, optimizer, grads, variables)`` where a Keras optimizer applies gradients."""
    import tensorflow as tf

    owner = tf.keras.optimizers.Optimizer
    original = owner.apply

    def method(self: Any, grads: Any, trainable_variables: Any = None, **_: Any) -> Any:
        return apply(original, self, grads, trainable_variables)

    owner.apply = method
    try:
        yield
    finally:
        owner.apply = original


@contextmanager
def writes(instead: Callable[..., Any] | None, change: Callable[[Any], Any] | None = None) -> Iterator[None]:
    """Replace the writes to variables in the body, or ``change`` what is written."""
    owner = assigning_class()
    originals = {name: getattr(owner, name) for name in ASSIGNING}

    def replacement(name: str) -> Callable[..., Any]:
        def method(self: Any, value: Any, *arguments: Any, **keywords: Any) -> Any:
            if instead is not None:
                return instead(self, value)
            return originals[name](self, change(value) if change is not None else value, *arguments, **keywords)

        return method

    for name in ASSIGNING:
        setattr(owner, name, replacement(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)
