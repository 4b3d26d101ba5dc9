"""Functions, layers and errors by the lines of the user's program."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType

from harness.evidence.places import in_users, place
from harness.parallel.closure import keras_classes


def place_of_function(fn: object) -> str | None:
    """``file.py:12`` where a function, or the class of a callable object, is defined; ``None`` for one of a library."""
    for name in ("python_function", "func", "__wrapped__", "fn", "__call__"):
        if not hasattr(fn, "__code__"):
            fn = getattr(fn, name, fn)
    code = getattr(fn, "__code__", None)
    if code is None or not in_users(str(getattr(fn, "__module__", "")), code.co_filename):
        return None
    return place(code.co_filename, code.co_firstlineno)


def layer_of_call() -> str | None:
    """The name of the innermost Keras layer that is being called, or ``None``."""
    layers = keras_classes("layers.Layer")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and layers:
        owner = frame.f_locals.get("self")
        if isinstance(owner, layers):
            return str(getattr(owner, "name", ""))
        frame = frame.f_back
    return None


def place_of_error(error: BaseException) -> str | None:
    """``file.py:12`` of the innermost frame of the user's program through which ``error`` came, or ``None``."""
    step: TracebackType | None = error.__traceback__
    found = None
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if in_users(str(step.tb_frame.f_globals.get("__name__", "")), file):
            found = place(file, step.tb_lineno)
        step = step.tb_next
    return found
