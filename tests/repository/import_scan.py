"""Finds what a Python file imports, from its syntax tree: nothing is executed."""

from __future__ import annotations

import ast
import contextlib
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard

#: ``module:function``, as the tasks of worker processes are named.
_REFERENCE = re.compile(r"(?<![\w./])((?:harness|tensorflow)(?:\.\w+)+):[A-Za-z_]")


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name, such as ``harness.devices.spec`` or ``tensorflow``.

    ``from package import name`` counts as ``package.name``: whether ``name`` is a module does not matter to the rules.
    """

    module: str
    line: int
    #: Executed when the file is imported: not in a function, not for type checkers alone.
    at_import: bool

    def is_in(self, package: str) -> bool:
        """Whether it is ``package`` or a part of it; ``tensorflow_io`` is no part of ``tensorflow``."""
        return self.module == package or self.module.startswith(f"{package}.")


def python_files(folder: Path) -> list[Path]:
    """The Python files below ``folder``, sorted."""
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def imports_of(path: Path) -> list[Import]:
    """Everything that the file imports: by statements, by ``import_module("…")``, and in strings of Python code.

    Strings count because other processes run them: ``python -c "from harness…"``, or ``"harness.module:function"``.
    """
    return list(_walk(ast.parse(path.read_text(encoding="utf-8"), str(path)), at_import=True))


def _walk(node: ast.AST, at_import: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, at_import) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        # "." is kept: the rules refuse relative imports.
        base = "." * node.level + (node.module or "")
        yield from (Import(f"{base}.{alias.name}", node.lineno, at_import) for alias in node.names)
    elif isinstance(node, ast.Call) and (name := _named(node)) is not None:
        yield Import(name, node.lineno, at_import)
    elif isinstance(node, ast.Attribute) and node.attr == "__internal__":
        # ``tf.__internal__`` is as private as ``tensorflow.python``, which it leads to.
        yield Import("tensorflow.__internal__", node.lineno, at_import)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from (replace(found, line=node.lineno) for found in _in_string(node.value))
    if _has_docstring(node):
        node.body = node.body[1:]
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for statement in node.body:
            yield from _walk(statement, at_import=False)
        for statement in node.orelse:
            yield from _walk(statement, at_import)
        return
    inside = at_import and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, inside)


def _has_docstring(node: ast.AST) -> TypeGuard[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None


def _in_string(text: str) -> Iterator[Import]:
    """What a string, or a constant part of an f-string, names or imports when it is run."""
    yield from (Import(match[1], 0, False) for match in _REFERENCE.finditer(text))
    if "import" not in text:
        return
    try:
        yield from _walk(ast.parse(textwrap.dedent(text)), at_import=False)
    except (SyntaxError, ValueError):
        # With gaps to be filled in, the whole is not Python, but its import statements are.
        for part in re.split(r"[;\n]", text):
            with contextlib.suppress(SyntaxError, ValueError):
                statement = next(iter(ast.parse(part.strip()).body), None)
                if isinstance(statement, (ast.Import, ast.ImportFrom)):
                    yield from _walk(statement, at_import=False)


def _named(call: ast.Call) -> str | None:
    """The module that a call names: the first argument of an import, or of anything if it is TensorFlow's."""
    first = call.args[0] if call.args else None
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        return None
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return first.value if name in ("import_module", "__import__") or first.value.startswith("tensorflow.") else None
