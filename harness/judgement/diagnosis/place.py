"""Functions, layers and errors by the lines of the user's program."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType

from harness.evidence.places import in_users, module_of, place
from harness.parallel.closure import keras_classes

#: What leads from a wrapper, a partial function or a callable object to the function that it calls.
_WRAPS = ("python_function", "func", "__wrapped__", "fn", "__call__")
#: How many wrappers in a row are seen through.
_FAR = 8


def place_of_function(fn: object) -> str | None:
    """``file.py:12`` where a function, or the class of a callable object, is defined; ``None`` for one of a library."""
    for _ in range(_FAR):
        code = getattr(fn, "__code__", None)
        # A decorator gives its wrapper the module of what it wraps: the file says whose code it is.
        if code is not None and in_users(module_of(code.co_filename) or str(fn.__module__), code.co_filename):
            return place(code.co_filename, code.co_firstlineno)
        fn = next((inner for name in _WRAPS if (inner := getattr(fn, name, None)) is not None), None)
    return None


def layer_of_call() -> str | None:
    """The name of the innermost Keras layer that is being called, or ``None``."""
    layers = keras_classes("layers.Layer")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and layers:
        # Only of these frames the local names are asked for, which takes long.
        if frame.f_code.co_name in ("__call__", "call") and isinstance(owner := frame.f_locals.get("self"), layers):
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
