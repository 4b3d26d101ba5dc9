"""Reads a TOML file into a Pydantic model; what is wrong with it is one line that names the file and the key."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Any, TypeVar, get_args

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
        raise InvalidProfile(path, "the file", reason, "a TOML file that can be read") from error
    return parse_model(path, text, model)


def parse_model(path: Path, text: str, model: type[Model]) -> Model:
    """The text of the file at ``path`` as ``model``, whose fields' descriptions say what each accepts.

    Raises:
        InvalidProfile: names the first key that is wrong, what it holds and what is accepted.
    """
    data = parse_toml(path, text)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _first_error(path, data, error, model) from error


def _first_error(path: Path, data: object, error: ValidationError, model: type[BaseModel]) -> InvalidProfile:
    # An unknown key comes first: it is usually the misspelt form of the key that is then missing.
    first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    found: object = data
    table: type[BaseModel] = model
    field = None
    for part in first["loc"]:
        if isinstance(found, dict):
            found = found.get(part)
        else:
            found = found[part] if isinstance(found, list) and isinstance(part, int) and part < len(found) else None
        if part in table.model_fields:
            field = table.model_fields[str(part)]
            table = _table_in(field.annotation) or table
        elif first["type"] == "extra_forbidden" and part == first["loc"][-1]:
            field = None
    key = ".".join(str(part) for part in first["loc"])
    if field is not None:
        return InvalidProfile(path, key, found, field.description or first["msg"])
    accepted = "no such key; the keys here are " + ", ".join(table.model_fields)
    if close := difflib.get_close_matches(str(first["loc"][-1]), table.model_fields, n=1):
        accepted += f" (did you mean {close[0]}?)"
    return InvalidProfile(path, key, found, accepted)


def _table_in(annotation: object) -> type[BaseModel] | None:
    """The model of a field that holds a table, tables in a list, or tables by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((table for part in get_args(annotation) if (table := _table_in(part)) is not None), None)
