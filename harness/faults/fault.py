"""The parts of a planted fault."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from harness.devices.device import Devices
from harness.judgement.verification import Verification
from harness.judgement.verify import verify

#: The group of a fault by the first letter of its name.
GROUPS = {
    "V": "values",
    "G": "gradients",
    "P": "placement",
    "S": "state",
    "R": "randomness",
    "M": "patterns",
    "C": "set-up",
    "T": "trainings",
}

#: A program under test: a callable over keyword arguments.
Program = Callable[..., Any]


class Planted(ABC):
    """A fault planted on particular devices, beside the same done right.

    ``kinds`` are the kinds of finding that the fault gives in each of ``modes``, and ``also`` those that may follow,
    as where a graph leaves out the work whose result is lost.
    """

    kinds: frozenset[str]
    also: frozenset[str]
    modes: tuple[str, ...]

    @abstractmethod
    def judge(self, devices: Devices, *, faulty: bool) -> Verification:
        """Judge the program with the fault, or its clean twin."""


@dataclass(frozen=True)
class Case(Planted):
    """A program for ``harness.verify``.

    ``parallel`` has the fault, ``twin`` is the same program without it, ``reference`` the same on one device.
    ``surroundings`` makes the context to run the programs in, such as soft placement. ``variables``, ``gradients`` and
    ``pattern`` are as ``harness.verify`` takes them. ``meant`` are the devices that the programs should use, if not all
    that the fault was planted on.
    """

    parallel: Program
    twin: Program
    reference: Program
    inputs: Mapping[str, Any]
    kinds: frozenset[str]
    variables: Sequence[Any] = ()
    gradients: bool = False
    modes: tuple[str, ...] = ("eager", "graph")
    pattern: str | None = None
    surroundings: Callable[[], AbstractContextManager[None]] = nullcontext
    meant: Devices | None = None
    also: frozenset[str] = frozenset()

    @property
    def options(self) -> dict[str, Any]:
        """What ``harness.verify`` takes besides the program, the reference, the inputs and the devices."""
        return {"variables": self.variables, "gradients": self.gradients, "modes": self.modes, "pattern": self.pattern}

    def judge(self, devices: Devices, *, faulty: bool, **options: Any) -> Verification:
        """Verify the program with the fault, or its clean twin. ``options`` take the place of the case's own."""
        program = self.parallel if faulty else self.twin
        with self.surroundings():
            return verify(
                program, self.reference, self.inputs, devices=self.meant or devices, **{**self.options, **options}
            )


PlantedT = TypeVar("PlantedT", bound=Planted, covariant=True)


@dataclass(frozen=True)
class Fault(Generic[PlantedT]):
    """A kind of mistake, and how to plant it.

    ``name`` is unique and begins with the class of faults, whose first letter is the group in :data:`GROUPS`.
    ``source`` says where it was reported. ``plant`` makes new programs each time, so that a variable made by a first
    call is made again; it needs ``devices_needed`` devices. ``cause`` is a regular expression that the first line of
    the verification must match, where ``<n>`` is the number of devices. ``rule`` is the code of the rule that names it,
    where it changes results. One that ``needs_xla`` is compiled by it.
    """

    name: str
    title: str
    source: str
    plant: Callable[[Devices], PlantedT]
    cause: str
    devices_needed: int = 2
    needs_xla: bool = False
    rule: str = ""

    @property
    def id(self) -> str:
        """The class of faults, such as ``V01``."""
        return self.name.partition("-")[0]

    @property
    def group(self) -> str:
        """What is at fault: values, gradients, …"""
        return GROUPS[self.name[0]]

    def unsuited(self, devices: Devices) -> str:
        """Why this fault cannot be planted on these devices, or nothing."""
        if self.needs_xla and any(device.kind == "software-gpu" for device in devices):
            return "XLA has no compiler for software GPUs"
        return ""

    def names_cause(self, line: str, count: int) -> bool:
        """Whether the first line of a verification on ``count`` devices names the cause."""
        named, *_ = line.partition("Ruled out:")
        return re.search(self.cause.replace("<n>", str(count)), named, re.IGNORECASE) is not None

    def __str__(self) -> str:
        return self.name


def kinds(*names: str) -> frozenset[str]:
    """Kinds of finding."""
    return frozenset(names)
