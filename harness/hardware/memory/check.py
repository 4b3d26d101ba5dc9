"""The memory of each card: patterns that are written, held and read back there, and steps that leave nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.hardware.account import Account, is_cpu, on_machine
from harness.hardware.known_answers import known_answers
from harness.hardware.machine import HOST, Buffer, DeviceMemoryFull, Machine, Pattern
from harness.hardware.memory.judge import LEAST_SHARE, gigabytes, judge_coverage, judge_growth, judge_pattern
from harness.records import Card

_MODULUS = 2**64
#: Odd, with about as many ones as zeros: each word says where it is, and most bits change from word to word.
_STEP = 0x9E3779B97F4A7C15
#: What a GPU's memory is filled with: a little above :data:`LEAST_SHARE` of what is free, as comparing needs room too.
_WANTED = 0.92
#: Buffers of a GPU: large enough to be quick, small enough that a gap of the allocator does not matter.
_CHUNK_BYTES, _SMALLEST_BYTES = 2**30, 2**20
#: The host's memory belongs to everybody: what all logical CPUs together test of it, and how long that may take.
_HOST_BYTES = {Level.QUICK: 256 * 2**20, Level.STANDARD: 2**30, Level.DEEP: 2**32}
_HOST_SHARE = 0.25
_HOST_LIMIT_S = {Level.QUICK: 2.2, Level.STANDARD: 10.0, Level.DEEP: 60.0}
_HOST_CHUNK_BYTES = 16 * 2**20
#: How long each pattern is held before it is read back, in seconds.
HELD_S = {Level.QUICK: 0.05, Level.STANDARD: 0.5, Level.DEEP: 2.0}
#: Repetitions of the step that must leave nothing behind, and how often the memory in use is looked at meanwhile.
STEPS = {Level.QUICK: 200, Level.STANDARD: 1_000, Level.DEEP: 1_000}
_LOOKS = 20


def patterns(offset_words: int) -> list[tuple[str, Pattern]]:
    """The patterns of a buffer that begins at a word of what is tested: constants, addresses and their complement."""
    first = offset_words * _STEP % _MODULUS
    return [
        ("0x00", Pattern(0)),
        ("0xFF", Pattern(_MODULUS - 1)),
        ("0xAA", Pattern(0xAAAAAAAAAAAAAAAA)),
        ("0x55", Pattern(0x5555555555555555)),
        ("addresses", Pattern(first, _STEP)),
        ("complement of addresses", Pattern(_MODULUS - 1 - first, _MODULUS - _STEP)),
    ]


@dataclass(slots=True)
class _Region:
    """What is tested of one card: ``wanted`` bytes in buffers of ``sizes``, of ``free`` bytes."""

    card: Card
    free: int | None
    wanted: int
    chunk: int
    sizes: list[int] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    @property
    def had(self) -> int:
        """Bytes that could be had."""
        return sum(self.sizes)


def run(context: CheckContext) -> CheckOutcome:
    """Fill the memory of all cards with each pattern, hold it, read it back there; then repeat a step."""
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    # A step first: what the first operations need for ever is then in use already.
    looked = _leaks(machine, context, account)
    regions = _regions(machine, context.level)
    count = len(patterns(0))
    reported: set[str] = set()
    for number in range(count):
        _fill(machine, regions, number)
        machine.wait_s(HELD_S[context.level])
        for region in regions:
            _read(machine, region, number, account, reported)
    for region in regions:
        _cover(region, account)
    account.scope.append(f"{count} patterns, each held for {HELD_S[context.level]} s")
    if any(is_cpu(region.card) for region in regions):
        tested = f"{gigabytes(sum(region.had for region in regions))} of the host's memory, which belongs to everybody"
    else:
        least = min((region.had / region.free for region in regions if region.free), default=0.0)
        tested = f"at least {least:.0%} of what is free on each of {len(regions)} card(s)"
    steps = f"{STEPS[context.level]} steps left nothing behind" if looked else "leaks were not looked for on all cards"
    return f"{count} patterns came back unchanged, {steps}: {tested}"


def _regions(machine: Machine, level: Level) -> list[_Region]:
    cpus = [card for card in machine.cards if is_cpu(card)]
    regions = []
    for card in machine.cards:
        if card in cpus:
            continue
        free = machine.free_bytes(card.label)
        wanted = int((free if free is not None else card.memory_bytes or 0) * _WANTED) // 8 * 8
        chunk = max(_SMALLEST_BYTES, min(_CHUNK_BYTES, wanted // 64 // 8 * 8))
        regions.append(_Region(card, free, wanted, chunk))
    if cpus:
        free = machine.free_bytes(HOST)
        if free is None:
            free = machine.free_bytes(cpus[0].label)
        most = min(_HOST_BYTES[level], int((free or 2**28) * _HOST_SHARE), _affordable(machine, cpus[0], level))
        each = max(_HOST_CHUNK_BYTES, most // len(cpus) // _HOST_CHUNK_BYTES * _HOST_CHUNK_BYTES)
        regions += [_Region(card, free, each, _HOST_CHUNK_BYTES) for card in cpus]
    return regions


def _affordable(machine: Machine, card: Card, level: Level) -> int:
    """How much of the host's memory can be tested in the time of the level, in bytes."""
    pattern = patterns(0)[-1][1]
    times = []
    for _ in range(2):
        began = machine.clock_s()
        machine.mismatch(machine.fill(card.label, _HOST_CHUNK_BYTES, pattern), pattern)
        times.append(machine.clock_s() - began)
    spent = max(min(times), 1e-6) * len(patterns(0))
    return int(_HOST_LIMIT_S[level] / spent) * _HOST_CHUNK_BYTES


