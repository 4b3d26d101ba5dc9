"""The files of the repository, as they are handed on: what git ignores is left out by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("harness", "profiles", "tests", ".ci", ".github")
_FILES = (".gitignore", "*.py", "*.md", "*.toml", "*.ini", "LICENSE")


def text_files(root: Path) -> list[Path]:
    """Every file of the repository under ``root`` but data, sorted; all of them are text."""
    return sorted(path for path in _text_files(root) if path.suffix != ".gz")


def _text_files(root: Path) -> Iterator[Path]:
    for pattern in _FILES:
        yield from root.glob(pattern)
    for folder in _FOLDERS:
        for path in (root / folder).rglob("*"):
            hidden = any(
                part.startswith(".") or part == "__pycache__" for part in path.relative_to(root / folder).parts
            )
            if path.is_file() and not hidden:
                yield path


def read(name: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    """``pyproject.toml``, parsed."""
    parsed: dict[str, Any] = tomllib.loads(read("pyproject.toml"))
    return parsed
