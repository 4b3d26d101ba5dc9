"""The README is short, and its two commands are the ones that are tested."""

from __future__ import annotations

from pages import Block, blocks
from repository import ROOT, project, read

_INSTALL = "python -m pip install '.[all]' && harness validate"
_MOST_LINES = 200


def test_it_is_short() -> None:
    assert len(read("README.md").splitlines()) <= _MOST_LINES


def test_the_first_command_installs_an_extra_that_exists() -> None:
    assert f"\n{_INSTALL}\n" in "".join(block.text for block in _recipes()).join("\n\n")
    assert "all" in project()["project"]["optional-dependencies"]


def test_the_test_command_is_the_one_that_ci_runs() -> None:
    command = "python -m pip install tox && tox"
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert any(block.text == f"{command}\n" for block in _recipes())
    assert f"`{command}`" in read("tox.ini").splitlines()[0]


def _recipes() -> list[Block]:
    return [block for block in blocks("README.md", read("README.md")) if block.language == "sh"]
