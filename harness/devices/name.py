"""Parsed TensorFlow device names, compared field by field: GPU:1 is not a part of GPU:10."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from harness.errors import InvalidDeviceName

_FIELD = re.compile(
    r"/job:(?P<job>[a-zA-Z][_a-zA-Z0-9]*|\*)"
    r"|/replica:(?P<replica>\d+|\*)"
    r"|/task:(?P<task>\d+|\*)"
    r"|/(?:device:)?(?P<kind>[A-Za-z][_A-Za-z]*):(?P<index>\d+|\*)"
)


@dataclass(frozen=True, slots=True, order=True)
class DeviceName:
    """A device name, whole or in part. An open field is ``None``. ``kind`` is upper case: ``CPU``, ``GPU``, ``TPU``."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    kind: str | None = None
    index: int | None = None

    @classmethod
    def parse(cls, text: str) -> DeviceName:
        """Parse a name or a part of one (``/CPU:1``, ``GPU:0``, ``/job:worker/task:1``, the empty string).

        Raises:
            InvalidDeviceName: ``text`` is not a device name.
        """
        return _parse(text)

    def matches(self, request: DeviceName) -> bool:
        """Whether this device satisfies ``request`` in each field that the request fixes."""
        return (
            request.job in (None, self.job)
            and request.replica in (None, self.replica)
            and request.task in (None, self.task)
            and request.kind in (None, self.kind)
            and request.index in (None, self.index)
        )

    @property
    def in_this_process(self) -> bool:
        """Whether it is a device of this process, not of a server or another host."""
        return self.job in (None, "localhost")

    @property
    def short(self) -> str:
        """The short name: ``CPU:1`` on this host, ``worker/1/CPU:0`` elsewhere."""
        device = f"{self.kind}:{self.index}" if self.kind is not None else "any"
        if self.in_this_process:
            return device
        return f"{self.job}/{self.task if self.task is not None else '*'}/{device}"

    def __str__(self) -> str:
        parts = []
        if self.job is not None:
            parts.append(f"/job:{self.job}")
        if self.replica is not None:
            parts.append(f"/replica:{self.replica}")
        if self.task is not None:
            parts.append(f"/task:{self.task}")
        if self.kind is not None:
            parts.append(f"/device:{self.kind}:{'*' if self.index is None else self.index}")
        return "".join(parts)


@lru_cache(maxsize=4096)
def _parse(text: str) -> DeviceName:
    if not isinstance(text, str):
        raise InvalidDeviceName(text)
    whole = text if text.startswith("/") or not text else f"/{text}"
    fields: dict[str, str] = {}
    position = 0
    while position < len(whole):
        match = _FIELD.match(whole, position)
        if match is None:
            raise InvalidDeviceName(text)
        found = {key: value for key, value in match.groupdict().items() if value is not None}
        if fields.keys() & found.keys():
            raise InvalidDeviceName(text)
        fields.update(found)
        position = match.end()

    def number(key: str) -> int | None:
        value = fields.get(key, "*")
        return None if value == "*" else int(value)

    job = fields.get("job", "*")
    kind = fields.get("kind")
    return DeviceName(
        job=None if job == "*" else job,
        replica=number("replica"),
        task=number("task"),
        kind=kind.upper() if kind is not None else None,
        index=number("index"),
    )
