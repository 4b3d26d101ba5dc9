"""What a planted fault is."""

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

    ``parallel`` has the fault, ``twin`` is the same program done right, ``reference`` the same on one device.
    ``kinds`` are the kinds of finding that verifying ``parallel`` gives, all of them and no others, in each of
    ``modes``. ``surroundings`` makes the context in which the programs are to be run, such as soft placement switched
    on; it puts back what it changes. ``reference`` and ``inputs`` belong to both programs, and so do ``variables`` and
    ``gradients``, as ``harness.verify`` takes them. ``meant`` are the devices that the programs are meant to use, where
    those are not all that the fault was planted on.
    """

    parallel: Program
    twin: Program
    reference: Program
    inputs: Mapping[str, Any]
    kinds: frozenset[str]
    variables: Sequence[Any] = ()
    gradients: bool = False
    modes: tuple[str, ...] = ("eager", "graph")
    #: As ``harness.verify`` takes it.
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

    ``name`` is unique; ``id`` is that of the class of faults (``V01`` … wrong numbers, ``P01`` … wrong place,
    ``M01`` … wrong use of a pattern, ``C01`` … wrong set-up), which several share. ``source`` says where people met it.
    ``plant`` makes the programs anew each time, so that a variable made by a first call is made again; it needs
    ``devices_needed`` devices.
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
