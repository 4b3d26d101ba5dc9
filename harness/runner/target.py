"""A function of the user's, written ``FILE.py:FUNCTION``: parsed, loaded, and found callable as it has to be."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InvalidTarget


@dataclass(frozen=True, slots=True)
class Target:
    """A file, and the name of a function in it; a dotted name reaches into a class or an object of the file."""

    path: Path
    function: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse ``FILE.py:FUNCTION``. The file must be there.

        Raises:
            InvalidTarget: the text is not of that form, or there is no such file.
        """
        file, colon, function = text.rpartition(":")
        if not colon or not file.endswith(".py") or not all(part.isidentifier() for part in function.split(".")):
            raise InvalidTarget(text, "is not of the form FILE.py:FUNCTION")
        path = Path(file)
        if not path.is_file():
            raise InvalidTarget(text, f"there is no file {file}" if not path.exists() else f"{file} is no file")
        return cls(path.resolve(), function)

    def __str__(self) -> str:
        return f"{self.path.name}:{self.function}"

    def load(self, *given: str) -> Callable[..., Any]:
        """Run the file, as an import does, and return the function. What the file raises comes through as it is.

        The file's folder comes first on the module path, as it does for ``python FILE.py``. ``given`` names the
        keyword arguments that the function is going to be called with: none, for most purposes.

        Raises:
            InvalidTarget: there is no such function, or it cannot be called with these arguments alone.
        """
        sys.path.insert(0, str(self.path.parent))
        name = self.path.stem
        if name in sys.modules or not name.isidentifier():
            name = "__harness_target__"
        spec = importlib.util.spec_from_file_location(name, self.path)
        if spec is None or spec.loader is None:
            raise InvalidTarget(str(self), f"{self.path} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        found: object = module
        for part in self.function.split("."):
            if not hasattr(found, part):
                raise InvalidTarget(str(self), f"there is no {self.function!r} in it{_suggestion(module)}")
            found = getattr(found, part)
        if not callable(found):
            raise InvalidTarget(str(self), f"{self.function!r} is a {type(found).__name__} and cannot be called")
        missing = [name for name in _required(found) if name not in given]
        if missing:
            raise InvalidTarget(
                str(self),
                f"needs the arguments {', '.join(missing)}: wrap it in a function that gives them",
                _accepted(given),
            )
        unknown = [name for name in given if not _takes(found, name)]
        if unknown:
            raise InvalidTarget(str(self), f"takes no argument {', '.join(unknown)}", _accepted(given))
        return found


def _accepted(given: Sequence[str]) -> str:
    return f"a function of {' and '.join(given)}" if given else "a function that needs no arguments"


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether the function can be given an argument by this name."""
    function = getattr(function, "python_function", function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD or (parameter.name == name and parameter.kind in by_name)
        for parameter in parameters
    )


def _required(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that a call must give."""
    function = getattr(function, "python_function", function)  # what a tf.function was made of
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some callables of C++ have no signature; the call itself will tell
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind not in optional
    ]


def _suggestion(module: object) -> str:
    own = vars(module)["__name__"]
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == own
    ]
    return f"; it has {', '.join(names)}" if names else "; it has no function of its own"
