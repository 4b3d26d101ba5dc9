"""A described machine with simulated time: a :class:`harness.hardware.machine.Machine` without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.devices.described import fault_tables as tables
from harness.devices.described.description import Description
from harness.devices.described.models import NVLINK_SHARE
from harness.devices.described.order import nvlinks_joining, nvlinks_of
from harness.hardware.machine import HOST, Job, Mismatch, Operation, PairLink, Pattern, Ran, Reading
from harness.hardware.memory_settings.setting import MemorySeen, MemorySetting
from harness.hardware.software.installed import Software
from harness.records import Card
from simulated.card_memory import CardMemory
from simulated.contents import ArrayContent, Content, DescribedBuffer, PatternContent, flip
from simulated.identity import reserved_bytes, slots, software
from simulated.models import model_of
from simulated.results import result_of, wrong_by
from simulated.thermal import CardSensors
from simulated.timing import Timing

if TYPE_CHECKING:
    import numpy.typing as npt

#: How much durations vary, as a share.
NOISE = 0.01


@dataclass(slots=True)
class _Slot:
    """A card in its slot: its memory, sensors and faults."""

    number: int
    card: Card
    faults: tuple[tables.FaultTable, ...]
    memory: CardMemory
    sensors: CardSensors


class DescribedMachine:
    """The machine of a description, with a simulated clock: each action advances it by what it would take.

    Results are computed on demand, by the operations' references in float64, and rounded to their dtype. They take no
    memory of the card; what is filled, put or moved does.
    """

    def __init__(self, description: Description, noise: float = NOISE) -> None:
        self.description = description
        model = model_of(description)
        found = slots(description)
        self._cards = tuple(card for _, card in found.cards)
        self._present = tuple(card for _, card in found.present)
        self._now_s = 0.0
        self._one_at_a_time = Lock()
        self._random = np.random.default_rng(description.seed)
        self._slots = {card.label: self._slot(number, card) for number, card in found.cards}
        self._timing = Timing(
            model,
            {label: slot.faults for label, slot in self._slots.items()},
            noise,
            self._random,
            {pair: self._nvlinks(*pair) for pair in permutations(self._slots, 2)},
        )

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards in TensorFlow's order."""
        return self._cards

    @property
    def present(self) -> tuple[Card, ...]:
        """The cards in the driver's order."""
        return self._present

    @property
    def unusable(self) -> tuple[Card, ...]:
        """No card: what reports print of them is tested elsewhere."""
        return ()

    def clock_s(self) -> float:
        """Return the simulated time, in seconds from 0."""
        return self._now_s

    def wait_s(self, seconds: float) -> None:
        """Advance the simulated time, without waiting."""
        self._now_s += seconds

    def software(self) -> Software:
        """Return what the driver, the libraries and TensorFlow report about themselves."""
        return software(self.description)

    def reading(self, card: str) -> Reading:
        """Read the sensors of a card."""
        if not self.description.cards.sensors:
            return Reading(at_s=self._now_s)
        return self._slots[card].sensors.reading(self._now_s)

    def free_bytes(self, card: str) -> int | None:
        """Return what the card reports as free, in bytes."""
        return self._slots[card].memory.free_bytes if card != HOST else None

    def used_bytes(self, card: str) -> int | None:
        """Return the memory of the card in use, in bytes."""
        return self._slots[card].memory.used_bytes if card != HOST else None

    def pair_links(self) -> dict[tuple[str, str], PairLink]:
        """Return how ordered pairs of cards are joined."""
        if not self.description.cards.sensors:
            return {}
        model = model_of(self.description)
        return {
            pair: PairLink(links, model.link_gbs / NVLINK_SHARE) if (links := self._nvlinks(*pair)) else PairLink()
            for pair in permutations(self._slots, 2)
        }

    def _nvlinks(self, one: str, other: str) -> int:
        ends = [self._slots[end].number for end in (one, other)]
        faults = [each for each in self.description.fault if isinstance(each, tables.NvlinkDown)]
        down = [sum(each.links for each in faults if each.card == end) for end in ends]
        return max(0, nvlinks_joining(self.description, *ends) - max(down))

    def holders(self) -> dict[tuple[str, int], int | None]:
        """Return that no process holds any."""
        return {}

    def memory_settings(self, trials: Sequence[tuple[str, MemorySetting]]) -> list[MemorySeen | str]:
        """Not simulated."""
        raise NotImplementedError

    def fill(self, card: str, size_bytes: int, pattern: Pattern) -> DescribedBuffer:
        """Make a buffer that holds the pattern.

        Raises:
            DeviceMemoryFull: there is not enough memory.
            ValueError: the size is not a multiple of 8.
        """
        if size_bytes % 8:
            raise ValueError(f"size_bytes={size_bytes}; accepted: a multiple of 8")
        # Cards are filled and read by a thread each.
        with self._one_at_a_time:
            buffer = self._place(card, PatternContent(pattern, size_bytes // 8))
            self._now_s += self._timing.touch_s(size_bytes)
        return buffer

    def mismatch(self, buffer: DescribedBuffer, pattern: Pattern) -> Mismatch:
        """Compare the buffer with the pattern."""
        with self._one_at_a_time:
            self._now_s += self._timing.touch_s(buffer.content.size_bytes)
        return buffer.content.mismatch(pattern)

    def put(self, array: npt.NDArray[Any], card: str) -> DescribedBuffer:
        """Put an array on the card. A writable one is copied."""
        kept = array.copy() if array.flags.writeable else array
        self._work(card, self._timing.host_copy_s(array.nbytes))
        return self._place(card, ArrayContent(array.nbytes, lambda: kept))

    def fetch(self, buffer: DescribedBuffer) -> npt.NDArray[Any]:
        """Return the buffer as an array, which the caller must not change."""
        array = buffer.content.array()
        self._work(buffer.card, self._timing.host_copy_s(array.nbytes))
        return array

    def move(self, buffer: DescribedBuffer, card: str, repeats: int = 1) -> DescribedBuffer:
        """Copy the buffer to another card."""
        return self.exchange([(buffer, card)], repeats)[0]

    def exchange(self, moves: Sequence[tuple[DescribedBuffer, str]], repeats: int = 1) -> list[DescribedBuffer]:
        """Make several copies at once: links carry both directions at the same time."""
        longest = 0.0
        made = []
        for buffer, card in moves:
            longest = max(longest, self._timing.pair_copy_s(buffer.card, card, repeats * buffer.content.size_bytes))
            made.append(self._place(card, buffer.content))
        for label in {end for buffer, card in moves for end in (buffer.card, card)}:
            self._slots[label].sensors.worked(self._now_s, self._now_s + longest)
        self._now_s += longest
        return made

    def run(
        self, operation: Operation, card: str, buffers: Sequence[DescribedBuffer], repeats: int = 1
    ) -> DescribedBuffer:
        """Run the operation on the card."""
        made: DescribedBuffer = self.at_once([Job(operation, card, tuple(buffers), repeats)])[0].result
        return made

    def at_once(self, jobs: Sequence[Job], meanwhile: Callable[[], None] | None = None) -> list[Ran]:
        """Run all jobs at once, those on one card one after the other; call ``meanwhile`` while all are running."""
        spent: dict[str, float] = {}
        made = []
        for job in jobs:
            taken_s = self._timing.run_s(job.card, job.operation, job.repeats)
            spent[job.card] = spent.get(job.card, 0.0) + taken_s
            content = self._computed(job)
            made.append(Ran(DescribedBuffer(job.card, content, None), taken_s))
        began_s, looked_s = self._now_s, self._now_s + min(spent.values(), default=0.0) / 2
        if meanwhile is not None:
            for label in spent:
                self._slots[label].sensors.worked(began_s, looked_s)
            self._now_s = looked_s
            meanwhile()
        for label, taken_s in spent.items():
            self._slots[label].sensors.worked(self._now_s, began_s + taken_s)
        self._now_s = began_s + max(spent.values(), default=0.0)
        return made

    def _slot(self, number: int, card: Card) -> _Slot:
        faults = tuple(fault for fault in self.description.fault if getattr(fault, "card", None) == number)
        model = model_of(self.description)
        kept = sum(fault.share for fault in faults if isinstance(fault, tables.StuckAllocation))
        memory = CardMemory(
            card.label,
            model.memory_bytes,
            reserved_bytes(self.description),
            int(min(1.0, kept) * model.memory_bytes),
        )
        return _Slot(
            number,
            card,
            faults,
            memory,
            CardSensors(
                replace(model, nvlinks=nvlinks_of(self.description, number)),
                frozenset(self.description.cards.without),
            ),
        )

    def _place(self, card: str, content: Content) -> DescribedBuffer:
        return DescribedBuffer(card, content, self._slots[card].memory)

    def _work(self, card: str, taken_s: float) -> None:
        self._slots[card].sensors.worked(self._now_s, self._now_s + taken_s)
        self._now_s += taken_s

    def _happens(self, probability: float) -> bool:
        return probability >= 1 or float(self._random.random()) < probability

    def _draw(self) -> int:
        return int(self._random.integers(2**62))

    def _computed(self, job: Job) -> ArrayContent:
        """Compute the result, with the faults of the card."""
        for buffer in job.buffers:
            if buffer.card != job.card:
                raise ValueError(f"a buffer of {buffer.card} was given to {job.card}; move it there first")
        contents = [buffer.content for buffer in job.buffers]
        operation = job.operation
        size = sum(content.size_bytes for content in contents)
        made = ArrayContent(size, lambda: result_of(operation, contents))
        for fault in self._slots[job.card].faults:
            if isinstance(fault, tables.BitFlip):
                # Each repetition may go wrong. The last one counts, or all of them where each gets the one before.
                times = job.repeats if operation.chained else 1
                if _elements(operation) >= fault.least_elements and self._happens(1 - (1 - fault.probability) ** times):
                    made = self._flipped(made, self._draw())
            elif isinstance(fault, tables.WrongArithmetic):
                if fault.dtype in (operation.dtype, operation.result_dtype):
                    error = fault.relative_error
                    made = made.changed_by(lambda array, error=error: wrong_by(array, error))  # type: ignore[misc]
            elif isinstance(fault, tables.WrongCard):
                made = self._flipped(made, 3)
        return made

    @staticmethod
    def _flipped(content: ArrayContent, draw: int) -> ArrayContent:
        return content.changed_by(lambda array: flip(array, draw))


def _elements(operation: Operation) -> float:
    """Return the elements of a product of two square matrices, by its work."""
    return float(((operation.flop or 0.0) / 2) ** (2 / 3))
