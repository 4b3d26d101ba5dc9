"""The form of a profile file, as Pydantic models. Loaded only when a profile is read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.devices.toml_file import parse_toml
from harness.errors import InvalidProfile

#: The version of the form that is written down here. Earlier ones stay readable.
SCHEMA_VERSION = 1


class _Table(BaseModel):
    # Strict: a quoted number or a number for a switch is an error, not something to guess about.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MemoryTable(_Table):
    """``[memory]``: for real GPUs. Each field's description says what is accepted."""

    growth: bool | None = Field(default=None, description="true or false")
    limit_mib: int | None = Field(default=None, ge=1, description="an integer of 1 or more, in MiB")


class ThreadsTable(_Table):
    """``[threads]``: sizes of TensorFlow's thread pools."""

    intra_op: int | None = Field(default=None, ge=0, description="an integer of 0 (TensorFlow chooses) or more")
    inter_op: int | None = Field(default=None, ge=0, description="an integer of 0 (TensorFlow chooses) or more")


class ProfileDocument(_Table):
    """A whole profile file."""

    # Not a Literal: that would take true for 1.
    schema_version: int = Field(ge=1, le=SCHEMA_VERSION, description=str(SCHEMA_VERSION))
    description: str = Field(default="", description="a text")
    spec: str = Field(description="a text: 'auto', 'cpu:N', 'gpu', 'gpu:N', 'gpu:NxM' or 'cores:N'")
    memory: MemoryTable = Field(default_factory=MemoryTable, description="a table: growth or limit_mib")
    threads: ThreadsTable = Field(default_factory=ThreadsTable, description="a table: intra_op, inter_op")
    determinism: bool = Field(default=False, description="true or false")
    tf32: bool | None = Field(default=None, description="true or false")
    soft_placement: bool = Field(default=False, description="true or false")


def read_document(path: Path, text: str) -> ProfileDocument:
    """Parse and validate the text of a profile.

    Raises:
        InvalidProfile: names ``path``, the first key that is wrong, what it holds and what is accepted.
    """
    data = parse_toml(path, text)
    try:
        return ProfileDocument.model_validate(data)
    except ValidationError as error:
        raise _first_error(path, data, error) from error


def _first_error(path: Path, data: Mapping[str, Any], error: ValidationError) -> InvalidProfile:
    # An unknown key comes first: it is usually the misspelt form of the key that is then missing.
    errors = sorted(error.errors(include_url=False), key=lambda entry: entry["type"] != "extra_forbidden")
    location = [str(part) for part in errors[0]["loc"]]
    tables, key = location[:-1], location[-1]
    model: type[BaseModel] = MemoryTable if tables == ["memory"] else ThreadsTable if tables else ProfileDocument
    found: Any = data
    for part in location:
        found = found.get(part) if isinstance(found, dict) else None
    field = model.model_fields.get(key)
    if field is None:
        accepted = "no such key; the keys here are " + ", ".join(model.model_fields)
        if close := difflib.get_close_matches(key, model.model_fields, n=1):
            accepted += f" (did you mean {close[0]}?)"
    else:
        accepted = field.description or "another value"
    return InvalidProfile(path, ".".join(location), found, accepted)
