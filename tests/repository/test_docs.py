"""The pages of docs/ say what is so: their scripts print what they show, and each page is in the contents."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from readme import blocks, scripts
from repository import ROOT, read

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
#: A page for each way to use several devices has a script.
PATTERNS = (
    "docs/cluster.md",
    "docs/data-parallel.md",
    "docs/distribute.md",
    "docs/ensemble.md",
    "docs/pipeline.md",
    "docs/tasks.md",
)


SCRIPTS = {name: script for page in PAGES for name, script in scripts(read(page)).items()}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_a_page_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    """Each in a process of its own, in an empty folder: TensorFlow fixes its devices once per process."""
    code, shown = SCRIPTS[name]
    (tmp_path / name).write_text(code, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


@pytest.mark.parametrize("page", PATTERNS)
def test_each_pattern_has_a_script_and_says_what_goes_wrong(page: str) -> None:
    assert scripts(read(page))
    assert "## What goes wrong in practice" in read(page)


def test_every_script_is_run() -> None:
    for page in PAGES:
        named = {block.file for block in blocks(read(page)) if block.language == "python" and block.file}
        assert named == set(scripts(read(page))), page


def test_every_page_is_in_the_contents() -> None:
    contents = read("mkdocs.yml")
    for page in PAGES:
        assert page.removeprefix("docs/") in contents
