"""Stands between a program and its variables: what it writes is replaced, changed, or gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
def writes(instead: Callable[..., Any] | None, change: Callable[[Any], Any] | None = None) -> Iterator[None]:
    """Replace the writes to variables in the body, or ``change`` what is written.

    ``instead(variable, value, perform)`` is called for each write, and ``perform()`` makes it.
    """
    owner = assigning_class()
    originals = {name: getattr(owner, name) for name in ASSIGNING}

    def replacement(name: str) -> Callable[..., Any]:
        def method(self: Any, value: Any, *arguments: Any, **keywords: Any) -> Any:
            if instead is not None:
                return instead(self, value, partial(originals[name], self, value, *arguments, **keywords))
            return originals[name](self, change(value) if change is not None else value, *arguments, **keywords)

        return method

    for name in ASSIGNING:
        setattr(owner, name, replacement(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)
