"""The parts of a planted fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from harness.devices.device import Devices

#: A program under test: a callable over keyword arguments.
Program = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A fault planted on particular devices.

    ``parallel`` has the fault, ``twin`` is the same program without it, ``reference`` the same on one device.
    ``kinds`` are the kinds of finding, no more and no fewer, that verifying ``parallel`` gives in each of ``modes``.
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

    @property
    def options(self) -> dict[str, Any]:
        """What ``harness.verify`` takes besides the program, the reference, the inputs and the devices."""
        return {"variables": self.variables, "gradients": self.gradients, "modes": self.modes, "pattern": self.pattern}


@dataclass(frozen=True)
class Fault:
    """A kind of mistake, and how to plant it.

    ``name`` is unique; ``id`` is the class of faults (``V01`` … wrong values, ``P01`` … wrong device, ``M01`` … wrong
    use of a pattern, ``C01`` … wrong set-up). ``source`` says where it was reported. ``plant`` makes new programs each
    time, so that a variable made by a first call is made again; it needs ``devices_needed`` devices.
    """

    name: str
    id: str
    title: str
    source: str
    plant: Callable[[Devices], Case]
    devices_needed: int = 2

    def __str__(self) -> str:
        return self.name


def kinds(*names: str) -> frozenset[str]:
    """Kinds of finding."""
    return frozenset(names)
