"""Starting pytest with the plug-in unused: what it loads, what it costs, and under which names it comes in."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forks
import pytest

import harness

Session = Callable[..., pytest.RunResult]

_HEAVY = ("tensorflow", "keras", "numpy", "scipy", "hypothesis", "pydantic", "rich", "typer", "psutil")
_ROOT = str(Path(harness.__file__).resolve().parent.parent)
_ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": _ROOT}


def test_unused_it_loads_nothing_but_itself(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session with a plain test. A session that does use devices shows that the list can be longer."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", _ROOT)
    pytester.makepyfile(
        test_plain="""
        import json, sys

        def test_plain():
            print("loaded", json.dumps(sorted(name for name in sys.modules)))
        """
    )

    def loaded(*arguments: str) -> set[str]:
        result = pytester.runpytest_subprocess("-s", "-p", "harness.pytest_plugin.plugin", *arguments)
        result.assert_outcomes(passed=1)
        line = next(line for line in result.stdout.lines if "loaded [" in line)
        return set(json.loads(line[line.index("[") :].rstrip(".")))

    plain = loaded()
    assert {name for name in plain if name.split(".")[0] == "harness"} == {
        "harness",
        "harness.devices",
        "harness.devices.project",
        "harness.errors",
        "harness.pytest_plugin",
        "harness.pytest_plugin.plugin",
        "harness.pytest_plugin.annotate",
        "harness.pytest_plugin.early",
        "harness.pytest_plugin.gate",
        "harness.pytest_plugin.memory",
        "harness.pytest_plugin.modes",
        "harness.pytest_plugin.page",
        "harness.pytest_plugin.requested",
        "harness.pytest_plugin.saving",
        "harness.pytest_plugin.speed",
        "harness.pytest_plugin.watch",
        "harness.session",
        "harness.tensorflow_version",
    }
    assert plain.isdisjoint(_HEAVY)
    with_spec = loaded("--harness-devices=cpu:2")
    assert with_spec.isdisjoint(_HEAVY), "a spec is parsed without them"
    assert "pydantic" in loaded("--harness-devices=@cpu-2"), "a profile is validated by Pydantic"


_TIMES = """
import time
before = time.process_time()
import pytest
between = time.process_time()
import harness.pytest_plugin.plugin
print((time.process_time() - between) / (between - before))
"""
#: Importing the plug-in takes a fifth of the time that importing pytest does, which is itself a part of a start.
_LIMIT = 0.5


def test_importing_it_costs_little_beside_importing_pytest() -> None:
    command = [sys.executable, "-c", _TIMES]
    ratios = [
        float(subprocess.run(command, env=_ALONE, capture_output=True, text=True, check=True).stdout) for _ in range(5)
    ]
    assert statistics.median(ratios) < _LIMIT, f"ratios: {ratios}"


def _entry_point(folder: Path) -> None:
    """What installing the package leaves behind, for the one entry point."""
    info = folder / "installed_harness-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: installed-harness\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text("[pytest11]\nharness = harness.pytest_plugin.plugin\n")


@pytest.mark.parametrize(
    ("installed", "arguments", "in_conftest"),
    [
        (True, (), False),
        (True, ("-p", "harness.pytest_plugin.plugin"), False),
        (True, ("-p", "harness"), False),
        (True, (), True),
        (False, ("-p", "harness.pytest_plugin.plugin"), False),
        (False, (), True),
    ],
)
def test_it_comes_in_once_however_often_and_by_whatever_name_it_is_named(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    installed: bool,
    arguments: tuple[str, ...],
    in_conftest: bool,
) -> None:
    site = pytester.mkdir("site")
    if installed:
        _entry_point(site)
    if in_conftest:
        pytester.makeconftest("pytest_plugins = ['harness.pytest_plugin.plugin']")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), _ROOT]))
    pytester.makepyfile(
        """
        def test_it(pytestconfig):
            names = [name for name, plugin in pytestconfig.pluginmanager.list_name_plugin() if plugin]
            assert len({"harness", "harness.pytest_plugin.plugin"} & set(names)) == 1
        """
    )
    for workers in ((), ("-n", "1")) if installed and in_conftest else ((),):
        with forks.forking():
            result = pytester.runpytest_subprocess(*arguments, *workers)
        result.assert_outcomes(passed=1)
        assert result.stdout.str().count("harness: devices") == 1


def test_switched_off_it_is_not_there(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makepyfile("def test_it():\n    pass\n")
    result = inner_pytest("-p", "no:harness", "-p", "no:harness.pytest_plugin.plugin")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("harness:*")
