"""TOML files that are damaged in ways that Python's parser does not report as such."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices.described.reading import load_description
from harness.devices.request import resolve
from harness.devices.toml_file import parse_toml
from harness.errors import InvalidDescription, InvalidProfile

DAMAGED = {
    "nested too deeply": f"a = {'[' * 20_000}",
    "an integer has too many digits": f"a = {'9' * 5_000}",
    "Expected": "a = [1,,",
}


@pytest.mark.parametrize("why", DAMAGED)
def test_a_damaged_file_is_one_line(tmp_path: Path, why: str) -> None:
    with pytest.raises(InvalidProfile) as raised:
        parse_toml("a.toml", DAMAGED[why])
    if why != "Expected":
        assert str(raised.value) == f"profile a.toml: TOML syntax: {why}; accepted: a TOML document"
    file = tmp_path / "a.toml"
    file.write_text(DAMAGED[why], encoding="utf-8")
    with pytest.raises(InvalidProfile, match="TOML syntax: "):
        resolve(str(file))
    with pytest.raises(InvalidDescription, match="TOML syntax: "):
        load_description(file)
