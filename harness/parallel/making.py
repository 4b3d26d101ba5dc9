"""Variables that a pattern makes where they belong, whatever device the call that makes them stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_making: ContextVar[bool] = ContextVar("making", default=False)


def is_made_in_place() -> bool:
    """Whether a variable is being made right now that a pattern puts on a device on purpose."""
    return _making.get()


@contextmanager
def variables_on(device: str) -> Iterator[None]:
    """Variables that are made in the body are made on ``device``.

    A device scope around the call would not do: TensorFlow and Keras lift what they make out of the graph that is being
    built, and out of its scopes with it.
    """
    import tensorflow as tf

    def make_there(make: Callable[..., Any], **arguments: Any) -> Any:
        token = _making.set(True)
        try:
            with tf.device(device):
                return make(**arguments)
        finally:
            _making.reset(token)

    with tf.variable_creator_scope(make_there):
        yield
