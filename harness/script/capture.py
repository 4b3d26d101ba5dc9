"""Runs a script as ``python FILE.py`` does, up to the step that is to be checked, with the arguments that it is given.

The source is run with a decorator on each function that may be the step. Nothing else of it changes, its lines neither.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType
from typing import Any

from harness._tensorflow import as_autograph, interface, op_callback
from harness.devices.name import DeviceName
from harness.errors import InvalidDeviceName, InvalidTarget
from harness.lazy import is_tf_function, tf
from harness.runner.target import Target

_DECORATOR = "__harness_step__"
#: Ops that write to a variable, by how their types begin.
_WRITES = ("AssignVariable", "AssignAdd", "AssignSub", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
#: A device in a text: ``/GPU:1``, ``/device:CPU:`` of a formatted one, or ``GPU`` alone, as TensorFlow's lists take it.
_DEVICE = re.compile(r"(?:^|/|:)(CPU|GPU)(?::(\d*)|$)", re.IGNORECASE)
_ACCEPTED = "a function that the script calls in eager code, with the devices that it uses"


@dataclass(frozen=True)
class StepCall:
    """A call of a function of the script: the function, its arguments, and the line of its ``def``."""

    name: str
    line: int
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: What ended the script. It keeps the variables of the functions under way: a ``tf.function`` does not keep the
    #: object that it is a method of, nor a graph the variables that it uses.
    ended: BaseException | None = None
    #: The device of what the step puts in no scope; ``None``: TensorFlow's choice.
    default: str | None = None


@dataclass
class _Call:
    """A call that is under way, and what has happened in it."""

    step: StepCall
    devices: set[str]
    writes: bool = False


class _Reached(BaseException):
    """Ends the script: its step is known."""


class _Search:
    """Notes the calls of the script's functions until the step is known.

    The step is the function that was asked for, before its first call. Without a name, it is the innermost call that
    uses several devices and writes to a variable, or else the outermost one with arguments that uses several devices.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.found: StepCall | None = None
        self._fallback: StepCall | None = None
        self._calls: list[_Call] = []

    def decorator(self, name: str, line: int) -> Callable[[Any], Any]:
        def decorate(fn: Any) -> Any:
            if isinstance(fn, FunctionType):

                @functools.wraps(fn)
                def noted(*args: Any, **kwargs: Any) -> Any:
                    return self._call(StepCall(name, line, fn, args, kwargs))

                # AutoGraph passes this function by and converts the user's function inside; TensorFlow would unwrap it.
                noted.autograph_info__ = None  # type: ignore[attr-defined]
                noted.__signature__ = inspect.signature(fn)  # type: ignore[attr-defined]
                noted.fn = fn  # type: ignore[attr-defined]
                noted.harness_step = (name, line)  # type: ignore[attr-defined]
                del noted.__wrapped__
                return noted
            return _NotedFunction(fn, self, name, line) if is_tf_function(fn) else fn

        return decorate

    def end(self) -> StepCall | None:
        """Return the step, when the script has ended."""
        return self.found or self._fallback

    def _call(self, step: StepCall) -> Any:
        if self.found is not None or not tf.executing_eagerly():
            return as_autograph(step.fn)(*step.args, **step.kwargs)
        if self.name is not None:
            self.found = step
            raise _Reached
        call = _Call(step, set())
        self._calls.append(call)
        try:
            result = step.fn(*step.args, **step.kwargs)
        finally:
            self._calls.pop()
        if len(call.devices) > 1:
            if call.writes:
                self.found = step
                raise _Reached
            if step.args or step.kwargs:
                self._fallback = step
        return result

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note calls of what ``tf.function(fn)`` returns, and what is done in each call that is under way."""
        kind = type(tf.function(len))
        original = kind.__call__

        def called(function: Any, *args: Any, **kwargs: Any) -> Any:
            # The function below it is noted too, but TensorFlow calls that while it builds a graph.
            step = getattr(function.python_function, "harness_step", None)
            under_way = self._calls[-1].step.fn if self._calls else None
            if step is None or function is under_way or not tf.executing_eagerly():
                return original(function, *args, **kwargs)
            name, line = step
            return self._call(StepCall(name, line, function, args, kwargs))

        kind.__call__ = called
        try:
            with self._noting() if self.name is None else nullcontext():
                yield
        finally:
            kind.__call__ = original

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note the scopes that are opened and the variables that are written to, in each call that is under way."""
        private = interface()
        context, graph = private.context.Context, private.graph

        def noting(original: Callable[..., Any]) -> Callable[..., Any]:
            def device(owner: Any, name: Any) -> Any:
                text = name.to_string() if hasattr(name, "to_string") else name
                if self._calls and (named := _named(text)) is not None:
                    for call in self._calls:
                        call.devices.add(named)
                return original(owner, name)

            return device

        def on_op(kind: str, inputs: Any, attrs: Any, outputs: Any, graph: Any) -> None:  # noqa: ARG001
            if kind.startswith(_WRITES):
                for call in self._calls:
                    call.writes = True

        with ExitStack() as undo:
            for owner in (context, graph):
                undo.callback(setattr, owner, "device", owner.device)
                owner.device = noting(owner.device)
            undo.enter_context(op_callback(on_op))
            yield


