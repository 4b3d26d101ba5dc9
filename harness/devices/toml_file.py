"""Reads a TOML file into a Pydantic model; what is wrong with it is one line that names the file and the key."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harness.errors import InvalidProfile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Model = TypeVar("Model", bound=BaseModel)


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """The content of a TOML document.

    Raises:
        InvalidProfile: it is none.
    """
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidProfile(path, "TOML syntax", str(error), "a TOML document") from error
    return content


def read_model(path: Path, model: type[Model]) -> Model:
    """Read the file at ``path`` into ``model``.

    Raises:
        InvalidProfile: it cannot be read, or a key in it is unknown, missing, or has a value that is not accepted.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidProfile(path, "the file", reason, "a file that can be read") from error
    try:
        return model.model_validate(parse_toml(path, text))
    except ValidationError as error:
        # An unknown key comes first: it is usually the misspelt form of the key that is then missing.
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"])
        accepted = "no such key" if first["type"] == "extra_forbidden" else first["msg"]
        raise InvalidProfile(path, key, None if first["type"] == "missing" else first["input"], accepted) from error
