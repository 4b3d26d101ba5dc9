"""The line of the user's program that is running: neither TensorFlow's, nor Keras's, nor the harness's."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FrameType, TracebackType

from harness.parallel.closure import keras_classes

#: Modules by their first name, and rooms of the harness, whose lines are not the user's.
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "numpy", "wrapt", "contextlib", "functools", "threading", "concurrent")
_ROOMS = ("judgement", "evidence", "parallel", "_tensorflow", "devices", "checking", "runner")
_STANDARD = sysconfig.get_paths()["stdlib"]


def place_of_call() -> str | None:
    """``file.py:12`` of the innermost frame of the user's program, or ``None``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_users(frame):
            return _place(frame, frame.f_lineno)
        if frame.f_globals.get("__name__") == "harness.judgement.runs":
            return None  # further out is the call of verify
        frame = frame.f_back
    return None


def place_of_function(fn: object) -> str | None:
    """``file.py:12`` where a function, or the class of a callable object, is defined; ``None`` for one of a library."""
    for name in ("python_function", "func", "__wrapped__", "fn", "__call__"):
        if not hasattr(fn, "__code__"):
            fn = getattr(fn, name, fn)
    code = getattr(fn, "__code__", None)
    if code is None or not _in_users(getattr(fn, "__module__", ""), code.co_filename):
        return None
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


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
        if _is_users(step.tb_frame):
            found = _place(step.tb_frame, step.tb_lineno)
        step = step.tb_next
    return found


def _is_users(frame: FrameType) -> bool:
    return _in_users(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename)


def _in_users(module: str, file: str) -> bool:
    first, *rest = module.split(".")
    if first in _LIBRARIES or (first == "harness" and rest and rest[0] in _ROOMS):
        return False
    return not file.startswith("<") and (not file.startswith(_STANDARD) or "site-packages" in file)


def _place(frame: FrameType, line: int) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{line}"
