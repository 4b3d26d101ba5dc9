"""1,000 passes of hardware checks over machines in good order, and 1,000 stored results with a flipped bit.

python tests/faults/thousandfold.py [how many, by default 1000]

No pass may have a finding, and each flipped bit must be found, at its place where a place is reported. The machines are
described, and have software GPUs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from described_machines import H100, text
from executed_machines import DEVICES, MEMORY, Machine, all_machines, problems_of, spend_little

import harness
from harness.records import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.hardware.real import TensorFlowMachine

#: Words of a buffer whose memory is compared.
WORDS = 2**14


def main(count: int) -> int:
    """Print what was found, and return 1 for a false alarm or a missed bit."""
    began = time.monotonic()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        spend_little(patch)
        path = Path(folder) / "machine.toml"
        path.write_text(text(DEVICES, H100, cards=MEMORY), encoding="utf-8")
        devices = harness.configure(f"softgpu:{path}")
        alarms = false_alarms(devices, count)
        passed_s = time.monotonic() - began
        missed = missed_bits(devices, count)
    print(f"{count:,} passes in {passed_s:.0f} s: {len(alarms)} with a finding")
    print(f"{count:,} flipped bits in {time.monotonic() - began - passed_s:.0f} s: {len(missed)} not found")
    print(*alarms, *missed, sep="\n")
    return int(bool(alarms or missed))


def false_alarms(devices: Any, count: int) -> list[str]:
    """Run one check in each pass, with its own data, on machines of one or two cards in turn."""
    clean = [
        each._replace(checks=check)
        for each in dict.fromkeys(map(_hashable, all_machines()))
        if each.verdict is Verdict.PASS and each.cards <= 2
        for check in each.checks.split()
    ]
    built: dict[Any, Any] = {}
    alarms = []
    ran: Counter[str] = Counter()
    for number in range(count):
        machine = clean[number % len(clean)]
        ran[machine.checks] += 1
        alarms += problems_of(machine, devices, built, seed=number)
    print(f"passes by check: {dict(ran)}, on {len({each._replace(checks='') for each in clean})} machines")
    return alarms


def _hashable(machine: Machine) -> Any:
    return machine._replace(faults=tuple(machine.faults), who=frozenset(machine.who))


def missed_bits(devices: Any, count: int) -> list[str]:
    """Flip one bit each in a buffer, in a product that the host compares, and in one that the card compares."""
    from harness.hardware.real import TensorFlowMachine

    machine = TensorFlowMachine(replace_devices(devices))
    random = np.random.default_rng(0)
    kinds = (_in_memory, _in_a_result, _in_the_load)
    found = ((number, kinds[number % len(kinds)]) for number in range(count))
    return [f"{kind.__name__}: number {number}" for number, kind in found if not kind(machine, random, number)]


def replace_devices(devices: Any) -> Any:
    """Return the first two devices."""
    from harness.devices.device import Devices

    return Devices([replace(each) for each in list(devices)[:2]], spec=devices.spec, reason="")


def flipped(array: NDArray[Any], random: np.random.Generator) -> tuple[NDArray[Any], int]:
    """Return the array with one bit changed, and the index of its element."""
    octets = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).copy()
    at, bit = int(random.integers(octets.size)), int(random.integers(8))
    octets[at] ^= np.uint8(1 << bit)
    return octets.view(array.dtype).reshape(array.shape), at // array.dtype.itemsize


def _in_memory(machine: TensorFlowMachine, random: np.random.Generator, number: int) -> bool:
    from harness.hardware.machine import Pattern
    from harness.hardware.memory.measure import patterns

    label = machine.cards[number % 2].label
    known = patterns(0)
    pattern = known[number % len(known)][1] if number % 2 else Pattern(number, number)
    written = machine.fetch(machine.fill(label, 8 * WORDS, pattern))
    assert not machine.mismatch(machine.put(written, label), pattern).count
    changed, word = flipped(written, random)
    seen = machine.mismatch(machine.put(changed, label), pattern)
    return (seen.count, seen.first_word) == (1, word)


def _in_a_result(machine: TensorFlowMachine, random: np.random.Generator, number: int) -> bool:
    from harness.hardware.bits import changed_bits
    from harness.hardware.known_answers import known_answers

    answers = known_answers(number, 0)
    answer = answers[number // 3 % len(answers)]
    label = machine.cards[number % 2].label
    stored = machine.fetch(machine.run(answer.operation, label, [machine.put(each, label) for each in answer.arrays]))
    assert not changed_bits(stored, answer.expected)
    changed, element = flipped(stored, random)
    seen = changed_bits(changed, answer.expected)
    return (seen.elements, seen.bits, seen.first) == (1, 1, element)


def _in_the_load(machine: TensorFlowMachine, random: np.random.Generator, number: int) -> bool:
    from harness.hardware.sustained_load.measure import matrices, product

    label = machine.cards[number % 2].label
    matrix, square, false = matrices(machine, label, 64)
    operation = product(64, "matmul float32")
    assert not machine.fetch(machine.run(operation, label, [matrix, square, false]))[0]
    changed = machine.put(flipped(machine.fetch(square), random)[0], label)
    return bool(machine.fetch(machine.run(operation, label, [matrix, changed, false]))[0])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
