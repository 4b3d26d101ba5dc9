"""Fills the memory of cards with patterns, and repeats a step to see whether it leaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from harness.checking.check import Level
from harness.hardware.known_answers import known_answers
from harness.hardware.machine import HOST, Buffer, DeviceMemoryFull, Machine, Mismatch, Pattern
from harness.hardware.memory.judge import LEAST_SHARE
from harness.hardware.patterns import STEP
from harness.records import Card

_T = TypeVar("_T")
_MODULUS = 2**64
#: Share of a GPU's free memory that is filled: a little above what must be tested, as comparing needs memory too.
_WANTED = 0.91
#: Buffers of a GPU: large enough to be fast, small enough that gaps of the allocator do not matter.
_CHUNK_BYTES, _SMALLEST_BYTES = 2**30, 2**19
#: Buffers that a card gives back on which not enough could be allocated: comparing needs their memory.
_SPARE = 4
#: The host's memory is shared with everything else: what all CPU devices together test of it, and for how long.
_HOST_BYTES = {Level.QUICK: 256 * 2**20, Level.STANDARD: 2**30, Level.DEEP: 2**32}
_HOST_SHARE = 0.25
_HOST_LIMIT_S = {Level.QUICK: 2.2, Level.STANDARD: 10.0, Level.DEEP: 60.0}
_HOST_CHUNK_BYTES = 16 * 2**20
#: Samples of the memory in use during the repeated step.
_SAMPLES = 20


def patterns(offset_words: int) -> list[tuple[str, Pattern]]:
    """Return the patterns of a buffer that begins at that word: constants, addresses and their complement."""
    first = offset_words * STEP % _MODULUS
    return [
        ("0x00", Pattern(0)),
        ("0xFF", Pattern(_MODULUS - 1)),
        ("0xAA", Pattern(0xAAAAAAAAAAAAAAAA)),
        ("0x55", Pattern(0x5555555555555555)),
        ("addresses", Pattern(first, STEP)),
        ("complement of addresses", Pattern(_MODULUS - 1 - first, _MODULUS - STEP)),
    ]


class Change(NamedTuple):
    """How a pattern changed in the buffer that begins at byte ``offset`` of the tested memory."""

    pattern: Pattern
    name: str
    offset: int
    mismatch: Mismatch


@dataclass(slots=True)
class Region:
    """The tested memory of one card: ``wanted`` bytes in buffers of ``sizes``, of ``free`` bytes."""

    card: Card
    free: int | None
    wanted: int
    chunk: int
    sizes: list[int] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    @property
    def had(self) -> int:
        """The bytes that could be allocated."""
        return sum(self.sizes)


def regions_of(machine: Machine, level: Level) -> list[Region]:
    """Plan what to test of each card: nearly all of a GPU's memory, a part of the host's."""
    regions = []
    for card in (each for each in machine.cards if each.is_gpu):
        free = machine.free_bytes(card.label)
        wanted = int((free if free is not None else card.memory_bytes or 0) * _WANTED) // 8 * 8
        chunk = max(_SMALLEST_BYTES, min(_CHUNK_BYTES, wanted // 64 // 8 * 8))
        regions.append(Region(card, free, wanted, chunk))
    cpus = [card for card in machine.cards if not card.is_gpu]
    if cpus:
        free = machine.free_bytes(cpus[0].label)
        most = min(_HOST_BYTES[level], int((free or 2**28) * _HOST_SHARE), _affordable(machine, cpus[0], level))
        each = max(_HOST_CHUNK_BYTES, most // len(cpus) // _HOST_CHUNK_BYTES * _HOST_CHUNK_BYTES)
        regions += [Region(card, free, each, _HOST_CHUNK_BYTES) for card in cpus]
    return regions


def _affordable(machine: Machine, card: Card, level: Level) -> int:
    """Return how much of the host's memory can be tested in the time of the level, in bytes."""
    pattern = patterns(0)[-1][1]
    times = []
    for _ in range(2):
        began = machine.clock_s()
        machine.mismatch(machine.fill(card.label, _HOST_CHUNK_BYTES, pattern), pattern)
        times.append(machine.clock_s() - began)
    spent = max(min(times), 1e-6) * len(patterns(0))
    return int(_HOST_LIMIT_S[level] / spent) * _HOST_CHUNK_BYTES


def on_all(regions: Sequence[Region], work: Callable[[Region], _T]) -> list[_T]:
    """Call ``work`` with each region: with those of GPUs at once, a thread each, and with those of the host in turn."""
    gpus = [region for region in regions if region.card.is_gpu]
    with ThreadPoolExecutor(max(len(gpus), 1), thread_name_prefix="memory") as pool:
        started = {region.card.label: pool.submit(work, region) for region in gpus}
        return [
            started[region.card.label].result() if region.card.label in started else work(region) for region in regions
        ]


def fill(machine: Machine, number: int, region: Region) -> None:
    """Fill with pattern ``number``; the first time, find out how much can be allocated."""
    region.buffers.clear()
    if not number:
        _allocate(machine, region)
        return
    sizes, region.sizes = region.sizes, []
    for size in sizes:
        try:
            _append(machine, region, size, number)
        except DeviceMemoryFull:
            # What could be allocated before and cannot be now does not count.
            break


def read(machine: Machine, number: int, region: Region) -> Change | None:
    """Compare with pattern ``number``, and return the first change."""
    first, offset, at, spare = None, 0, 0, 1
    while at < len(region.buffers):
        name, pattern = patterns(offset // 8)[number]
        try:
            mismatch = machine.mismatch(region.buffers[at], pattern)
        except DeviceMemoryFull:
            # Comparing takes the memory of the last buffers, which no longer count: each time of twice as many.
            del region.buffers[-spare:], region.sizes[-spare:]
            spare *= 2
            continue
        if mismatch.count and first is None:
            first = Change(pattern, name, offset, mismatch)
        offset += region.sizes[at]
        at += 1
    return first


def _allocate(machine: Machine, region: Region) -> None:
    """Allocate buffers until there is enough, smaller ones where a large one does not fit.

    TensorFlow waits for 10 s each time before it refuses memory.
    """
    size = region.chunk
    while region.had < region.wanted and size >= max(_SMALLEST_BYTES, region.chunk // 64):
        try:
            _append(machine, region, min(size, region.wanted - region.had), 0)
        except DeviceMemoryFull:
            size = size // 8 // 8 * 8
    if region.had < LEAST_SHARE / _WANTED * region.wanted:
        # The card fails, and comparing needs memory too.
        del region.buffers[-_SPARE:], region.sizes[-_SPARE:]


def _append(machine: Machine, region: Region, size: int, number: int) -> None:
    pattern = patterns(region.had // 8)[number][1]
    region.buffers.append(machine.fill(region.card.label, size, pattern))
    region.sizes.append(size)


def repeat_step(
    machine: Machine, card: Card, index: int, seed: int, steps: int
) -> tuple[list[int | None], list[int | None]]:
    """Repeat a product on the card, and sample the memory in use on the card and in this process."""
    answer = known_answers(seed, index)[0]
    buffers = [machine.put(array, card.label) for array in answer.arrays]
    used, host = [], []
    for step in range(steps):
        machine.run(answer.operation, card.label, buffers)
        # The first quarter is left to caches and pools, which grow until they are full.
        if step >= steps // 4 and step % max(1, steps * 3 // 4 // _SAMPLES) == 0:
            used.append(machine.used_bytes(card.label))
            host.append(machine.used_bytes(HOST))
    return used, host
