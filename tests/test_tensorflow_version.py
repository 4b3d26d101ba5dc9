"""The facts about TensorFlow's versions agree with what the project declares and what is installed."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from harness._tensorflow import interface
from harness.tensorflow_version import NEWEST, OLDEST, OLDEST_PYTHON, SUPPORTED, TOO_NEW, untested

_ROOT = Path(__file__).parent.parent


def test_the_installed_version_is_supported() -> None:
    installed = tuple(map(int, metadata.version("tensorflow").split(".")[:2]))
    assert tuple(map(int, OLDEST.split("."))) <= installed < tuple(map(int, TOO_NEW.split(".")))


def test_the_project_declares_and_tests_the_same_versions() -> None:
    project = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(re.findall(r'"tensorflow(?:\[and-cuda\])?>=([\d.]+)', project)) == {OLDEST}
    assert f'requires-python = ">={OLDEST_PYTHON}' in project
    tested = re.findall(r"tensorflow~=(\d+\.\d+)\.", (_ROOT / "tox.ini").read_text(encoding="utf-8"))
    assert (tested[0], tested[-1]) == (OLDEST, NEWEST)


def test_another_version_of_tensorflow_is_a_warning_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    assert [untested(f"{version}.1") for version in (OLDEST, NEWEST)] == [None, None]
    assert f"2.18.0 is not among the tested versions, {SUPPORTED}" in str(untested("2.18.0"))
    monkeypatch.setattr(tf, "__version__", "2.99.0")
    interface.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match=r"TensorFlow 2\.99\.0 is not among the tested versions") as warned:
            first, second = interface(), interface()
    finally:
        interface.cache_clear()
    assert first is second
    assert len(warned) == 1


def test_no_other_module_names_a_version_range() -> None:
    places = [
        str(path.relative_to(_ROOT))
        for path in sorted((_ROOT / "harness").rglob("*.py"))
        if path.name != "tensorflow_version.py" and SUPPORTED in path.read_text(encoding="utf-8")
    ]
    assert places == []
