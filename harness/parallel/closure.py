"""Finds what a callable carries with it besides its arguments: tensors and variables in closures and attributes."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

#: Objects nested deeper than this are not looked into: a callable, its object, its lists, their items, and one more.
_DEPTH = 5


def carried(fn: Callable[..., Any], wanted: Callable[[Any], bool]) -> list[Any]:
    """The objects that ``fn`` carries for which ``wanted`` holds, each once, in the order in which they are met.

    Looked into: closures, defaults, globals that the code names, ``functools.partial``, bound methods, the
    attributes of callable objects, and the lists, tuples, sets and dicts in them. Not looked into: modules, classes.
    """
    found: list[Any] = []
    seen: set[int] = set()
    stack: list[tuple[Any, int]] = [(fn, 0)]
    while stack:
        item, depth = stack.pop()
        if id(item) in seen or isinstance(item, (str, bytes, int, float, bool, type(None), type, ModuleType)):
            continue
        seen.add(id(item))
        if wanted(item):
            found.append(item)
        elif depth < _DEPTH:
            stack.extend((part, depth + 1) for part in reversed(list(_parts(item, depth))))
    return found


def keras_classes(*names: str) -> tuple[type, ...]:
    """Keras's classes of these names, such as ``layers.Layer``, of each Keras in this process.

    A program may use Keras 3 and Keras 2 (``tf_keras``), whichever of them ``tf.keras`` is.
    """
    loaded = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
    return tuple(operator.attrgetter(name)(keras) for keras in loaded for name in names)


def _parts(item: Any, depth: int) -> Iterator[Any]:
    if isinstance(item, functools.partial):
        yield item.func
        yield from item.args
        yield from item.keywords.values()
    elif isinstance(item, MethodType):
        yield item.__func__
        yield item.__self__
    elif isinstance(item, FunctionType):
        yield from _of_function(item)
    elif isinstance(item, Mapping):
        yield from item.values()
    elif isinstance(item, (list, tuple, set, frozenset)):
        yield from item
    elif hasattr(item, "python_function"):
        yield item.python_function
    elif hasattr(item, "__dict__") and not hasattr(type(item), "__array__"):
        yield from vars(item).values()
        if depth == 0 and callable(item):
            method = inspect.getattr_static(type(item), "__call__", None)
            if isinstance(method, FunctionType):
                yield method


def _of_function(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # a name that is bound later
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]
