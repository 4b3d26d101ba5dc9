"""A set of checks, and how to configure the devices that they run on."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.checking.check import Check, Hardware, Level
from harness.devices.device import Devices
from harness.devices.fingerprint import fingerprint as read_fingerprint
from harness.devices.runtime import configure as configure_devices
from harness.errors import UnknownCheck
from harness.records import Card, CheckResult, Fingerprint


class Watch(Protocol):
    """Reads what the cards count besides, and adds what came during a check to its result."""

    def cards_are(self, cards: Sequence[Card]) -> None:
        """Name the cards as the checks do."""

    def judged(self, result: CheckResult) -> CheckResult:
        """Return the result with what came meanwhile."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Checks, in the order in which they run, and how a process gets its devices from a spec and describes itself."""

    checks: tuple[Check, ...]
    configure: Callable[[str], Devices] = configure_devices
    fingerprint: Callable[[Devices], Fingerprint] = read_fingerprint
    #: The hardware under configured devices; ``None`` for a suite that has no hardware checks.
    machine: Callable[[Devices], Hardware] | None = None
    #: What looks at the cards of a described machine after each check: nothing outside of the process can.
    watch: Callable[[], Watch] | None = None

    def __post_init__(self) -> None:
        if twice := sorted({check_id for check_id in self.ids if self.ids.count(check_id) > 1}):
            raise ValueError(f"duplicate check ids: {', '.join(twice)}")

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the checks, in order."""
        return tuple(check.id for check in self.checks)

    def select(self, only: Iterable[str] = (), level: Level = Level.QUICK) -> tuple[Check, ...]:
        """Return the checks named in ``only``, in the suite's order; if it is empty, all of ``level``.

        Raise UnknownCheck if a name is not the id of a check.
        """
        wanted = tuple(only)
        for check_id in wanted:
            if check_id not in self.ids:
                raise UnknownCheck(check_id, self.ids)
        return tuple(check for check in self.checks if (check.id in wanted if wanted else level.includes(check.level)))


def load_suite(reference: str) -> Suite:
    """Return the suite that ``reference``, written ``module:attribute``, names."""
    module, _, attribute = reference.partition(":")
    suite = getattr(importlib.import_module(module), attribute)
    if not isinstance(suite, Suite):
        raise TypeError(f"{reference} is of type {type(suite).__name__}; accepted: a {Suite.__module__}.Suite")
    return suite