def _fill(machine: Machine, regions: Sequence[_Region], number: int) -> None:
    """Fill with pattern ``number``; the first time, find out what can be had."""
    for region in regions:
        region.buffers.clear()
        if not number:
            _allocate(machine, region)
            continue
        sizes, region.sizes = region.sizes, []
        for size in sizes:
            try:
                _append(machine, region, size, number)
            except DeviceMemoryFull:
                # What could be had before cannot be had now: it counts as not had.
                break


def _allocate(machine: Machine, region: _Region) -> None:
    """Buffers until there is enough; smaller ones where a large one finds no room."""
    size = region.chunk
    while region.had < region.wanted and size >= min(_SMALLEST_BYTES, region.chunk):
        try:
            _append(machine, region, min(size, region.wanted - region.had), 0)
        except DeviceMemoryFull:
            size = size // 2 // 8 * 8


def _append(machine: Machine, region: _Region, size: int, number: int) -> None:
    pattern = patterns(region.had // 8)[number][1]
    region.buffers.append(machine.fill(region.card.label, size, pattern))
    region.sizes.append(size)


def _read(machine: Machine, region: _Region, number: int, account: Account, reported: set[str]) -> None:
    offset = 0
    for size, buffer in zip(region.sizes, region.buffers, strict=True):
        name, pattern = patterns(offset // 8)[number]
        wrong = judge_pattern(region.card, pattern, name, offset, machine.mismatch(buffer, pattern))
        # One finding a card: the same cell is wrong with several patterns.
        if wrong is not None and region.card.label not in reported:
            account.found(wrong)
            reported.add(region.card.label)
        account.count(region.card.label, values=size // 8, ops=2)
        offset += size


def _cover(region: _Region, account: Account) -> None:
    label = region.card.label
    if is_cpu(region.card):
        of = f" of {gigabytes(region.free)} free, which belong to everybody on this host" if region.free else ""
        account.scope.append(f"{label}: {gigabytes(region.had)}{of}")
    elif region.free is None:
        account.scope.append(f"{label}: {gigabytes(region.had)}; what is free is not known")
        why = f"{label}: nobody can tell how much of its memory is free, so that {LEAST_SHARE:.0%} of it is not proven"
        account.unproven(why, "install nvidia-ml-py, or a TensorFlow that says how much memory it uses")
    else:
        share = region.had / region.free if region.free else 0.0
        account.scope.append(f"{label}: {gigabytes(region.had)} of {gigabytes(region.free)} free ({share:.0%})")
        account.found(judge_coverage(region.card, region.had, region.free))
    if not region.had:
        account.unproven(f"{label}: no memory could be had", "free its memory, and run this check again")
    account.measured[f"tested_bytes_{label}"] = float(region.had)


def _leaks(machine: Machine, context: CheckContext, account: Account) -> bool:
    """Repeat a step on each card, and look at what is in use: whether that is known of each."""
    steps = STEPS[context.level]
    unknown = []
    for index, card in enumerate(machine.cards):
        answer = known_answers(context.seed, index)[0]
        buffers = [machine.put(array, card.label) for array in answer.arrays]
        used, host = [], []
        for step in range(steps):
            machine.run(answer.operation, card.label, buffers)
            # The first quarter is left to caches and pools, which grow until they are full.
            if step >= steps // 4 and step % max(1, steps * 3 // 4 // _LOOKS) == 0:
                used.append(machine.used_bytes(card.label))
                host.append(machine.used_bytes(HOST))
        account.count(card.label, ops=steps, programs=1)
        for seen, of_host in ((used, is_cpu(card)), (host, True)):
            told = np.asarray([each for each in seen if each is not None], dtype=np.int64)
            if len(told) >= 6:
                account.found(judge_growth(card, [int(each) for each in told], steps, host=of_host))
            elif seen is used:
                unknown.append(card.label)
            if is_cpu(card):
                break
    if unknown:
        account.scope.append(f"memory in use is not known on {', '.join(unknown)}: leaks there were not looked for")
    return not unknown


CHECK = Check(
    id="memory",
    title="memory of the cards",
    proves="patterns come back unchanged from the memory of each card, at least 90 % of what is free on a GPU, and a "
    "step that is repeated leaves no memory behind",
    minimum_devices=1,
    typical_s=4,
    run=run,
    hardware=True,
)
