"""The versions that the project says it supports are the same wherever it says so."""

from __future__ import annotations

import configparser
import itertools
import re

from repository import project, read

import harness
from harness.extras import EXTRAS

_PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)$")


def expand(name: str) -> list[str]:
    """Tox' braces, written out: ``py3{10,11}`` is ``py310`` and ``py311``."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def environments() -> dict[str, str]:
    """Every environment of ``tox.ini`` with the text of its ``deps``."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(read("tox.ini"))
    sections = [name for name in parser.sections() if name.startswith("testenv:")]
    return {
        name: parser.get(section, "deps", fallback="")
        for section in sections
        for name in expand(section.removeprefix("testenv:"))
    }


def _pythons() -> list[str]:
    matches = (_PYTHON.match(line) for line in project()["project"]["classifiers"])
    return [match[1] for match in matches if match]


def _span(versions: list[str]) -> str:
    """A requirement that these versions, and no others, meet: ``>=3.10,<3.14``."""
    major, last = versions[-1].split(".")
    return f">={versions[0]},<{major}.{int(last) + 1}"


def test_braces_are_written_out() -> None:
    assert expand("py3{10,11}") == ["py310", "py311"]
    assert expand("lint") == ["lint"]


def test_python_versions_agree() -> None:
    versions = _pythons()
    oldest = versions[0]
    assert len(versions) > 1
    assert project()["project"]["requires-python"] == _span(versions)
    assert [name for name in environments() if re.fullmatch(r"py3\d+", name)] == [
        f"py{version.replace('.', '')}" for version in versions
    ]
    tools = project()["tool"]
    assert tools["mypy"]["python_version"] == oldest
    assert tools["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert f"Python {oldest} to {versions[-1]}" in read("README.md")


def test_tensorflow_versions_agree() -> None:
    names = [name for name in environments() if re.fullmatch(r"tf2\d+", name)]
    versions = [f"2.{name.removeprefix('tf2')}" for name in names]
    assert len(versions) > 1
    for name, version in zip(names, versions, strict=True):
        assert f"{name}: tensorflow~={version}.0" in environments()[name]
    metadata = project()["project"]
    # No upper bound: a new version gives a warning, and TensorFlowInterfaceChanged where it matters.
    assert f"tensorflow>={versions[0]}" in metadata["dependencies"]
    assert f"tensorflow[and-cuda]>={versions[0]}" in metadata["optional-dependencies"]["gpu"]
    # Without it, GPUs and described machines with faults that only NVML tells of would pass.
    assert any(each.startswith("nvidia-ml-py") for each in metadata["dependencies"])
    said = f"TensorFlow {versions[0]} to {versions[-1]}"
    assert said in read("README.md")
    assert said in str(harness.TensorFlowInterfaceChanged("name", "expected", "found"))


def test_the_extras_are_those_that_errors_name() -> None:
    extras = project()["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        assert any(each.startswith(package.replace("_", "-")) for each in extras[extra]), package
        assert not any(each.startswith(package.replace("_", "-")) for each in project()["project"]["dependencies"])
    # Nobody needs every engine: Ray alone is larger than all the other extras.
    engines = {"ray"}
    assert extras["all"] == [f"tf-placement-harness[{','.join(sorted({*EXTRAS.values()} - engines))}]"]
    assert "[all]" in read("README.md").split("harness validate")[0]


def test_the_version_of_the_project_is_the_same_everywhere() -> None:
    version = project()["project"]["version"]
    assert harness.__version__ == version
    assert re.search(rf"^## \[{re.escape(version)}\]", read("CHANGELOG.md"), re.MULTILINE)


def test_plain_tox_runs_environments_that_exist() -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(read("tox.ini"))
    plain = [name.strip() for name in parser["tox"]["env_list"].split(",")]
    assert set(plain) < set(environments())
    for needed in ("lint", "types", "unit", "wheel"):
        assert needed in plain
