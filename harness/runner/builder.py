"""A function that builds a training, named so that another process can load it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InvalidTarget
from harness.runner.target import Target

_ACCEPTED = "MODULE:FUNCTION, or a function at the top level of a module"


@dataclass(frozen=True, slots=True)
class Builder:
    """A function by its ``module`` or by its ``file``, one of which is empty; ``function`` may be dotted."""

    module: str
    file: str
    function: str

    @classmethod
    def of(cls, build: object) -> Builder:
        """Take ``"FILE.py:FUNCTION"``, ``"module:function"``, or a function.

        Raises:
            InvalidTarget: it is none of these, or a function that another process cannot find by its name.
        """
        if isinstance(build, str):
            place, _, function = build.rpartition(":")
            if place.endswith(".py"):
                target = Target.parse(build)
                return cls("", str(target.path), target.function)
            if not place or not all(part.isidentifier() for part in (*place.split("."), *function.split("."))):
                raise InvalidTarget(build, "is not of the form FILE.py:FUNCTION or MODULE:FUNCTION", _ACCEPTED)
            return cls(place, "", function)
        name = getattr(build, "__qualname__", None)
        module = getattr(build, "__module__", None)
        if not callable(build) or not isinstance(name, str) or not isinstance(module, str):
            raise InvalidTarget(repr(build), f"is a {type(build).__name__}", _ACCEPTED)
        if "<" in name:
            raise InvalidTarget(
                f"{module}.{name}",
                "is made inside a function, where the process of a strategy cannot find it",
                _ACCEPTED,
            )
        if module != "__main__":
            return cls(module, "", name)
        try:
            return cls("", str(Path(inspect.getfile(build)).resolve()), name)
        except (OSError, TypeError):
            raise InvalidTarget(
                name, "was typed in, and is in no file that another process can load", _ACCEPTED
            ) from None

    def __str__(self) -> str:
        return f"{self.module or Path(self.file).name}:{self.function}"

    @property
    def target(self) -> Target:
        """How errors call it."""
        return Target(Path(self.file or self.module), self.function)

    def load(self) -> Callable[..., Any]:
        """Import it, in the process that is to call it. What the import raises comes through as it is.

        Raises:
            InvalidTarget: there is no such module or function, or it needs arguments.
        """
        if self.file:
            return Target(Path(self.file), self.function).load()
        try:
            found: object = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name is not None and (self.module == error.name or self.module.startswith(f"{error.name}.")):
                raise InvalidTarget(str(self), f"there is no module {self.module}", _ACCEPTED) from None
            raise
        for part in self.function.split("."):
            if not hasattr(found, part):
                raise InvalidTarget(str(self), f"there is no {self.function!r} in it", _ACCEPTED)
            found = getattr(found, part)
        if not callable(found):
            raise InvalidTarget(str(self), f"{self.function!r} is a {type(found).__name__} and cannot be called")
        return found
