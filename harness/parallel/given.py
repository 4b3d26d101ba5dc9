"""Checks the arguments that the ways to use several devices have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from harness.errors import UsageError


def given_names(option: str, given: object, error: type[UsageError]) -> tuple[str, ...]:
    """Return the names of arguments that ``given`` lists. Raise ``error`` if it is anything but a sequence of texts."""
    listed = isinstance(given, Collection) and not isinstance(given, (str, bytes))
    if not listed or not all(isinstance(each, str) for each in given):  # type: ignore[attr-defined]
        example = f", such as ({given!r},)" if isinstance(given, str) else ""
        raise error(f"{option}={given!r}; accepted: a sequence of names{example}")
    return tuple(given)  # type: ignore[arg-type]


def given_callables(option: str, given: object, what: str, error: type[UsageError]) -> tuple[Callable[..., Any], ...]:
    """Return the callables that ``given`` lists, at least one. Raise ``error`` if it is anything but a sequence."""
    # A Keras Sequential can be called: it is one model, not a sequence of layers.
    if callable(given) or not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise error(f"{option}={given!r}; accepted: a sequence of {what}")
    if not len(given):
        raise error(f"{option}={given!r} is empty; give at least one callable")
    for index, each in enumerate(given):
        if not callable(each):
            raise error(f"{option}[{index}]={each!r} is not callable; give {what}")
    return tuple(given)


def split_and_whole(
    arguments: dict[str, Any], broadcast: Sequence[str], error: type[UsageError]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the arguments to split from those in ``broadcast``. Raise ``error`` if one of these is missing."""
    missing = [name for name in broadcast if name not in arguments]
    if missing:
        absent = ", ".join(map(repr, missing))
        only = f", only {', '.join(map(repr, arguments))}" if arguments else ""
        raise error(f"broadcast={tuple(broadcast)!r}: the call has no argument {absent}{only}")
    split = {name: value for name, value in arguments.items() if name not in broadcast}
    return split, {name: arguments[name] for name in arguments if name in broadcast}
