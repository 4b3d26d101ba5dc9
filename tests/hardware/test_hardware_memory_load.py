"""Memory that could not be allocated, did not keep its pattern or leaks; and whose memory is tested."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Barrier
from typing import Any

import pytest
from numpy_machine import NumpyMachine, context, gpus

from harness.hardware.machine import DeviceMemoryFull, Mismatch, Pattern
from harness.hardware.memory.check import CHECK
from harness.hardware.memory.judge import judge_coverage, judge_growth, judge_pattern
from harness.records import Card, Verdict

CARD = Card("GPU:0", "a card", "/device:GPU:0")
MIB = 2**20


def test_nine_tenths_of_what_is_free_are_enough_and_less_is_not() -> None:
    assert judge_coverage(CARD, 90 * MIB, 100 * MIB) is None
    short = judge_coverage(CARD, 89 * MIB, 100 * MIB)
    assert short is not None
    assert short.severity is Verdict.FAIL
    assert judge_coverage(CARD, 0, 100 * MIB) is not None


def test_a_word_that_changed_is_told_with_its_place_and_its_bits() -> None:
    assert judge_pattern(CARD, Pattern(0), "0x00", 4096, Mismatch(0)) is None
    wrong = judge_pattern(CARD, Pattern(0), "0x00", 4096, Mismatch(1, 2, 0x30000))
    assert wrong is not None
    assert wrong.where == "pattern 0x00, byte 4112"
    assert "(2 bits)" in wrong.message


def test_steady_growth_is_a_leak() -> None:
    used = [100 * MIB + step * MIB for step in range(20)]
    leak = judge_growth(CARD, used, 1000)
    assert leak is not None
    assert leak.severity is Verdict.FAIL
    host = judge_growth(CARD, used, 1000, host=True)
    assert host is not None
    assert host.severity is Verdict.WARN, "a process grows for many reasons"


@pytest.mark.parametrize(
    "used",
    [
        [100 * MIB] * 20,
        [100 * MIB] * 10 + [164 * MIB] * 10,
        [(164 - 64 * (step % 2)) * MIB for step in range(20)],
        [100 * MIB + step * 100 for step in range(20)],
        [(200 - step) * MIB for step in range(20)],
    ],
    ids=["flat", "one jump", "up and down", "a few bytes", "falling"],
)
def test_what_does_not_grow_all_the_time_is_no_leak(used: list[int]) -> None:
    assert judge_growth(CARD, used, 1000) is None


class _Filled(NumpyMachine):
    """What is filled stays as it is. Of this host 4 GB are free; nothing is known of other hosts."""

    def free_bytes(self, card: str) -> int | None:
        return 4 * 10**9 if card.startswith("CPU") else None

    def used_bytes(self, card: str) -> int | None:
        return 10**9

    def fill(self, card: str, size_bytes: int, pattern: Pattern) -> Any:
        self.now_s += size_bytes / 1e9
        return card, lambda: None

    def mismatch(self, buffer: Any, pattern: Pattern) -> Mismatch:
        return Mismatch(0)


@pytest.mark.parametrize(
    ("label", "kind", "verdict", "scope"),
    [
        ("worker/1/GPU:0", "GPU", Verdict.UNKNOWN, "worker/1/GPU:0: tested 0 MB; free memory unknown"),
        ("GPU:0", "GPU", Verdict.UNKNOWN, "GPU:0: tested 0 MB; free memory unknown"),
        ("worker/1/CPU:0", "CPU", Verdict.PASS, "worker/1/CPU:0: tested 67 MB"),
        ("CPU:0", "CPU", Verdict.PASS, "CPU:0: tested 268 MB of 4.0 GB free"),
    ],
)
def test_memory_of_a_gpu_on_another_host_is_not_taken_for_host_memory(
    label: str, kind: str, verdict: Verdict, scope: str
) -> None:
    card = Card(label, "a device", f"/device:{label}")
    assert (card.kind, card.is_gpu) == (kind, kind == "GPU")
    result = CHECK.run(context(_Filled((card,))))
    assert result.verdict is verdict, result.reason
    assert scope in result.scope


@dataclass
class _AtOnce(NumpyMachine):
    """Eight cards of 64 MiB; a call of one waits until all have made it. ``room`` is what a card really has."""

    room: dict[str, int] = field(default_factory=dict)
    had: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    together: Barrier = field(default_factory=lambda: Barrier(8, timeout=300))

    def free_bytes(self, card: str) -> int | None:
        return 64 * MIB

    def used_bytes(self, card: str) -> int | None:
        return None

    def fill(self, card: str, size_bytes: int, pattern: Pattern) -> Any:
        if not self.had.get(card) and not self.room:
            self.together.wait()
        if self.had.get(card, 0) + size_bytes > self.room.get(card, 64 * MIB):
            self.refused += 1
            raise DeviceMemoryFull(card, size_bytes)
        self.had[card] = self.had.get(card, 0) + size_bytes
        return card, lambda: None

    def mismatch(self, buffer: Any, pattern: Pattern) -> Mismatch:
        self.had[buffer[0]] = 0
        return Mismatch(int(buffer[0] == "GPU:5"), 2, 7)


def test_the_memory_of_all_cards_is_tested_at_once() -> None:
    outcome = CHECK.run(context(_AtOnce(gpus(8))))
    (wrong,) = outcome.findings
    assert wrong.device is not None
    assert wrong.device.endswith("GPU:5")
    assert len(outcome.exercised.devices) == 8


def test_a_card_that_has_too_little_is_refused_memory_once_because_each_refusal_takes_ten_seconds() -> None:
    machine = _AtOnce(gpus(8), room={"GPU:2": 32 * MIB})
    found = {each.device: each.message for each in CHECK.run(context(machine)).findings}
    assert "only 30 MB could be allocated" in found[machine.cards[2].device]
    assert set(found) == {machine.cards[each].device for each in (2, 5)}
    assert machine.refused == 1
