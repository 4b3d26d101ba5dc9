"""What holds for every file: its size, its name, and that it speaks of no machine."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest
from import_scan import python_files
from repository import ROOT, text_files

_LARGEST, _MEDIAN = 400, 150
#: Names that say nothing of what is inside, so that everything ends up there.
_GRAB_BAGS = {"util", "utils", "helper", "helpers", "common", "misc", "shared", "tools", "stuff", "base", "core", "lib"}
_HOMES = ("work", "root", "home", "Users", "opt", "mnt")
#: The home of nobody, for texts that need one.
_NOBODY = "/home/user"
_MACHINE_PATH = re.compile(rf"(?<![\w.}}])/(?:{'|'.join(_HOMES)})/[\w.-]+")


def too_long(folder: Path) -> list[str]:
    """The Python files below ``folder`` that are longer than a file may be."""
    return [f"{path.name}: {count}" for path in python_files(folder) if (count := _lines(path)) > _LARGEST]


def grab_bags(folder: Path) -> list[str]:
    """Files and folders below ``folder`` whose names, or a word of them, say nothing of what is inside."""
    names = {path.stem for path in python_files(folder)} | {path.parent.name for path in python_files(folder)}
    return sorted(name for name in names if name.strip("_") in _GRAB_BAGS)


def machine_paths(root: Path) -> list[str]:
    """Lines that hold the path of somebody's machine."""
    found = []
    for path in text_files(root):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            paths = [match for match in _MACHINE_PATH.findall(line) if match != _NOBODY]
            found += [f"{path.relative_to(root)}:{number}: {match}" for match in paths]
    return found


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("folder", ["harness", "tests"])
def test_no_file_is_longer_than_400_lines_and_most_are_far_shorter(folder: str) -> None:
    assert too_long(ROOT / folder) == []
    counts = [count for path in python_files(ROOT / folder) if (count := _lines(path)) > 1]
    assert statistics.median(counts) <= _MEDIAN


@pytest.mark.parametrize("folder", ["harness", "tests"])
def test_no_file_is_a_grab_bag(folder: str) -> None:
    assert grab_bags(ROOT / folder) == []


def test_no_file_holds_the_path_of_a_machine() -> None:
    assert machine_paths(ROOT) == []
    assert len(text_files(ROOT)) > 100, "the repository is walked"


def test_each_of_these_rules_finds_what_it_is_for(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "helpers.py").write_text("x = 1\n" * 401, encoding="utf-8")
    (folder / "fine.py").write_text("x = 1\n" * 400, encoding="utf-8")
    (tmp_path / "README.md").write_text(f"see {'/'.join(['', 'home', 'someone', 'notes'])}\n", encoding="utf-8")
    (tmp_path / "CONTRIBUTING.md").write_text("see docs/home/page and https://home.example/work/\n", encoding="utf-8")
    assert too_long(folder) == ["helpers.py: 401"]
    assert grab_bags(folder) == ["helpers"]
    assert machine_paths(tmp_path) == ["README.md:1: " + "/".join(["", "home", "someone"])]


def test_test_files_have_names_of_their_own() -> None:
    """Pytest imports them by their name alone, and mypy knows them by it."""
    names = [path.stem for path in (ROOT / "conftest.py", *python_files(ROOT / "tests"))]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
