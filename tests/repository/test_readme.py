"""The README says what is so: its code runs and prints what it shows, and its lists are complete."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from readme import blocks, scripts
from repository import ROOT, read

from harness.checks.registry import SUITE
from harness.cli.app import app
from harness.devices.needs import KINDS
from harness.devices.profile import load_profile, shipped_profile_names
from harness.devices.profile_schema import MemoryTable, ProfileDocument, ThreadsTable
from harness.pytest_plugin.gate import OPTION_BY_MACHINE, OPTION_FAIL
from harness.pytest_plugin.plugin import (
    DEFAULT_DEVICES,
    ENVIRONMENT_DEVICES,
    INI_DEVICES,
    MARKER,
    OPTION_DEVICES,
    OPTION_REQUIRE,
)
from harness.pytest_plugin.speed import OPTION_BUDGET, OPTION_PRECISION, OPTION_TWICE
from harness.records import FINDING_KINDS, ExitCode, Verdict


def run_the_scripts() -> None:
    """Run every script of the README, and print what each printed, as one line of JSON."""
    import contextlib
    import io
    import os
    import tempfile

    printed = {}
    os.chdir(tempfile.mkdtemp())
    for name, (code, _) in scripts(read("README.md")).items():
        Path(name).write_text(code, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, name, "exec"), {"__name__": "__main__", "__file__": name})
        printed[name] = out.getvalue()
    print(json.dumps(printed))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("onednn", ["0", "1"])
def test_the_scripts_of_the_readme_print_what_it_shows(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]], onednn: str
) -> None:
    shown = {name: output for name, (_, output) in scripts(read("README.md")).items()}
    assert set(shown) == {"wrong_device.py", "where.py"}
    printed = json.loads(fresh_process(run_the_scripts, TF_ENABLE_ONEDNN_OPTS=onednn).stdout.splitlines()[-1])
    for name, output in shown.items():
        assert _lines(printed[name]) == _lines(output), f"{name} prints something else than the README shows"


@pytest.mark.parametrize("block", [block for block in blocks(read("README.md")) if block.language == "python"])
def test_the_python_of_the_readme_is_a_file_with_a_name_that_something_runs(block: object) -> None:
    """The scripts are run above, the test file by ``tests/wheel``."""
    assert getattr(block, "file", None) in {*scripts(read("README.md")), "test_model.py"}


def test_a_script_that_prints_something_else_would_be_seen() -> None:
    text = "```python a.py\nprint(1)\n```\nand\n```text a.py\n1\n```\n```python b.py\npass\n```\n```toml\nx = 1\n```\n"
    assert scripts(text) == {"a.py": ("print(1)\n", "1\n")}
    assert [(block.language, block.file) for block in blocks(text)] == [
        ("python", "a.py"),
        ("text", "a.py"),
        ("python", "b.py"),
        ("toml", None),
    ]


def _first_column(heading: str) -> list[str]:
    """What stands in code style in the first column of the first table below a heading."""
    text = read("README.md").split(f"{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table, f"no table below {heading}"
    cells = [row.split("|")[1] for row in table[0].splitlines()[2:]]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_check_is_listed_in_its_order_and_no_other() -> None:
    assert tuple(_first_column("### The checks")) == SUITE.ids


def test_every_kind_of_finding_is_explained_and_no_other() -> None:
    assert tuple(_first_column("## Kinds of finding")) == tuple(FINDING_KINDS)


def test_every_command_is_listed_and_no_other() -> None:
    listed = [text.split()[1] for text in _first_column("## The command line")]
    commands = [command.name or str(getattr(command.callback, "__name__", "")) for command in app.registered_commands]
    assert listed == commands


def test_every_exit_code_is_explained() -> None:
    text = read("README.md").split("| exit code |", 1)[1]
    codes = [int(code) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE) for code in row.split(",")]
    assert codes[: len(ExitCode)] == sorted(ExitCode)
    assert codes[len(ExitCode) :] == [128 + 2, 128 + 15]


def test_every_option_of_the_plug_in_is_told() -> None:
    text = read("README.md").split("## The pytest plug-in\n", 1)[1]
    options = (
        OPTION_DEVICES,
        OPTION_REQUIRE,
        OPTION_BUDGET,
        OPTION_PRECISION,
        OPTION_TWICE,
        OPTION_FAIL,
        OPTION_BY_MACHINE,
    )
    for name in (*options, ENVIRONMENT_DEVICES, INI_DEVICES, f"@pytest.mark.{MARKER}", *KINDS):
        assert re.search(rf"`{re.escape(name)}\b", text), f"the README does not tell of {name}"
    assert f"else `{DEFAULT_DEVICES}`" in text


def test_every_shipped_profile_and_every_verdict_is_named() -> None:
    text = read("README.md")
    for name in shipped_profile_names():
        assert f"`@{name}`" in text
    for verdict in Verdict:
        assert verdict.value in text


def test_the_profile_that_it_shows_is_valid_and_has_every_key(tmp_path: Path) -> None:
    (shown,) = [block.text for block in blocks(read("README.md")) if block.language == "toml"]
    path = tmp_path / "shown.toml"
    path.write_text(shown, encoding="utf-8")
    assert str(load_profile(path).spec) == "gpu:2"
    for key in (*ProfileDocument.model_fields, *MemoryTable.model_fields, *ThreadsTable.model_fields):
        assert re.search(rf"\b{key}\b", shown), f"the profile of the README does not show {key}"


def test_the_test_command_is_the_one_that_ci_runs() -> None:
    command = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]
    assert command == "python -m pip install tox && tox"
    assert f"    {command}\n" in read("README.md")
    assert f"`{command}`" in read("tox.ini").splitlines()[0]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_within_the_repository_lead_somewhere(name: str) -> None:
    text = read(name)
    anchors = {
        "#" + re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if not target.startswith("https://"):
            assert target in anchors or (ROOT / target).is_file(), f"{name} links to {target}"
