"""Reads a TOML file into a Pydantic model. An error is one line that names the file and the key."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import InvalidProfile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Model = TypeVar("Model", bound=BaseModel)


class Table(BaseModel):
    """Base of the tables: unknown keys are refused, and a quoted number, or a number for a switch, is none."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def parse_toml(path: Path | str, text: str, refuse: type[InvalidProfile] = InvalidProfile) -> dict[str, Any]:
    """Parse a TOML document. Raise ``refuse``, by default InvalidProfile, if it is not TOML."""
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse(path, "", f"TOML syntax: {error}", "a TOML document") from error
    except RecursionError as error:
        raise refuse(path, "", "TOML syntax: nested too deeply", "a TOML document") from error
    except ValueError as error:  # Python's limit on the digits of an integer
        raise refuse(path, "", "TOML syntax: an integer has too many digits", "a TOML document") from error
    return content


def read_text(path: Path, refuse: type[InvalidProfile] = InvalidProfile) -> str:
    """Read the text of a TOML file. Raise ``refuse``, by default InvalidProfile, if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise refuse(path, "", reason, "a readable TOML file") from error


def parse_model(
    path: Path | str, text: str, model: type[Model], refuse: type[InvalidProfile] = InvalidProfile
) -> Model:
    """Parse the text of the file at ``path`` as ``model``, whose field descriptions say what is accepted.

    Raise ``refuse`` with the first wrong key, its value and what is accepted.
    """
    data = parse_toml(path, text, refuse)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise refuse(path, *_first_error(data, error, model)) from error


def _first_error(data: object, error: ValidationError, model: type[BaseModel]) -> tuple[str, object, str]:
    """Find the first wrong key, its value, and what is accepted."""
    # An unknown key comes first: it is usually the misspelling of a missing key.
    first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    found: object = data
    tables: list[type[BaseModel]] = [model]
    field, key = None, ""
    for part in first["loc"]:
        variant = next((table for table in tables if len(tables) > 1 and part in _tags(table)), None)
        if variant is not None:
            # Pydantic's name of a union's member; the file has no such key.
            tables = [variant]
            continue
        found = _within(found, part)
        key = f"{key}[{part}]" if isinstance(part, int) else f"{key}.{part}".lstrip(".")
        owner = next((table for table in tables if part in table.model_fields), None)
        if owner is not None:
            field = owner.model_fields[str(part)]
            tables = _tables_in(field.annotation) or tables
        elif first["type"] == "extra_forbidden" and part == first["loc"][-1]:
            field = None
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = str(first["ctx"]["discriminator"]).strip("'")
        tags = [each for table in tables for each in _tags(table)]
        found = _within(found, tag) if isinstance(found, dict) else found
        return f"{key}.{tag}", found, ", ".join(tags) + did_you_mean(found, tags)
    if field is not None:
        accepted = field.description or first["msg"]
        if first["type"] == "finite_number":
            accepted = accepted.replace("a number", "a finite number", 1)
        return key, found, accepted
    keys = list(tables[0].model_fields)
    return key, found, "only the keys " + ", ".join(keys) + did_you_mean(first["loc"][-1], keys)


def _within(found: object, part: int | str) -> object:
    if isinstance(found, dict):
        return found.get(part)
    return found[part] if isinstance(found, list) and isinstance(part, int) and part < len(found) else None


def did_you_mean(found: object, known: Iterable[str]) -> str:
    """Return a hint in brackets if one of ``known`` is close to what was found."""
    close = difflib.get_close_matches(str(found), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _tables_in(annotation: object) -> list[type[BaseModel]]:
    """List the models of a field that holds tables, directly or in a list, dict or union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for part in get_args(annotation) for table in _tables_in(part)]


def _tags(table: type[BaseModel]) -> list[str]:
    """List the tags of a table in a union: the values of its fields with a single value."""
    kinds = [field.annotation for field in table.model_fields.values() if get_origin(field.annotation) is Literal]
    return [str(values[0]) for kind in kinds if len(values := get_args(kind)) == 1]
