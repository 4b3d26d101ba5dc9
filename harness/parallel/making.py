"""Creates a pattern's variables on the device that they belong to, wherever the call is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from harness.lazy import tf

_making: ContextVar[bool] = ContextVar("making", default=False)


def is_made_in_place() -> bool:
    """Whether a pattern is creating a variable on a chosen device right now."""
    return _making.get()


@contextmanager
def variables_on(device: str) -> Iterator[None]:
    """Create the body's variables on ``device``.

    A device scope is not enough: TensorFlow and Keras lift variables out of the graph being built and out of its
    scopes.
    """

    def make_there(make: Callable[..., Any], **arguments: Any) -> Any:
        token = _making.set(True)
        try:
            with tf.device(device):
                return make(**arguments)
        finally:
            _making.reset(token)

    with tf.variable_creator_scope(make_there):
        yield
