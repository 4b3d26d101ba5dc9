"""TensorFlow, imported when it is first used: that takes seconds, which help texts, specs and reports do not need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _TensorFlow:
    """Stands for the module. It keeps none of its names, so that names replaced in it are seen."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("tensorflow"), name)


tf: Any = _TensorFlow()
