"""A user's function, named FILE.py:FUNCTION. The files are plain Python: nothing here needs TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import InvalidTarget
from harness.runner.target import Target

SOURCE = """
import sibling
number = 5
def answer(): return sibling.ANSWER
def with_defaults(a=1, *rest, b=2, **more): return a + b
def needs(first, second, *, third, fourth=4): return first
class Model:
    def __call__(self, x): return x
    @staticmethod
    def run(): return "ran"
    def method(self): return "method"
model = Model()
"""


@pytest.fixture(autouse=True)
def _restore_modules() -> Iterator[None]:
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sibling.py").write_text("ANSWER = 42\n")
    path = tmp_path / "program.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("function", "result"), [("answer", 42), ("with_defaults", 3), ("Model.run", "ran"), ("model.method", "method")]
)
def test_a_function_is_found_and_can_import_its_neighbours(file: Path, function: str, result: object) -> None:
    assert Target.parse(f"{file}:{function}").load()() == result


@pytest.mark.parametrize(
    "text",
    ["", "program", "program.py", "program:f", "program.py:", ":f", "program.py:f g", "program.py:f()", "a.py:b:c"],
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidTarget, match=r"is not of the form FILE.py:FUNCTION"):
        Target.parse(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidTarget, match=r"there is no file .*absent.py"):
        Target.parse(f"{tmp_path}/absent.py:f")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(InvalidTarget, match=r"folder.py is not a file"):
        Target.parse(f"{tmp_path}/folder.py:f")


def test_a_colon_in_the_path_is_part_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "c.py").write_text("def f(): return 1\n")
    target = Target.parse(f"{tmp_path}/a:b/c.py:f")
    assert (target.path.name, target.function) == ("c.py", "f")


def test_a_function_that_is_not_there_is_named_with_those_that_are(file: Path) -> None:
    with pytest.raises(InvalidTarget, match="module has no 'anser'; it defines answer, with_defaults, needs, Model"):
        Target.parse(f"{file}:anser").load()


def test_required_arguments_are_named(file: Path) -> None:
    with pytest.raises(InvalidTarget, match="needs the arguments first, second, third:"):
        Target.parse(f"{file}:needs").load()
    with pytest.raises(InvalidTarget, match="needs the arguments x:"):
        Target.parse(f"{file}:model").load()


def test_what_cannot_be_called_is_refused(file: Path) -> None:
    with pytest.raises(InvalidTarget, match="'number' is of type int and cannot be called"):
        Target.parse(f"{file}:number").load()


def test_what_the_file_raises_comes_through(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("raise LookupError('mine')\n")
    with pytest.raises(LookupError, match="mine"):
        Target.parse(f"{path}:f").load()


def test_a_file_named_like_a_library_does_not_take_its_place(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text("def f(): return __name__\n")
    import json

    assert Target.parse(f"{path}:f").load()() == "__harness_target__"
    assert sys.modules["json"] is json
