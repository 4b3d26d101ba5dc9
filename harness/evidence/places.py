"""The lines of the user's program: neither TensorFlow's, nor Keras's, nor the harness's."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby, islice, takewhile
from pathlib import Path
from types import FrameType

from harness._tensorflow import lines_of
from harness.evidence.userops import UserOp

#: Packages by their names, and rooms of the harness, whose lines are not the user's.
_LIBRARIES = (
    *("tensorflow", "keras", "tf_keras", "numpy", "wrapt", "contextlib", "functools", "threading", "concurrent"),
    *("pytest", "_pytest", "pluggy"),
)
_ROOMS = (
    "judgement",
    "proof",
    "evidence",
    "parallel",
    "_tensorflow",
    "devices",
    "checking",
    "runner",
    "pytest_plugin",
    "script",
    "speed",
    "advice",
    "distribute",
)
_STANDARD = sysconfig.get_paths()["stdlib"]
_HARNESS = Path(__file__).parents[1]
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)/")
#: What calls the user's program: further out is the call of verify.
_CALLER = "harness.judgement.runs"


def place_of_call() -> str | None:
    """``src/model.py:12`` of the innermost frame of the user's program, or ``None``."""
    return next(_places(), None)


def places_of_call(most: int | None = 2) -> tuple[str, ...]:
    """The same, and where that function was called; as far as there are such frames, at most ``most``."""
    return tuple(islice(_places(), most))


def _places() -> Iterator[str]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module, file = str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename
        if in_users(module, file):
            yield place(file, frame.f_lineno)
        if module == _CALLER:
            return
        frame = frame.f_back


@lru_cache(maxsize=4096)
def in_users(module: str, file: str) -> bool:
    """Whether code of a module, in a file, is the user's."""
    first, *rest = module.split(".")
    if first in _LIBRARIES or (first == "harness" and rest and rest[0] in _ROOMS):
        return False
    if (file.startswith("<") and not _cell(file)) or "__autograph_generated_file" in file:
        return False
    return not file.startswith(_STANDARD) or "site-packages" in file


@lru_cache(maxsize=4096)
def place(file: str, line: int) -> str:
    """``src/model.py:12``: a file by its way from the working directory, so that editors and terminals open it.

    A file of an installed package begins with the package, a cell of a notebook is ``In[3]:12``, and a file that is
    elsewhere has its name alone.
    """
    if number := _cell(file):
        return f"In[{number}]:{line}"
    path = Path(file)
    if (package := _PACKAGE.search(path.as_posix())) is not None:
        return f"{path.as_posix()[package.start(1) :]}:{line}"
    here = Path.cwd()
    return f"{path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name}:{line}"


def _cell(file: str) -> int:
    """The number of the cell that IPython keeps in this file, or 0."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return int(numbers.get(file, 0))


@lru_cache(maxsize=4096)
def module_of(file: str) -> str:
    """The name of a file's module, as far as it tells whose it is."""
    if Path(file).is_relative_to(_HARNESS):
        return ".".join(("harness", *Path(file).relative_to(_HARNESS).with_suffix("").parts))
    package = _PACKAGE.search(file)
    return package[1] if package is not None else ""


def places_in(ops: Iterable[UserOp], call: str, function: str) -> dict[str, tuple[str, ...]]:
    """The places of the ops of a call of a function, by their names in the trace, as far as TensorFlow still knows.

    AutoGraph makes functions of loops and branches. The line of a ``for`` or ``if`` calls nothing, so of the lines in
    one function of the user's only the innermost is a place.
    """
    found: dict[str, tuple[str, ...]] = {}
    known: dict[str, dict[str, list[tuple[str, int, str]]]] = {}
    for op in ops:
        name = op.body.function or function
        if name not in known:
            known[name] = lines_of(name)
        frames = takewhile(lambda frame: module_of(frame[0]) != _CALLER, known[name].get(op.node.name, ()))
        users = (frame for frame in frames if in_users(module_of(frame[0]), frame[0]))
        innermost = (next(lines) for _, lines in groupby(users, lambda frame: (frame[0], frame[2])))
        found[f"{call}/{op.path}"] = tuple(place(file, line) for file, line, _ in islice(innermost, 2))
    return found
