"""TensorFlow, imported when it is first used: that takes seconds, which help texts, specs and reports do not need."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


class _TensorFlow:
    """Stands for the module. It keeps none of its names, so that names replaced in it are seen."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("tensorflow"), name)


tf: Any = _TensorFlow()


def is_tf_function(fn: Any) -> bool:
    """Whether ``fn`` is what ``tf.function`` returns; the functions of a loaded SavedModel are of other classes."""
    loaded = sys.modules.get("tensorflow")
    return loaded is not None and type(fn) is type(loaded.function(len))
