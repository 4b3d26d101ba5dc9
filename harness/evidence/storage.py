"""Writes and reads traces as JSON, so that a golden placement can be kept in a repository."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from harness.devices.name import DeviceName
from harness.errors import HarnessError, InvalidRecord
from harness.evidence.op import Op, Transfer
from harness.evidence.trace import Trace

#: Version of the stored form. A reader accepts this one and all earlier ones.
TRACE_SCHEMA_VERSION = 1


def save(trace: Trace, path: Path) -> Path:
    """Write a trace; the file is whole or not there. One op a line, so that a change is easy to see in a review."""
    ops = [json.dumps(_op_record(op), separators=(", ", ": ")) for op in trace.ops]
    transfers = [json.dumps(_transfer_record(transfer)) for transfer in trace.transfers]
    text = (
        f'{{"schema_version": {TRACE_SCHEMA_VERSION},\n"ops": [\n' + ",\n".join(ops) + '\n],\n"transfers": [\n'
        + ",\n".join(transfers) + "\n]}\n"
    )
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise HarnessError(f"trace cannot be saved to {path}: {error.strerror}; give a folder that can be written") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).replace(path)
    return path


def load(path: Path) -> Trace:
    """Read a trace.

    Raises:
        InvalidRecord: there is no such file, or it is not a saved trace of a version that this harness knows.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        version = record["schema_version"]
        if version > TRACE_SCHEMA_VERSION:
            raise InvalidRecord(path, f"schema_version = {version}, newer than {TRACE_SCHEMA_VERSION}")
        return Trace(tuple(map(_op, record["ops"])), tuple(map(_transfer, record["transfers"])))
    except OSError as error:
        raise InvalidRecord(path, error.strerror or str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRecord(path, f"not a saved trace ({type(error).__name__}: {error})") from error


def _op_record(op: Op) -> dict[str, Any]:
    record: dict[str, Any] = {
        "name": op.name,
        "type": op.type,
        "executed_type": op.executed_type,
        "device": str(op.device) if op.device is not None else None,
        "requested": str(op.requested) if op.requested is not None else None,
        "role": op.role,
    }
    for key in ("forward", "unit"):
        if getattr(op, key) is not None:
            record[key] = getattr(op, key)
    for key in ("dtypes", "inputs"):
        if getattr(op, key):
            record[key] = list(getattr(op, key))
    return record


def _op(record: dict[str, Any]) -> Op:
    return Op(
        name=record["name"],
        type=record["type"],
        executed_type=record["executed_type"],
        device=_device(record["device"]),
        requested=_device(record["requested"]),
        role=record["role"],
        forward=record.get("forward"),
        dtypes=tuple(record.get("dtypes", ())),
        inputs=tuple(record.get("inputs", ())),
        unit=record.get("unit"),
    )


def _transfer_record(transfer: Transfer) -> dict[str, Any]:
    return {
        "source": str(transfer.source),
        "destination": str(transfer.destination),
        "tensor": transfer.tensor,
        "size_bytes": transfer.size_bytes,
    }


def _transfer(record: dict[str, Any]) -> Transfer:
    return Transfer(
        DeviceName.parse(record["source"]),
        DeviceName.parse(record["destination"]),
        record["tensor"],
        record["size_bytes"],
    )


def _device(text: str | None) -> DeviceName | None:
    return None if text is None else DeviceName.parse(text)
