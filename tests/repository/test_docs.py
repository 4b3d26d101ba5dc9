"""The README and the pages of docs/ are right: code blocks run and print what is shown, and tables are complete."""

from __future__ import annotations

import importlib.util
import re
import shlex
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import forks
import pytest
from pages import (
    SPEED_PAGES,
    Block,
    agree,
    all_scripts,
    blocks,
    check_transcripts,
    commands,
    environment,
    files,
    groups,
    pages,
    pages_with_transcripts,
    recipe_lines,
    run_command,
    run_scripts,
    scripts,
)
from repository import ROOT, project, read
from test_versions import environments

import harness
from harness.checks.registry import SUITE
from harness.devices.described.description import FAULT_KINDS, CardsTable
from harness.devices.described.reading import load_description
from harness.devices.needs import KINDS
from harness.devices.profile import load_profile, shipped_profile_names
from harness.devices.profile_schema import MemoryTable, ProfileDocument, ThreadsTable
from harness.devices.project import project_of
from harness.devices.project_schema import HarnessTable
from harness.devices.spec import spec_forms
from harness.finding_kinds import KINDS as FINDING_KINDS
from harness.pytest_plugin.plugin import MARKER
from harness.pytest_plugin.requested import DEFAULT_DEVICES, ENVIRONMENT_DEVICES
from harness.records import ExitCode, Verdict

BLOCKS = [block for page in pages() for block in blocks(page, read(page))]
GROUPS = groups(all_scripts())
#: Pages whose blocks are run by a test of the wheel.
_RUN_FROM_THE_WHEEL = {"test_model.py"}
#: Which ``tests/softgpu`` runs.
_RUN_ON_SOFTWARE_GPUS = {"test_two_gpus.py"}
_CHECKED_BELOW = {"pyproject.toml", "profile.toml", "one-bad-card.toml", "four-cards.toml"}
#: A page for each way to use several devices.
PATTERNS = ("make-parallel", "pipeline", "ensemble", "tasks", "tf-distribute", "other-hosts")


#: Scripts that share a process are run with both kinds of kernels: what is shown is about the user's ops.
RUNS = [(group, "1") for group in GROUPS] + [(group, "0") for group, found in GROUPS.items() if len(found) > 1]


@pytest.mark.parametrize(("group", "onednn"), RUNS)
def test_the_scripts_of_the_pages_print_what_the_pages_show(
    group: str, onednn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)
    with forks.forking() if onednn == "1" else nullcontext():
        found = run_scripts(GROUPS[group], tmp_path)
    for script, printed in found.items():
        where = f"{script.page}, {script.name}; to accept what it prints now: python tests/repository/pages.py"
        assert _lines(printed) == _lines(script.shown), where


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("page", [page for page in pages_with_transcripts() if page not in SPEED_PAGES])
def test_the_commands_of_a_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    with forks.forking():
        check_transcripts(page, tmp_path)


def test_every_code_block_is_run_or_checked() -> None:
    """A file is run as a script, or a command of its page names it."""
    for block in BLOCKS:
        own = [each for each in BLOCKS if each.page == block.page]
        transcripts = "".join(each.text for each in own if each.language == "console")
        run = {script.name for script in scripts(own)} | _RUN_FROM_THE_WHEEL | _RUN_ON_SOFTWARE_GPUS
        where = f"{block.page}: ```{block.language} {block.title}"
        if block.language in {"python", "toml", "yaml", "json"}:
            assert block.file, f"{where}: give the block the name of a file"
            checked = block.language == "yaml" or block.file in run or Path(block.file).name in transcripts
            assert checked or block.file in _CHECKED_BELOW, f"{where}: nothing runs it"
        elif block.language == "text":
            assert block.file in files(own), f"{where}: name the script that prints it"
        else:
            assert block.language in {"console", "sh"}, where


