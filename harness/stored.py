"""Reads stored records: JSON, of this version of the harness or an earlier one, validated by Pydantic."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any, TypeVar

Record = TypeVar("Record")
#: No record has larger integers: 64 bits hold them.
LARGEST = 2**63 - 1


def read_json(path: Path) -> Any:
    """Read a JSON file. Raise ValueError if it cannot be read; the message says why."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error


def parse_versioned(content: Any, kind: type[Record], newest: int) -> Record:
    """Make a record of the dataclass ``kind`` from the content of a file, of the version ``newest`` or earlier.

    Raise ValueError if it is no such record; the message says why.
    """
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError("has no schema_version")
    if version > newest:
        raise ValueError(f"has schema_version {version}, newer than {newest}: upgrade the harness")
    return validated(content, kind)


def validated(content: Any, kind: type[Record]) -> Record:
    """Make a record of the dataclass ``kind``. Raise ValueError, with the first field that is wrong."""
    from pydantic import ValidationError

    refuse_odd_numbers(content)
    try:
        made: Record = _adapter(kind).validate_python(content)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ValueError(f"{where}: {first['msg']}") from error
    return made


@functools.cache
def _adapter(kind: Any) -> Any:
    """Return what validates records of a kind. Making it takes longer than reading a record with it."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def refuse_odd_numbers(content: Any) -> None:
    """Raise ValueError for a number that is not finite, or an integer of more than 64 bits: no record has such."""
    left = [("the file", content)]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += [(str(key), each) for key, each in value.items()]
        elif isinstance(value, list):
            left += [(name, each) for each in value]
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name}: {value} is not a finite number")
        elif isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError(f"{name}: an integer of {value.bit_length():,} bits is too large")
