"""Runs a function as soon as a module is imported, wherever that is done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class AfterImport(MetaPathFinder):
    """Calls ``then`` once, when the module ``name`` has been imported; at once if it is."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then
        if name in sys.modules:
            then()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """The module's own spec, whose loader calls ``then`` afterwards."""
        if fullname != self.name:
            return None
        self.forget()
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_then(module: ModuleType) -> None:
                execute(module)
                self.then()

            spec.loader.exec_module = execute_and_then  # type: ignore[method-assign]
        return spec

    def forget(self) -> None:
        """Call nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
