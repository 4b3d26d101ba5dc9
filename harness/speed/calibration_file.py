"""Stores calibrations in ``<folder of baselines>/<key of the machine>/calibration.json``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from harness.atomic_file import write_atomically
from harness.errors import InvalidCalibration
from harness.records import Fingerprint
from harness.speed.calibration import CALIBRATION_SCHEMA_VERSION, Calibration
from harness.speed.comparable import machine_key

#: The folder of baselines and calibrations of a project, relative to where it is run.
DEFAULT_FOLDER = Path("profiles/benchmarks")
CALIBRATION_FILE = "calibration.json"


def save_calibration(calibration: Calibration, folder: Path) -> Path:
    """Write it below ``folder``, and return the path.

    Raises:
        InvalidCalibration: the folder cannot be written.
    """
    path = folder / calibration.key / CALIBRATION_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(calibration), indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise InvalidCalibration(path, f"cannot be written: {error.strerror or error}") from error
    return path


def load_calibration(folder: Path, fingerprint: Fingerprint | None) -> Calibration | None:
    """Load the calibration of the machine with this fingerprint from ``folder``, or ``None`` without one.

    Raises:
        InvalidCalibration: it is damaged, newer, or of another machine.
    """
    if fingerprint is None:
        return None
    key = machine_key(fingerprint)
    path = folder / key / CALIBRATION_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidCalibration(path, f"cannot be read: {error}") from error
    calibration = _parse(text, path)
    if calibration.key != key:
        raise InvalidCalibration(path, f"was made on another machine ({calibration.key})")
    return calibration


def _parse(text: str, path: Path) -> Calibration:
    from pydantic import TypeAdapter, ValidationError

    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidCalibration(path, f"is damaged: not JSON: {error}") from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidCalibration(path, "is damaged: it has no schema_version")
    if version > CALIBRATION_SCHEMA_VERSION:
        raise InvalidCalibration(
            path, f"has schema_version {version}, newer than {CALIBRATION_SCHEMA_VERSION}: upgrade the harness"
        )
    try:
        return TypeAdapter(Calibration).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidCalibration(path, f"is damaged: {where}: {first['msg']}") from error
