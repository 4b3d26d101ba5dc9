"""Stands between a program and its variables: what it writes is replaced, changed, or gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
