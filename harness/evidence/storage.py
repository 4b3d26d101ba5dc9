"""Writes and reads traces as JSON, so that a golden placement can be kept in a repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar, get_args

from harness.atomic_file import write_atomically
from harness.devices.name import DeviceName
from harness.errors import InvalidRecord, TraceNotSaved
from harness.evidence.op import Evidence, Op, Role, Transfer

_Kind = TypeVar("_Kind")

#: Version of the stored form. A reader accepts this one and all earlier ones.
TRACE_SCHEMA_VERSION = 1


def save(evidence: Evidence, path: Path) -> Path:
    """Write the ops and transfers of a trace, one a line, so that a change is easy to see in a review.

    The file is whole or not there. Raise TraceNotSaved if the folder cannot be written.
    """
    ops = [json.dumps(_op_record(op), separators=(", ", ": ")) for op in evidence.ops]
    transfers = [json.dumps(_transfer_record(transfer)) for transfer in evidence.transfers]
    text = (
        f'{{"schema_version": {TRACE_SCHEMA_VERSION},\n"ops": [\n'
        + ",\n".join(ops)
        + '\n],\n"transfers": [\n'
        + ",\n".join(transfers)
        + "\n]}\n"
    )
    try:
        write_atomically(path, text)
    except OSError as error:
        raise TraceNotSaved(path, error.strerror or str(error)) from error
    return path


def load(path: Path) -> tuple[tuple[Op, ...], tuple[Transfer, ...]]:
    """Read the ops and transfers of a trace.

    Raise InvalidRecord if there is no such file, or it is not a trace of a known version.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        version = record["schema_version"]
        if version > TRACE_SCHEMA_VERSION:
            raise InvalidRecord(
                path, f"has schema_version {version}, newer than {TRACE_SCHEMA_VERSION}: upgrade the harness"
            )
        return tuple(map(_op, record["ops"])), tuple(map(_transfer, record["transfers"]))
    except OSError as error:
        raise InvalidRecord(path, error.strerror or str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidRecord):
            raise
        raise InvalidRecord(path, f"not a saved trace ({type(error).__name__}: {error})") from error


def _op_record(op: Op) -> dict[str, Any]:
    record = {
        "name": op.name,
        "type": op.type,
        "executed_type": op.executed_type,
        "device": str(op.device) if op.device is not None else None,
        "requested": str(op.requested) if op.requested is not None else None,
        "role": op.role,
    }
    rest = {key: getattr(op, key) for key in ("forward", "unit", "branch", "dtypes", "inputs", "ports")}
    return record | {key: value for key, value in rest.items() if value}


def _op(record: dict[str, Any]) -> Op:
    role = record["role"]
    if role not in get_args(Role):
        raise ValueError(f"role = {role!r}; accepted: {', '.join(get_args(Role))}")
    return Op(
        name=_text(record, "name"),
        type=_text(record, "type"),
        executed_type=_text_or_none(record, "executed_type"),
        device=_device(record["device"]),
        requested=_device(record["requested"]),
        role=role,
        forward=_text_or_none(record, "forward"),
        dtypes=_listed(record, "dtypes", str, "strings"),
        inputs=_listed(record, "inputs", str, "strings"),
        unit=_text_or_none(record, "unit"),
        ports=_listed(record, "ports", int, "integers"),
        branch=_text_or_none(record, "branch"),
    )


def _transfer_record(transfer: Transfer) -> dict[str, Any]:
    return {
        "source": str(transfer.source),
        "destination": str(transfer.destination),
        "tensor": transfer.tensor,
        "size_bytes": transfer.size_bytes,
    }


def _transfer(record: dict[str, Any]) -> Transfer:
    size_bytes = record["size_bytes"]
    if size_bytes is not None and (not isinstance(size_bytes, int) or size_bytes < 0):
        raise ValueError(f"size_bytes = {size_bytes!r}; accepted: a number of bytes, or null")
    return Transfer(
        DeviceName.parse(record["source"]),
        DeviceName.parse(record["destination"]),
        _text(record, "tensor"),
        size_bytes,
    )


def _device(text: str | None) -> DeviceName | None:
    return None if text is None else DeviceName.parse(text)


def _text(record: dict[str, Any], key: str) -> str:
    value = record[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} = {value!r}; accepted: a string")
    return value


def _text_or_none(record: dict[str, Any], key: str) -> str | None:
    return None if record.get(key) is None else _text(record, key)


def _listed(record: dict[str, Any], key: str, kind: type[_Kind], what: str) -> tuple[_Kind, ...]:
    values = record.get(key, ())
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, kind) for value in values):
        raise TypeError(f"{key} = {values!r}; accepted: a list of {what}")
    return tuple(values)
