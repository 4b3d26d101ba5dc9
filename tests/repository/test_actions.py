"""The composite action and the workflow that publishes: their steps are run as written, as far as they can be here."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from pages import blocks
from repository import ROOT, project, read

#: PyYAML has no types of its own; it comes with kubernetes-validate.
yaml = import_module("yaml")

ACTION = ROOT / ".github" / "actions" / "harness"


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _run(step: dict[str, Any], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does, in a folder whose ``python`` is this one."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    if not (programs / "python").exists():
        (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (programs / "python").chmod(0o755)
    known = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"} | environment
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)


def _steps() -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in _load(ACTION / "action.yml")["runs"]["steps"]}


def test_the_action_says_which_shell_runs_each_step_and_never_puts_an_input_into_a_script() -> None:
    action = _load(ACTION / "action.yml")
    assert action["runs"]["using"] == "composite"
    used: set[str] = set()
    for step in _steps().values():
        assert ("run" in step) == ("shell" in step)
        assert "${{" not in step.get("run", ""), "an input can hold a command: give it by the environment"
        used.update(text for text in action["inputs"] if f"inputs.{text}" in str(step))
    assert used == set(action["inputs"])
    for given in action["inputs"].values():
        assert given["description"].endswith(".")
        assert given["default"]


def test_the_action_installs_the_repository_that_it_is_a_part_of(tmp_path: Path) -> None:
    extras = _load(ACTION / "action.yml")["inputs"]["extras"]["default"]
    # Instead of pip, print what it would be given.
    step = {"run": _steps()["install"]["run"].replace("python -m pip install", "echo")}
    printed = _run(step, tmp_path, GITHUB_ACTION_PATH=str(ACTION), EXTRAS=extras).stdout.strip()
    folder, _, named = printed.removesuffix("]").partition("[")
    assert Path(folder).resolve() == ROOT
    assert set(named.split(",")) <= set(project()["project"]["optional-dependencies"])


def test_the_action_fails_with_a_test_and_writes_its_report(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        "def test_right(devices):\n    assert len(devices) == 2\n\n\ndef test_wrong():\n    assert False\n"
    )
    options = "-p harness.pytest_plugin.plugin -p no:cacheprovider"
    given = {"TESTS": "tests", "DEVICES": "cpu:2", "REPORT": "out", "PYTEST_ADDOPTS": options, "PYTHONPATH": str(ROOT)}
    done = _run(_steps()["test"], tmp_path, GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"), **given)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert 'tests="2"' in (tmp_path / "out" / "junit.xml").read_text()


def test_the_guide_gives_the_action_inputs_that_it_has() -> None:
    guide = [yaml.safe_load(each.text) for each in blocks("ci", read("docs/guides/ci.md")) if each.language == "yaml"]
    steps = [step for workflow in guide for job in workflow["jobs"].values() for step in job["steps"]]
    own = [step for step in steps if "/.github/actions/harness@" in step.get("uses", "")]
    assert own
    for step in own:
        assert set(step["with"]) <= set(_load(ACTION / "action.yml")["inputs"])


def test_workflows_of_the_guides_install_a_revision_by_the_address_of_the_repository() -> None:
    version = project()["project"]["version"]
    for page in ("ci", "software-gpus"):
        text = read(f"docs/guides/{page}.md")
        workflows = [yaml.safe_load(each.text) for each in blocks(page, text) if each.language == "yaml"]
        workflows = [each for each in workflows if "jobs" in each]
        assert workflows
        for workflow in workflows:
            assert {"name", "jobs"} < set(workflow), "it is pasted whole"
            steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
            commands = [shlex.split(step["run"]) for step in steps if "run" in step]
            for package in (word for words in commands for word in words if word.startswith("tf-placement-harness")):
                name, _, address = package.partition(" @ ")
                assert address == f"git+https://github.com/OWNER/tf-placement-harness@v{version}"
                extras = name.removeprefix("tf-placement-harness[").removesuffix("]").split(",")
                assert set(extras) <= set(project()["project"]["optional-dependencies"])


def test_the_release_is_published_without_a_token_and_only_as_its_version(tmp_path: Path) -> None:
    workflow = _load(ROOT / ".github" / "workflows" / "publish.yml")
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    assert "secrets" not in str(workflow)
    (check,) = [step for step in build["steps"] if step.get("name") == "the tag is the version"]
    version = project()["project"]["version"]
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for tag, code in ((f"v{version}", 0), (version, 0), ("v9.9.9", 1), (f"{version}.1", 1)):
        assert _run(check, tmp_path, TAG=tag).returncode == code
