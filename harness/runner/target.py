"""Functions of the user by name: ``FILE.py:FUNCTION`` and ``MODULE:FUNCTION``, which another process can load."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import NO_ARGUMENTS, InvalidTarget

_ACCEPTED = "MODULE:FUNCTION, or a function at the top level of a module"


@dataclass(frozen=True, slots=True)
class Target:
    """A file, and the name of a function in it; a dotted name reaches into a class or an object of the file."""

    path: Path
    function: str

    @classmethod
    def parse(cls, text: str, accepted: str = NO_ARGUMENTS) -> Target:
        """Parse ``FILE.py:FUNCTION``, whose function is to be as ``accepted`` says.

        Raise InvalidTarget if the text is not of that form, or there is no such file.
        """
        file, colon, function = text.rpartition(":")
        if not colon or not file.endswith(".py") or not all(part.isidentifier() for part in function.split(".")):
            raise InvalidTarget(text, "is not of the form FILE.py:FUNCTION", accepted)
        path = Path(file)
        if not path.is_file():
            raise InvalidTarget(
                text, f"there is no file {file}" if not path.exists() else f"{file} is not a file", accepted
            )
        return cls(path.resolve(), function)

    def __str__(self) -> str:
        return f"{self.path.name}:{self.function}" if self.function else self.path.name

    def load(self, *given: str, accepted: str = "") -> Callable[..., Any]:
        """Run the file, as an import does, and return the function. Exceptions of the file pass through.

        The file's folder comes first on the module path, as it does for ``python FILE.py``. ``given`` names the keyword
        arguments of the call, ``accepted`` says in errors what the function is to be. Raise InvalidTarget if there is
        no such function, or it cannot be called with these arguments alone.
        """
        sys.path.insert(0, str(self.path.parent))
        name = self.path.stem
        if name in sys.modules or not name.isidentifier():
            name = "__harness_target__"
        spec = importlib.util.spec_from_file_location(name, self.path)
        if spec is None or spec.loader is None:
            raise InvalidTarget(str(self), f"{self.path} cannot be imported", accepted or NO_ARGUMENTS)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        takes = " and ".join(f"`{name}`" for name in given)
        accepted = accepted or (f"a function that takes {takes}" if given else NO_ARGUMENTS)
        function = _member(module, self.function, str(self), _suggestion(module), accepted)
        if wrong := _mismatch(function, given):
            raise InvalidTarget(str(self), wrong, accepted)
        return function


@dataclass(frozen=True, slots=True)
class Builder:
    """A function that builds a training, by ``module`` or ``file`` (the other is empty); ``function`` may be dotted."""

    module: str
    file: str
    function: str

    @classmethod
    def of(cls, build: object) -> Builder:
        """Take ``"FILE.py:FUNCTION"``, ``"module:function"``, or a function.

        Raise InvalidTarget if it is none of these, or a function that another process cannot find by its name.
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
            raise InvalidTarget(repr(build), f"is of type {type(build).__name__}", _ACCEPTED)
        if "<" in name:
            why = "is defined inside a function, where the other process that runs the strategy cannot find it"
            raise InvalidTarget(f"{module}.{name}", why, _ACCEPTED)
        if module != "__main__":
            return cls(module, "", name)
        try:
            return cls("", str(Path(inspect.getfile(build)).resolve()), name)
        except (OSError, TypeError):
            why = "was entered interactively and is in no file that another process can load"
            raise InvalidTarget(name, why, _ACCEPTED) from None

    def __str__(self) -> str:
        return f"{self.module or Path(self.file).name}:{self.function}"

    @property
    def target(self) -> Target:
        """Its name in error messages."""
        return Target(Path(self.file or self.module), self.function)

    def load(self) -> Callable[..., Any]:
        """Import it, in the process that is to call it. Exceptions of the import pass through.

        Raise InvalidTarget if there is no such module or function, or it needs arguments.
        """
        if self.file:
            return Target(Path(self.file), self.function).load()
        try:
            found: object = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name is not None and (self.module == error.name or self.module.startswith(f"{error.name}.")):
                raise InvalidTarget(str(self), f"there is no module {self.module}", _ACCEPTED) from None
            raise
        return _member(found, self.function, str(self))


def _member(
    module: object, dotted: str, target: str, suggestion: str = "", accepted: str = NO_ARGUMENTS
) -> Callable[..., Any]:
    found = module
    for part in dotted.split("."):
        if not hasattr(found, part):
            raise InvalidTarget(target, f"the module has no {dotted!r}{suggestion}", accepted)
        found = getattr(found, part)
    if not callable(found):
        raise InvalidTarget(target, f"{dotted!r} is of type {type(found).__name__} and cannot be called", accepted)
    return found


def _mismatch(function: Callable[..., Any], given: Sequence[str]) -> str | None:
    """Say why the function cannot be called with these keyword arguments; ``None`` if it can."""
    function = getattr(function, "python_function", function)  # of a tf.function
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some callables of C++ have no signature
        return None
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = signature.parameters.values()
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in optional]
    if missing := [name for name in needed if name not in given]:
        return f"needs the arguments {', '.join(missing)}: wrap it in a function that passes them"
    try:
        signature.bind(**dict.fromkeys(given))
    except TypeError as error:
        return str(error)
    return None


def _suggestion(module: object) -> str:
    own = vars(module)["__name__"]
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == own
    ]
    return f"; it defines {', '.join(names)}" if names else "; it defines no functions"
