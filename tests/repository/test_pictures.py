"""The pictures of docs/ are drawn from what was measured, and the README says what they show."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, read

PICTURES = ("two_towers", "make_parallel_cost")


def script(name: str) -> Any:
    """A script of ``tests/benchmarks/scripts`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests/benchmarks/scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_from_what_was_measured(name: str, tmp_path: Path) -> None:
    module = script(name)
    module.draw(json.loads(module.RESULTS.read_text()), tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text().count("<text") == module.PICTURE.read_text().count("<text") > 5


def test_the_readme_says_what_was_measured() -> None:
    module = script("two_towers")
    found = json.loads(module.RESULTS.read_text())
    said = f"{found['speedup']['typical']:.2f} times as fast"
    assert said in read("README.md").replace("\n", " ")
    assert said in module.PICTURE.read_text()
    assert f"{module.PRODUCTS:.2f}" in read("README.md")
    by_hand, colocated = (found["products"][side] for side in module.SIDES)
    assert [place[1] == 0 for place in by_hand] == [False, True]
    assert colocated[0] == colocated[1]


def test_what_make_parallel_costs_is_linear() -> None:
    """Ten times the devices or the variables cost at most some ten times as much: quadratic would be a hundred."""
    module = script("make_parallel_cost")
    rows = json.loads(module.RESULTS.read_text())
    for sweep, points in (("devices", rows[: len(module.DEVICES)]), ("variables", rows[len(module.DEVICES) :])):
        first, last = points[2], points[-1]
        growth = last[sweep] / first[sweep]
        for what in ("build_s", "eager_s", "graph_bytes"):
            assert last[f"make_parallel: {what}"] < 1.5 * growth * first[f"make_parallel: {what}"], (sweep, what)
