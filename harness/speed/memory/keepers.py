"""Which Python object keeps tensors alive, how the program names it, and the line that adds to it.

The garbage collector knows what refers to an object. From the tensors it leads to the container that holds most of
them, and from there to a name: a variable of a function that runs, a closure variable, a global variable, an attribute,
or the default of an argument.
"""

from __future__ import annotations

import ast
import gc
import sys
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.evidence.places import in_users, module_of, place
from harness.speed.memory.held import Held

#: How many objects are looked up at once, and how far they may be from a name.
_SAMPLE, _LEVELS = 20, 8
_CONTAINERS = frozenset({list, dict, set, deque, OrderedDict})
_ADDING = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "assign",
        "enqueue",
        "enqueue_many",
        "extend",
        "insert",
        "put",
        "setdefault",
        "update",
        "write",
    }
)
_TRACING = ("polymorphic_function.py",)


@dataclass(frozen=True, slots=True)
class Keeper:
    """What keeps memory: in words, with the place of the line that adds to it where that is known."""

    text: str
    place: str = ""
    line: str = ""
    is_traced: bool = False

    def __str__(self) -> str:
        """A phrase for a message."""
        return f"{self.text} ({self.place}: {self.line})" if self.place else self.text


def keeper_of(things: Sequence[Any]) -> Keeper | None:
    """Return what keeps most of ``things``; ``None`` if no name leads to them."""
    if not things:
        return None
    if any(_is_graph(each) for each in gc.get_referrers(*things[:1])):
        return Keeper("a traced function captures it", is_traced=True)
    sample = list(things[:_SAMPLE])
    seen = {id(sample), id(things)}
    holder = _common_holder(sample, set(seen)) if len(sample) > 1 else None
    return named(sample[0] if holder is None else holder, seen)


def lengths() -> dict[int, int]:
    """The lengths of all lists, dicts, sets and deques, by ``id``."""
    return {id(each): len(each) for each in gc.get_objects() if type(each) in _CONTAINERS}


def lengthened(before: Mapping[int, int], steps: int) -> Keeper | None:
    """Return a container that has a name of the user's and got at least one entry in each of the last steps."""
    grown = [
        each
        for each in gc.get_objects()
        if type(each) in _CONTAINERS and len(each) - before.get(id(each), len(each)) >= steps * 3 // 4
    ]
    seen = {id(grown)}
    return next((found for each in grown if (found := named(each, seen)) is not None and found.place), None)


def tracing_of(graphs: Sequence[Any]) -> Keeper:
    """Return what is traced anew most often, and the line that calls it."""
    outer = [each for each in graphs if not _is_graph(getattr(each, "outer_graph", None))] or list(graphs)
    calls = Counter((_short_name(each.name), _call_of(each)) for each in outer)
    (name, (place, line)), _ = calls.most_common(1)[0]
    return Keeper(
        f"{name} is traced anew; give it tensors instead of Python values, an input_signature, or batches of one size",
        place,
        line,
        is_traced=True,
    )


def _is_graph(thing: Any) -> bool:
    return any(each.__name__ == "FuncGraph" for each in type(thing).__mro__)


def _short_name(name: str) -> str:
    for prefix in ("__inference_", "__forward_", "__backward_"):
        name = name.removeprefix(prefix)
    return name.rstrip("0123456789").rstrip("_") or "a function"


def _call_of(graph: Any) -> tuple[str, str]:
    """Place and text of the line that calls the function that is traced to ``graph``; else of a line in it."""
    for op in reversed(graph.get_operations()):
        frames = list(op.traceback)
        tracing = [index for index, frame in enumerate(frames) if frame.filename.endswith(_TRACING)]
        before = frames[: tracing[-1]] if tracing else frames
        for frame in reversed(before):
            if _is_users(frame.filename):
                return _place(frame.filename, frame.lineno)
    return "", ""


def _is_users(file: str) -> bool:
    return Path(file).exists() and in_users(module_of(file), file)