class _NotedFunction:
    """A ``tf.function`` of the script whose calls are noted; in all else it is that ``tf.function``."""

    def __init__(self, fn: Any, search: _Search, name: str, line: int) -> None:
        self._noted = (fn, search, name, line)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fn, search, name, line = self._noted
        return search._call(StepCall(name, line, fn, args, kwargs))

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        fn, search, name, line = self._noted
        return _NotedFunction(fn.__get__(owner, kind), search, name, line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noted[0], name)


class _Decorating(ast.NodeTransformer):
    """Puts the decorator above the functions of a name, or above all."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.decorated: list[str] = []
        self._within: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        qualified = ".".join((*self._within, node.name))
        self._inside(node)
        if self.name is None or qualified == self.name or qualified.endswith(f".{self.name}"):
            self.decorated.append(qualified)
            first = node.decorator_list[0] if node.decorator_list else node
            call = ast.Call(ast.Name(_DECORATOR, ast.Load()), [ast.Constant(qualified), ast.Constant(node.lineno)], [])
            for part in ast.walk(call):
                ast.copy_location(part, first)
                part.end_lineno, part.end_col_offset = first.lineno, first.col_offset  # type: ignore[attr-defined]
            node.decorator_list.insert(0, call)
        return node

    def _inside(self, node: ast.ClassDef | ast.FunctionDef) -> ast.AST:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()
        return node


def decorated(target: Target) -> ast.Module:
    """Return the source of the script with a decorator on each function that may be the step.

    Raises:
        InvalidTarget: the script is no Python, or has no such function.
    """
    name = target.function or None
    try:
        tree = ast.parse(target.path.read_bytes(), str(target.path))
    except (SyntaxError, ValueError) as error:  # a null byte is a ValueError
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise InvalidTarget(str(target), f"the script is no valid Python: {line}", _ACCEPTED) from None
    decorating = _Decorating(name)
    decorating.visit(tree)
    if not decorating.decorated:
        what = f"the script defines no function {name}" if name else "the script defines no function"
        raise InvalidTarget(str(target), what, _ACCEPTED)
    return tree


def run_to_step(target: Target) -> StepCall:
    """Run the script of ``target`` until its step is called, and return the call. ``target.function`` may be empty.

    The functions of the script keep their state: models, optimizers and variables are as they are at this call.

    Raises:
        InvalidTarget: the script has no such function, or ends without calling it.
        Exception: what the script raises.
    """
    name = target.function or None
    tree = decorated(target)
    search = _Search(name)
    module = ModuleType("__main__")
    vars(module).update({"__file__": str(target.path), _DECORATOR: search.decorator})
    sys.modules["__main__"] = module
    sys.argv = [str(target.path)]
    sys.path.insert(0, str(target.path.parent))
    reached: BaseException | None = None
    try:
        with search.watching():
            exec(compile(tree, str(target.path), "exec"), vars(module))  # noqa: S102 - the user's script
    except _Reached as ended:
        reached = ended
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    step = search.end()
    if step is None:
        why = (
            f"the script ended without calling {name} in eager code"
            if name
            else ("no function of the script uses several devices; name the step")
        )
        raise InvalidTarget(str(target), why, _ACCEPTED)
    return replace(step, ended=reached)


def named_devices(source: str) -> dict[str, int]:
    """Which of ``CPU`` and ``GPU`` the texts in a script name, and how many of them at least: ``"/GPU:1"`` names 2."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) else None
        for name, index in _DEVICE.findall(text) if isinstance(text, str) else ():
            found[name.upper()] = max(found.get(name.upper(), 0), int(index or 0) + 1)
    return found


def parameters(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    """The arguments of a call by the names of the function's parameters."""
    return inspect.signature(getattr(fn, "python_function", fn)).bind(*args, **kwargs)


def _named(text: Any) -> str | None:
    name = _parsed(text) if isinstance(text, str) else None
    return None if name is None else str(name)


def _parsed(text: str) -> DeviceName | None:
    try:
        name = DeviceName.parse(text)
    except InvalidDeviceName:
        return None
    return name if name.kind is not None and name.index is not None else None