def unknown_in(line: str) -> list[str]:
    """What a command line names that does not exist: commands, options, environments of tox, extras, files."""
    words = shlex.split(line)
    if words[0] in {"echo", "srun", "sleep", "if", "else", "fi", "for", "do", "done", "kubectl", "scontrol", "git"}:
        return []
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    program, arguments = words[0], words[1:]
    if program == "python" and arguments[:2] == ["-m", "pip"]:
        extras = {name for word in arguments for found in re.findall(r"\[(.*?)\]", word) for name in found.split(",")}
        return sorted(extras - {"and-cuda"} - project()["project"]["optional-dependencies"].keys())
    if program == "python":
        return [] if (ROOT / arguments[0]).is_file() else [arguments[0]]
    if program == "tox":
        return sorted(set(arguments[arguments.index("-e") + 1].split(",")) - set(environments()) if arguments else ())
    if program == "pytest":
        options = re.findall(r"`(--[\w-]+)", _table("plugin-options"))
        return [word for word in arguments if word.startswith("--harness") and word.split("=")[0] not in options]
    if program == "harness":
        known_commands = _hook().commands()
        name = next((name for name in (" ".join(arguments[:2]), *arguments[:1]) if name in known_commands), None)
        if name is None:
            return arguments[:1]
        known = {name for option in known_commands[name].params for name in option.opts} | {"--help"}
        # What follows -- is for another command.
        arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
        return [word for word in arguments if word.startswith("-") and word.split("=")[0] not in known]
    if program == "docker" and arguments[0] == "build":
        taken = re.findall(r"^ARG (\w+)", read("Dockerfile"), re.MULTILINE)
        return [name for name in re.findall(r"--build-arg (\w+)", line) if name not in taken]
    if program == "docker":
        at = next(number for number, word in enumerate(arguments) if word in ("harness", "harness-gpu"))
        entry = arguments[arguments.index("--entrypoint") + 1] if "--entrypoint" in arguments else "harness"
        return unknown_in(shlex.join([entry, *arguments[at + 1 :]]))
    return [program]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "sh"], ids=lambda block: block.page)
def test_every_recipe_uses_commands_and_options_that_exist(block: Block) -> None:
    for line in recipe_lines(block):
        for command in re.split(r" (?:&&|\|\|) ", line):
            assert unknown_in(command) == [], f"{block.page}: {command}"


def test_a_recipe_with_a_slip_is_found() -> None:
    assert unknown_in("harness validate --levle deep") == ["--levle"]
    assert unknown_in("harness validat") == ["validat"]
    assert unknown_in("harness fleet reprot --store all") == ["fleet"]
    assert unknown_in("harness fleet report --stroe all") == ["--stroe"]
    assert unknown_in("pytest --harness-device=cpu:2 tests") == ["--harness-device=cpu:2"]
    assert unknown_in("tox -e units") == ["units"]
    assert unknown_in("python -m pip install '.[every]'") == ["every"]
    assert unknown_in('if [ "$SLURM_PROCID" = 0 ]; then') == []
    assert unknown_in("HARNESS_DEVICES=gpu harness validate --level deep --only memory") == []


def test_a_page_that_shows_something_else_would_be_seen(tmp_path: Path) -> None:
    page = '```python title="a.py"\nprint(1)\n```\n```text title="output of a.py"\n1\n```\n```python b.py\npass\n```\n'
    found = blocks("page.md", page)
    assert [(block.language, block.file) for block in found] == [
        ("python", "a.py"),
        ("text", "a.py"),
        ("python", "b.py"),
    ]
    (script,) = scripts(found)
    assert run_scripts([script], tmp_path) == {script: script.shown}
    (transcript,) = blocks("page.md", "```console\n$ echo 12 rows\n7 rows\n$ echo no\nyes\n```\n")
    right, wrong = commands(transcript)
    assert agree(right.shown, run_command(right.command, tmp_path)), "numbers may differ"
    assert not agree(wrong.shown, run_command(wrong.command, tmp_path))
    assert agree("first …\nlast\n", "first, second\nthird\nlast\n")
    assert "harness" in (Path(environment(tmp_path)["PATH"].split(":")[0]) / "harness").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_has_a_script_and_names_the_common_faults(name: str) -> None:
    page = f"docs/guides/{name}.md"
    assert scripts(found := blocks(page, read(page))) or any(block.language == "console" for block in found)
    assert "## Common faults" in read(page)


def test_every_page_is_in_the_contents() -> None:
    contents = read("mkdocs.yml")
    for page in pages()[1:]:
        assert f"{page.removeprefix('docs/')}\n" in contents, page


