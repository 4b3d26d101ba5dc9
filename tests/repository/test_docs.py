"""The pages of docs/ say what is so: their scripts print what they show, and each page is in the contents."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from readme import blocks, scripts
from repository import ROOT, read

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
#: A page for each way to use several devices has a script.
PATTERNS = ("docs/data-parallel.md", "docs/ensemble.md", "docs/pipeline.md", "docs/tasks.md")


def run_the_scripts_of_the_pages() -> None:
    """Run every script, and print what each printed, as one line of JSON. All of them take the same devices."""
    import contextlib
    import io
    import os
    import tempfile

    printed = {}
    os.chdir(tempfile.mkdtemp())
    for page in PAGES:
        for name, (code, _) in scripts(read(page)).items():
            Path(name).write_text(code, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, name, "exec"), {"__name__": "__main__", "__file__": name})
            printed[name] = out.getvalue()
    print(json.dumps(printed))


def test_the_scripts_of_the_pages_print_what_they_show(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    shown = {name: output for page in PAGES for name, (_, output) in scripts(read(page)).items()}
    printed = json.loads(fresh_process(run_the_scripts_of_the_pages).stdout.splitlines()[-1])
    assert printed == shown


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
