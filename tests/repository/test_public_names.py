"""The public names: importable and documented. The page of the API is made from them."""

from __future__ import annotations

import ast
import importlib
import inspect

import pytest
from repository import read

import harness


def _names_for_type_checkers() -> dict[str, str]:
    """Name to module, from the ``if TYPE_CHECKING:`` block of ``harness/__init__.py``."""
    tree = ast.parse(read("harness/__init__.py"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_type_checkers_see_the_names_that_are_loaded() -> None:
    assert _names_for_type_checkers() == harness._HOME
    assert sorted(harness._HOME) == harness.__all__


@pytest.mark.parametrize("name", harness.__all__)
def test_a_public_name_is_importable_and_documented(name: str) -> None:
    value = getattr(harness, name)
    own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own, f"harness.{name} has no docstring of its own"
    assert not own.startswith(f"{name}("), f"harness.{name} has only the docstring that dataclasses make"
    assert name in dir(harness)


def test_completion_offers_public_names_alone() -> None:
    assert set(dir(harness)) == {*harness.__all__, "__version__"}
    assert dir(harness.distribute) == sorted(harness.distribute.__all__)


def test_an_unknown_name_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'verfiy'; public names: Device, .*, verify, write_report$"):
        importlib.import_module("harness").verfiy  # noqa: B018