@pytest.mark.parametrize("page", [*pages(), "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files_and_headings(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.is_file(), f"{page} links to {target}"
        assert not anchor or anchor in _anchors(path), f"{page} links to {target}"


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _hook().on_page_markdown(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def _hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_hook", ROOT / "docs" / "hooks" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _table(name: str) -> str:
    return str(_hook().TABLES[name]())


def test_the_generated_tables_are_complete_and_each_is_on_a_page() -> None:
    hook = _hook()
    text = "".join(read(page) for page in pages()[1:])
    for name in hook.TABLES:
        assert f"<!-- generated: {name} -->\n" in text, name
    contents = {
        "checks": [f"| `{name}` |" for name in SUITE.ids],
        "finding-kinds": [
            text
            for kind in FINDING_KINDS.values()
            for text in (f"| `{kind.name}` |", f"### {kind.code} {kind.name}", kind.remedy)
        ],
        "command-line": [f"### harness {name}\n" for name in hook.commands()],
        "device-specs": [f"| `{form.written}` |" for form in spec_forms()],
        "device-profiles": [f"| `@{name}` |" for name in shipped_profile_names()],
        "described-machine": [f"| `{name}` |" for name in (*FAULT_KINDS, *CardsTable.model_fields)],
        "api": [f"heading: harness.{name}\n" for name in harness._HOME],
        "run-json": ["### run.json\n", "### Finding\n", "[Finding](#finding)", "`schema_version`"],
        "plugin-options": ["`--harness-devices=SPEC`", "`--harness-require`", "ini key `harness_devices`"],
    }
    for name, wanted in contents.items():
        made = hook.on_page_markdown(f"<!-- generated: {name} -->") + "\n"
        for each in wanted:
            assert each in made, f"{name}: {each}"
    with pytest.raises(KeyError):
        hook.on_page_markdown("<!-- generated: no-such-table -->")


def test_every_exit_code_and_verdict_is_explained() -> None:
    text = read("docs/reference/command-line.md")
    codes = [int(code) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE) for code in row.split(",")]
    assert codes == [*sorted(ExitCode), 128 + 2, 128 + 15]
    for verdict in Verdict:
        assert f"| {verdict} |" in read("docs/reference/findings.md")


def test_the_page_of_the_plug_in_names_fixtures_marker_and_kinds() -> None:
    text = read("docs/reference/plugin.md")
    for name in ("devices", "verify", "trace", "speedup", ENVIRONMENT_DEVICES, f"@pytest.mark.{MARKER}", *KINDS):
        assert re.search(rf"`{re.escape(name)}\b", text), name
    assert f"`{DEFAULT_DEVICES}`" in text


@pytest.mark.parametrize(("name", "faults"), [("one-bad-card.toml", 1), ("four-cards.toml", 2)])
def test_the_machine_that_is_shown_can_be_read(name: str, faults: int, tmp_path: Path) -> None:
    (shown,) = [block.text for block in BLOCKS if block.file == name]
    path = tmp_path / name
    path.write_text(shown, encoding="utf-8")
    machine = load_description(path)
    assert (machine.cards.count, len(machine.fault)) == (4, faults)


def test_the_settings_that_are_shown_are_valid_and_have_every_key(tmp_path: Path) -> None:
    (shown,) = [block.text for block in BLOCKS if block.file == "pyproject.toml"]
    (tmp_path / "pyproject.toml").write_text(shown, encoding="utf-8")
    project = project_of(tmp_path)
    assert project is not None
    assert {*project.settings, "accept"} == set(HarnessTable.model_fields)
    assert [finding for finding, _ in project.accept] == ["H202"]


def test_the_profile_that_is_shown_is_valid_and_has_every_key(tmp_path: Path) -> None:
    (shown,) = [block.text for block in BLOCKS if block.file == "profile.toml"]
    path = tmp_path / "shown.toml"
    path.write_text(shown, encoding="utf-8")
    assert str(load_profile(path).spec) == "gpu:2"
    for key in (*ProfileDocument.model_fields, *MemoryTable.model_fields, *ThreadsTable.model_fields):
        assert re.search(rf"\b{key}\b", shown), f"the profile that is shown has no {key}"
