"""What each kind of device spec provides: its forms, its grammar, and its plan for a request."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from harness.devices.inventory import Inventory, read_inventory
from harness.devices.plan import Options, Plan

#: More devices than this in one process is a typing mistake: TensorFlow makes an allocator and kernels for each.
MAX_COUNT = 1024


class Form(NamedTuple):
    """A way to write a spec, such as ``gpu:NxM``, and what it means."""

    written: str
    meaning: str


class DeviceSpec(ABC):
    """A parsed spec that names devices itself. ``str()`` gives back how it is written."""

    __slots__ = ()

    FORMS: ClassVar[tuple[Form, ...]]
    #: Patterns of texts that are close to this kind and not valid, each with a hint how to complete them.
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = ()
    #: Whether a profile may name this kind.
    IN_PROFILE: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> DeviceSpec | None:
        """Parse ``text``; ``None`` where it is of another kind.

        Raises:
            ValueError: ``text`` is of this kind and not valid. The message says why.
        """

    def inventory(self, tensorflow: Any) -> Inventory:
        """Look at what is available. TensorFlow's runtime is not started."""
        return read_inventory(tensorflow)

    @abstractmethod
    def plan(self, request: Request, inventory: Inventory) -> Plan:
        """Decide which devices to configure. Raise DevicesUnavailable if fewer devices are available than requested."""

    def within(self, folder: Path) -> DeviceSpec:  # noqa: ARG002 - most specs name no file
        """The same spec with its relative paths taken from ``folder``."""
        return self


@dataclass(frozen=True, slots=True)
class Request:
    """The devices that are requested. Two requests are equal whatever their ``text``, which is how it was written."""

    spec: DeviceSpec
    options: Options = field(default_factory=Options)
    text: str = field(default="", compare=False)

    def plan(self, inventory: Inventory) -> Plan:
        """Decide which devices to configure. Raise DevicesUnavailable if fewer devices are available than requested."""
        return self.spec.plan(self, inventory)

    def __str__(self) -> str:
        spec = str(self.spec)
        return spec if self.text in ("", spec) else f"{self.text} ({spec})"


def counted(pattern: re.Pattern[str], text: str) -> int | None:
    """Read the device count in the first group of ``pattern``; ``None`` where ``text`` does not match.

    Raise ValueError if the count is 0, or above :data:`MAX_COUNT`.
    """
    match = pattern.fullmatch(text)
    if match is None:
        return None
    count = int(match[1])
    if count < 1:
        raise ValueError("at least 1 device is needed")
    if count > MAX_COUNT:
        raise ValueError(f"at most {MAX_COUNT} devices are supported")
    return count
