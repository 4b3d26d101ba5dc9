"""``[tool.harness]`` in ``pyproject.toml``: the settings of a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices.project import project_of
from harness.errors import InvalidSettings


def _write(folder: Path, text: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(text)
    return file


def test_the_nearest_file_gives_the_settings_with_paths_from_its_folder(tmp_path: Path) -> None:
    file = _write(
        tmp_path,
        '[project]\nname = "a"\n[tool.other]\nlevel = 3\n'
        '[tool.harness]\ndevices = "mine.toml"\nlevel = "deep"\nreport = "out"\nthreshold = "10%"\n'
        '[[tool.harness.accept]]\nfinding = "H202"\nreason = "left"\n',
    )
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    project = project_of(below)
    assert project is not None
    assert project.file == file
    assert project.settings == {
        "devices": str(tmp_path / "mine.toml"),
        "level": "deep",
        "report": str(tmp_path / "out"),
        "threshold": "10%",
    }
    assert project.accept == (("H202", "left"),)
    _write(below, '[project]\nname = "another project"\n')
    assert project_of(below) is None


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('levle = "deep"', r"tool.harness.levle = 'deep'; accepted: only the keys .* \(did you mean 'level'\?\)"),
        ('level = "fast"', "tool.harness.level = 'fast'; accepted: quick, standard, deep"),
        ("devices = 4", "tool.harness.devices = 4; accepted: a device spec"),
        (
            '[[tool.harness.accept]]\nfinding = "H202"',
            r"accept\[0\].reason is missing; accepted: a string that says why",
        ),
        ("level = ", "TOML syntax"),
        ('devices = "cpu:x"', "tool.harness.devices = 'cpu:x'; accepted: auto, cpu:N"),
        ('devices = "cpu:0"', "tool.harness.devices = 'cpu:0'; accepted: "),
        ('devices = "@none"', "tool.harness.devices = '@none'; accepted: @cpu-2"),
        (
            '[[tool.harness.accept]]\nfinding = "H999"\nreason = "none"',
            r"accept\[0\].finding = 'H999'; accepted: H101, H102",
        ),
    ],
)
def test_what_is_wrong_is_one_line_with_the_key(table: str, why: str, tmp_path: Path) -> None:
    _write(tmp_path, f"[tool.harness]\n{table}\n")
    with pytest.raises(InvalidSettings, match=why) as error:
        project_of(tmp_path)
    assert "\n" not in str(error.value)
    assert "pyproject.toml" in str(error.value)
