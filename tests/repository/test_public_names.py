"""The public names: importable and documented. The page of the API is made from them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import pydoc
import re

import pytest
from repository import read

import harness


def _names_for_type_checkers() -> dict[str, str]:
    """Name to module, from the block for type checkers of ``harness/__init__.py``."""
    tree = ast.parse(read("harness/__init__.py"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    return {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_type_checkers_see_the_names_that_are_loaded() -> None:
    assert _names_for_type_checkers() == harness._HOME


@pytest.mark.parametrize("name", sorted(harness._HOME))
def test_a_public_name_is_importable_and_documented(name: str) -> None:
    value = getattr(harness, name)
    own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own, f"harness.{name} has no docstring of its own"
    assert not own.startswith(f"{name}("), f"harness.{name} has only the docstring that dataclasses make"
    assert name in dir(harness)


def test_completion_and_help_offer_public_names_alone() -> None:
    assert dir(harness) == sorted([*harness._HOME, "__version__"])
    assert {name for name in vars(harness) if name.isidentifier() and name[0] != "_"} <= {*dir(harness), *_modules()}
    assert dir(harness.distribute) == sorted(harness.distribute.__all__)
    assert "programs" in dir(harness.strategies)
    assert not {"annotations", "MissingExtra", "hypothesis", "steps"} & set(dir(harness.strategies))
    # Two screens: with ``__all__``, the members of all classes would make it three thousand lines.
    shown = pydoc.plain(pydoc.render_doc(harness))
    assert len(shown.splitlines()) < 100
    assert [name for name in harness._HOME if not re.search(rf"\b{name}\b", shown)] == []


def _modules() -> set[str]:
    """Python adds each imported module to its package; ``dir`` leaves them out."""
    return {module.name for module in pkgutil.iter_modules(harness.__path__)}


def test_an_unknown_name_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'verfiy'; public names: Advice, .*, write_summaries$"):
        importlib.import_module("harness").verfiy  # noqa: B018
