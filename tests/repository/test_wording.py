"""Phrases that readers have to decipher do not come back."""

from __future__ import annotations

from pathlib import Path

from wording import PACKAGE, PAGES, ROOT, findings


def test_neither_pages_nor_the_package_have_a_phrase_of_the_glossary() -> None:
    assert list(findings(ROOT, PAGES)) == []
    assert list(findings(ROOT, PACKAGE)) == []


def test_a_phrase_is_found_across_lines_and_strings_and_plain_words_are_not(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "The GPU is not\nthere.\nIt is not available; there are no others.\n", encoding="utf-8"
    )
    (tmp_path / "module.py").write_text(
        'A = (\n    "3 steps equal to "\n    f"one device on {n}"\n)\n# It cannot be\n# had, so it is told.\n'
        'B = "matches the single-device run"  # They tell the reader what to do.\n',
        encoding="utf-8",
    )
    assert sorted(findings(tmp_path, ("*.md", "*.py"))) == [
        "module.py:2: 'equal to one device'; write: matches the single-device run",
        "module.py:5: 'cannot be had'; write: available",
        "module.py:6: 'is told'; write: reported",
        "page.md:1: 'is not there'; write: available, unavailable, missing",
    ]
