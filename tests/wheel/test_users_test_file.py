"""A test file of a user's own, the one that the README shows, with the plug-in that the wheel has installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import readme_file, run

_FILE = "test_model.py"


def test_the_plug_in_is_there_without_being_named(tmp_path: Path) -> None:
    shown = run(tmp_path, "pytest", "--markers")
    assert shown.returncode == 0, shown.stderr
    assert "@pytest.mark.devices(min=1, kind=None)" in shown.stdout


def test_the_test_of_the_readme_is_ten_lines_and_passes_and_its_faulty_twin_fails(tmp_path: Path) -> None:
    """A softmax over the rows mixes them: a shard has other rows than the batch."""
    text = readme_file(_FILE)
    assert len([line for line in text.splitlines() if line.strip()]) <= 10
    faulty = text.replace("tf.nn.softmax(x)", "tf.nn.softmax(x, axis=0)")
    assert faulty != text
    tmp_path.joinpath(_FILE).write_text(text, encoding="utf-8")
    tmp_path.joinpath("test_twin.py").write_text(faulty, encoding="utf-8")
    done = run(tmp_path, "pytest", "-rA", "--harness-devices=cpu:2")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "harness: devices cpu:2 (--harness-devices)" in done.stdout
    assert "on 2 devices" in done.stdout
    assert f"PASSED {_FILE}::" in done.stdout
    assert "FAILED test_twin.py::" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "[H104 value, C110] output" in done.stdout
