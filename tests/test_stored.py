"""Stored records that are damaged are named in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.stored import parse_versioned, read_json


@dataclass(frozen=True)
class _Kept:
    times: tuple[float, ...]
    share: float = 0.0
    schema_version: int = 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "is nested too deeply"),
        ("{", "is not JSON: "),
        ('{"schema_version": 1, "times": [NaN]}', "times: nan is not a finite number"),
        ('{"schema_version": 1, "times": [1e999]}', "times: inf is not a finite number"),
        (f'{{"schema_version": 1, "times": [{10**400}]}}', "times: an integer of 1,329 bits is too large"),
        (f'{{"schema_version": 1, "times": [{"9" * 5000}]}}', "is not JSON: "),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "kept.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=why):
        parse_versioned(read_json(tmp_path / "kept.json"), _Kept, 1)


def test_numbers_that_a_record_has_are_read(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text('{"schema_version": 1, "times": [1e300, -7], "share": "inf"}', encoding="utf-8")
    kept = parse_versioned(read_json(tmp_path / "kept.json"), _Kept, 1)
    assert kept.times == (1e300, -7.0)
    assert kept.share == float("inf")
