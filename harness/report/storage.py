"""Keeps a run as ``run.json``: written atomically, validated when read, in a versioned form."""

from __future__ import annotations

import json
import math
from pathlib import Path

from harness.atomic_file import write_atomically
from harness.errors import InvalidRecord, ReportError
from harness.records import RUN_SCHEMA_VERSION, RunRecord
from harness.runner.messages import plain
from harness.stored import Record, parse_versioned, read_json

#: Name of the record in the report folder.
RUN_FILE = "run.json"


def save_run(record: RunRecord, folder: Path) -> Path:
    """Write ``record`` to ``folder/run.json``, as :func:`save_json` does."""
    return save_json(record, folder, RUN_FILE)


def load_run(path: str | Path) -> RunRecord:
    """Read a ``run.json``, as ``harness validate`` and ``pytest --harness-report`` write it. Notebooks show its checks.

    Args:
        path: the file, or the folder of the report.

    Raises:
        InvalidRecord: there is no such file, or it is not a record of this version or an earlier one.

    Examples:
        >>> run = harness.load_run("report")
        >>> print(run.verdict)
        PASS
    """
    path = Path(path)
    file = path / RUN_FILE if path.is_dir() else path
    record = load_versioned(file, RunRecord, RUN_SCHEMA_VERSION)
    # Figures may be infinite, as a text; times cannot.
    if not all(map(math.isfinite, (record.elapsed_s, *(each.elapsed_s for each in record.results)))):
        raise InvalidRecord(file, "elapsed_s is not a finite number")
    return record


def save_json(record: object, folder: Path, name: str) -> Path:
    """Write a record to ``folder/name``, and return that path. Raise ReportError if the folder cannot be written."""
    return save_text(json_text(record) + "\n", folder, name)


def save_text(text: str, folder: Path, name: str) -> Path:
    """Write a text to ``folder/name``, and return that path. Raise ReportError if the folder cannot be written."""
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

    Raise InvalidRecord if there is no such file, or it is not such a record.
    """
    try:
        return parse_versioned(read_json(file), kind, newest)
    except ValueError as error:
        raise InvalidRecord(file, str(error)) from error
