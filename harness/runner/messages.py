"""Messages of a worker process to its parent: one JSON line each, over a pipe of their own.

TensorFlow and the user's code write to stdout and stderr, so neither can be a channel.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, get_args

from harness.records import Card, CheckResult, Fingerprint


@dataclass(frozen=True, slots=True)
class Ready:
    """The devices are configured. ``devices`` are full names; ``reason`` says what was selected and why.

    ``cards`` are those of the machine; ``described`` says whether it is a description instead of hardware.
    """

    devices: tuple[str, ...]
    reason: str
    fingerprint: Fingerprint
    cards: tuple[Card, ...] = ()
    described: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """A check begins."""

    check: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A check ended, or was ended. A process that is ``spent`` cannot run another one."""

    result: CheckResult
    spent: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a task that is not a list of checks: a JSON object."""

    value: dict[str, object]


@dataclass(frozen=True, slots=True)
class Refused:
    """The request cannot be carried out. ``details`` is for people, below the message: the user's own frames."""

    error: str
    message: str
    details: str = ""


class Refusal(Exception):
    """Ends a task and sends ``refused`` to its parent."""

    def __init__(self, refused: Refused) -> None:
        self.refused = refused
        super().__init__(refused.message)


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more will come."""


Message: TypeAlias = Ready | Started | Finished | Answer | Refused | Done

_TYPES: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}


def plain(value: object) -> object:
    """Convert ``value``, a record or a nest of them, for JSON. NaN and infinities become texts: JSON has none."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def encode(message: Message) -> bytes:
    """Write ``message`` as one line."""
    body = {"message": type(message).__name__, "body": plain(message)}
    return json.dumps(body, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Read the message that ``line`` holds. Raise ValueError if the line is not a message."""
    from pydantic import TypeAdapter

    parsed = json.loads(line)
    if not isinstance(parsed, dict) or parsed.get("message") not in _TYPES:
        raise ValueError(f"not a message: {line[:80]!r}")
    message: Message = TypeAdapter(_TYPES[parsed["message"]]).validate_python(parsed.get("body"))
    return message
