"""What the hardware checks work on: a :class:`Machine`, which is real or, for the self-test, described in a file.

A check is written once, against this interface. Everything is synchronous: when a call returns, the work is done, and
``clock_s`` says how long it took, in real seconds here and in simulated ones on a described machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy.typing as npt

    from harness.hardware.memory_settings.setting import MemorySeen, MemorySetting
    from harness.hardware.operation import Operation
    from harness.hardware.software.installed import Software
    from harness.hardware.telemetry import Reading
    from harness.records import Card


class DeviceMemoryFull(Exception):
    """A buffer could not be made: the card (or the host) has no room for ``size_bytes``."""

    def __init__(self, device: str, size_bytes: int) -> None:
        self.device = device
        self.size_bytes = size_bytes
        super().__init__(f"{device} could not allocate {size_bytes} bytes")


#: Something that lies on a card; only the machine that made it can look into it.
Buffer = Any


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a buffer is filled with: its 64-bit word ``i`` is ``first + i * step`` modulo 2**64.

    It can be made anew wherever it is compared, so that what is compared with has not gone the way that is tested.
    """

    first: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How a buffer differs from its pattern: ``count`` 64-bit words, the index of the first, and what is there."""

    count: int
    first_word: int | None = None
    found: int | None = None


class Machine(Protocol):
    """The cards of a machine and what can be done on them.

    A card is named by its label (``records.Card.label``, such as ``GPU:1``); ``HOST`` is the memory of the host.
    """

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards that are to be checked, in TensorFlow's order."""

    @property
    def present(self) -> tuple[Card, ...]:
        """The cards that the driver knows, in the driver's order; those of ``cards`` where there is no driver."""

    @property
    def described(self) -> bool:
        """Whether this machine is a description for the self-test and not hardware."""

    def clock_s(self) -> float:
        """A clock that only goes forward, in seconds."""

    def wait_s(self, seconds: float) -> None:
        """Let time pass."""

    def software(self) -> Software:
        """What the driver, the libraries and TensorFlow say of themselves."""

    def reading(self, card: str) -> Reading:
        """What the card's sensors say now."""

    def free_bytes(self, card: str) -> int | None:
        """Memory of the card that a buffer could have, in bytes; ``None`` where nobody can tell."""

    def used_bytes(self, card: str) -> int | None:
        """Memory of the card (of this process, for the host) that is in use, in bytes."""

    def memory_settings(self, trials: Sequence[tuple[str, MemorySetting]]) -> list[MemorySeen | str]:
        """What a process of its own could have of a card with each setting, all at once; a text says why none is known.

        A GPU is given to its process by its UUID, so that one without cannot be tried.
        """

    def fill(self, card: str, size_bytes: int, pattern: Pattern) -> Buffer:
        """A buffer on the card that holds ``pattern``, written by ops there. ``size_bytes`` is a multiple of 8.

        Raises:
            DeviceMemoryFull: there is no room.
        """

    def mismatch(self, buffer: Buffer, pattern: Pattern) -> Mismatch:
        """Where the buffer is not ``pattern``, found by ops on its own card, which make the pattern anew."""

    def put(self, array: npt.NDArray[Any], card: str) -> Buffer:
        """``array`` of the host's memory on the card."""

    def fetch(self, buffer: Buffer) -> npt.NDArray[Any]:
        """The buffer as an array of the host."""

    def move(self, buffer: Buffer, card: str, repeats: int = 1) -> Buffer:
        """The buffer, copied to another card ``repeats`` times, one copy after the other; the last of them."""

    def exchange(self, moves: Sequence[tuple[Buffer, str]], repeats: int = 1) -> list[Buffer]:
        """Several copies to cards, all at once, each made ``repeats`` times."""

    def run(self, operation: Operation, card: str, buffers: Sequence[Buffer], repeats: int = 1) -> Buffer:
        """Run the operation ``repeats`` times on buffers of the card, one after the other, and give the last result."""

    def collective(self, kind: str, algorithm: str, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """What each card has after a collective over all cards, each giving its array.

        ``kind`` is ``all-reduce``, ``all-gather``, ``reduce-scatter`` or ``broadcast``; ``algorithm`` one of
        :meth:`algorithms`.
        """

    def algorithms(self) -> tuple[str, ...]:
        """What collectives can use here, of ``nccl``, ``ring``, ``hierarchical-copy`` and ``reduce-to-one``."""


#: The memory of the host, where a card is asked for.
HOST = "host"
