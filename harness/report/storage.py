"""Keeps a run as ``run.json``: written atomically, validated when read, in a versioned form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from harness.atomic_file import write_atomically
from harness.errors import InvalidRecord, ReportError
from harness.records import RUN_SCHEMA_VERSION, RunRecord
from harness.runner.messages import plain

#: Name of the record in the report folder.
RUN_FILE = "run.json"

Record = TypeVar("Record")


def save_run(record: RunRecord, folder: Path) -> Path:
    """Write ``record`` to ``folder/run.json``, and return that path.

    Raises:
        ReportError: the folder cannot be written.
    """
    return save_json(record, folder, RUN_FILE)


def load_run(path: Path) -> RunRecord:
    """Read the record at ``path``, which may be the report folder.

    Raises:
        InvalidRecord: there is no such file, or it is not a record of this version or an earlier one.
    """
    return load_versioned(path / RUN_FILE if path.is_dir() else path, RunRecord, RUN_SCHEMA_VERSION)


def save_json(record: object, folder: Path, name: str) -> Path:
    """Write a record to ``folder/name``, and return that path.

    Raises:
        ReportError: the folder cannot be written.
    """
    return save_text(json_text(record) + "\n", folder, name)


def save_text(text: str, folder: Path, name: str) -> Path:
    """Write a text to ``folder/name``, and return that path.

    Raises:
        ReportError: the folder cannot be written.
    """
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise ReportError(folder, error.strerror or str(error)) from error
    return path


def json_text(record: object) -> str:
    """Write a record as JSON."""
    return json.dumps(plain(record), indent=2, allow_nan=False, ensure_ascii=False)


def load_versioned(file: Path, kind: type[Record], newest: int) -> Record:
    """Read a record of the dataclass ``kind`` that :func:`save_json` wrote, of the version ``newest`` or earlier.

    Raises:
        InvalidRecord: there is no such file, or it is not such a record.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRecord(file, error.strerror or str(error)) from error
    except ValueError as error:
        raise InvalidRecord(file, f"is not JSON: {error}") from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidRecord(file, "has no schema_version")
    if version > newest:
        raise InvalidRecord(file, f"has schema_version {version}, newer than {newest}: upgrade the harness")
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise InvalidRecord(file, f"{where}: {first['msg']}") from error