def _place(file: str, line: int) -> tuple[str, str]:
    text = _lines(file)[line - 1].strip() if 0 < line <= len(_lines(file)) else ""
    return place(file, line), text


def _common_holder(sample: Sequence[Any], seen: set[int]) -> Any:
    """The object that refers to at least half of ``sample``, perhaps through objects of their own; else ``None``."""
    level, enough = list(sample), max(2, len(sample) // 2)
    for _ in range(_LEVELS):
        ids = {id(each) for each in level}
        seen.add(id(level))
        above = _referrers(level, seen)
        for each in sorted(above, key=lambda each: isinstance(each, types.CellType)):
            if len({id(inner) for inner in gc.get_referents(each)} & ids) >= enough:
                return each
        seen |= ids | {id(above)}
        level = above[: _SAMPLE * 10]
        if not level:
            return None
    return None


def _referrers(things: Sequence[Any], seen: set[int]) -> list[Any]:
    """What refers to ``things`` but is none of this module's, of frames, or of what was seen before."""
    ignored = (Held, types.FrameType, types.GeneratorType, types.TracebackType)
    return [
        each
        for each in gc.get_referrers(*things)
        if id(each) not in seen and not isinstance(each, ignored) and not _is_inventory(each)
    ]


def _is_inventory(each: Any) -> bool:
    """Whether it is a list of :class:`Held`, or an iterator over one."""
    return type(each).__name__ == "list_iterator" or (
        isinstance(each, list) and bool(each) and isinstance(each[0], Held)
    )


def named(thing: Any, seen: set[int]) -> Keeper | None:
    """Go from a container to a name that leads to it: the nearest one, if possible with the line that adds to it."""
    level, what = [thing], f"the {type(thing).__name__}"
    for _ in range(_LEVELS):
        ids = {id(each) for each in level}
        owners = _referrers(level, seen)
        found = [*_in_frames(ids, what), *_in_owners(owners, ids, what)]
        if found:
            return next((each for each in found if each.place), found[0])
        seen |= ids | {id(level), id(owners)}
        level = owners[: _SAMPLE * 2]
        if not level:
            break
    return None


def _in_frames(ids: set[int], what: str) -> Iterator[Keeper]:
    for frame in _frames():
        code = frame.f_code
        for name, value in list(frame.f_locals.items()):
            if id(value) in ids and code.co_name != "<module>":
                text = f"{what} {name!r} in {code.co_name}"
                yield _added(text, name, code.co_filename, code.co_firstlineno)


def _in_owners(owners: Sequence[Any], ids: set[int], what: str) -> Iterator[Keeper]:
    functions = _functions_of(owners)
    yield from _in_instances(owners, ids, what)
    for owner in owners:
        if isinstance(owner, dict):
            yield from _in_module(owner, _key(owner, ids), what)
        elif isinstance(owner, (tuple, types.CellType)):
            for function in functions.get(id(owner), ()):
                yield from _in_function(function, owner, ids, what)
        else:
            yield from _in_attribute(owner, ids, what)


def _functions_of(owners: Sequence[Any]) -> dict[int, list[types.FunctionType]]:
    """The user's functions that close over a cell, or whose defaults are a tuple, by the ``id`` of the cell or tuple.

    Each look at what refers to an object takes as long as the heap is large, so that all are looked up together.
    """
    cells = [each for each in owners if isinstance(each, types.CellType)]
    tuples = [each for each in owners if isinstance(each, tuple)]
    if cells:
        tuples += [each for each in gc.get_referrers(*cells) if isinstance(each, tuple)]
    found: dict[int, list[types.FunctionType]] = {}
    for function in gc.get_referrers(*tuples) if tuples else ():
        if isinstance(function, types.FunctionType) and _is_users(function.__code__.co_filename):
            for each in (function.__defaults__, *(function.__closure__ or ())):
                if each is not None:
                    found.setdefault(id(each), []).append(function)
    return found


def _in_function(
    function: types.FunctionType, owner: tuple[Any, ...] | types.CellType, ids: set[int], what: str
) -> Iterator[Keeper]:
    code = function.__code__
    if isinstance(owner, tuple):
        first = code.co_argcount - len(owner)
        name = next(code.co_varnames[first + at] for at, each in enumerate(owner) if id(each) in ids)
        text = f"{what} that is the default of {name!r} in {function.__name__}"
    else:
        name = next(
            name for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True) if cell is owner
        )
        text = f"{what} {name!r}, which {function.__name__} closes over"
    yield _added(text, name, code.co_filename, code.co_firstlineno)


def _key(values: Mapping[Any, Any], ids: set[int]) -> str | None:
    return next((key for key, value in list(values.items()) if id(value) in ids and isinstance(key, str)), None)


def _in_module(names: Mapping[str, Any], key: str | None, what: str) -> Iterator[Keeper]:
    """Of a dict with the global names of a module, or of a script that ``runpy`` runs."""
    if key is None or "__builtins__" not in names or "__name__" not in names:
        return
    file = str(names.get("__file__") or "")
    if not file or in_users(module_of(file), file):
        yield _added(f"{what} {key!r} of the module {names['__name__']}", key, file, 0)


def _in_attribute(owner: Any, ids: set[int], what: str) -> Iterator[Keeper]:
    kind = owner if isinstance(owner, type) else type(owner)
    file = str(getattr(sys.modules.get(kind.__module__), "__file__", "") or "")
    name = _key(getattr(owner, "__dict__", {}), ids)
    if name is not None and _is_users(file):
        yield _added(f"{what} in the attribute {name!r} of {kind.__name__}", name, file, 0, attribute=True)


def _in_instances(owners: Sequence[Any], ids: set[int], what: str) -> Iterator[Keeper]:
    """Of the dicts with the attributes of objects, which the collector knows apart from the objects."""
    dicts = {id(each): each for each in owners if type(each) is dict and _key(each, ids) is not None}
    for each in gc.get_referrers(*dicts.values()) if dicts else ():
        if id(getattr(each, "__dict__", None)) in dicts:
            yield from _in_attribute(each, ids, what)


def _frames() -> Iterator[types.FrameType]:
    """The user's frames that run now, the innermost first."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _added(text: str, name: str, file: str, start: int, attribute: bool = False) -> Keeper:
    """Name the line that adds to ``name``: the first after the function begins, else the first of the file."""
    found = sorted(_additions(file, name, ast.Attribute if attribute else ast.Name)) if file and _is_users(file) else []
    later = [line for line in found if line >= start] or found
    return Keeper(text, *_place(file, later[0])) if later else Keeper(text)


def _additions(file: str, name: str, kind: type[ast.expr]) -> Iterator[int]:
    try:
        tree = ast.parse("".join(_lines(file)))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        targets: Iterable[ast.AST] = ()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
            targets = [node.func.value]
        elif isinstance(node, ast.Assign):
            # name[key] = value, and name = concat(name, value)
            again = {ast.dump(_unindexed(each)).replace("Load()", "Store()") for each in ast.walk(node.value)}
            targets = [
                each for each in node.targets if isinstance(each, ast.Subscript) or ast.dump(_unindexed(each)) in again
            ]
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        for each in map(_unindexed, targets):
            found = each.attr if isinstance(each, ast.Attribute) else each.id if isinstance(each, ast.Name) else None
            if found == name and isinstance(each, kind):
                yield node.lineno  # type: ignore[attr-defined]


def _unindexed(node: ast.AST) -> ast.AST:
    """The expression that is indexed: ``a.b`` of ``a.b["c"][0]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


@lru_cache(maxsize=32)
def _lines(file: str) -> tuple[str, ...]:
    return tuple(Path(file).read_text(encoding="utf-8").splitlines(keepends=True)) if Path(file).exists() else ()
