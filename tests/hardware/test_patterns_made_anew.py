"""What patterns are made from lies on the card too: a bit that flips there must not be in all that comes after."""

from __future__ import annotations

from typing import Any

import pytest

from harness.devices.device import Device, Devices
from harness.hardware import patterns
from harness.hardware.machine import Pattern
from harness.hardware.real import TensorFlowMachine

PATTERN = Pattern(1, 3)
#: There in each process that has TensorFlow, whatever configured it.
FIRST = Device("/job:localhost/replica:0/task:0/device:CPU:0", "logical-cpu", "/physical_device:CPU:0")


def test_a_bit_that_flipped_in_what_patterns_are_made_from_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    machine = TensorFlowMachine(Devices([FIRST], spec="cpu:1"))
    card = machine.cards[0].label
    now_s = [100.0]
    monkeypatch.setattr(machine, "clock_s", lambda: now_s[0])
    made = machine.fill(card, 80, PATTERN)
    counting, made_s = machine._counting[card]
    machine._counting[card] = tf.tensor_scatter_nd_update(counting, [[4]], [5]), made_s
    assert machine.mismatch(made, PATTERN).count == 1, "while it is kept"
    now_s[0] += 2
    assert machine.mismatch(made, PATTERN).count == 0
    assert machine.fetch(machine.fill(card, 80, PATTERN)).tolist() == list(range(1, 31, 3))


def test_they_are_given_back_before_they_are_made_again_because_the_card_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = TensorFlowMachine(Devices([FIRST], spec="cpu:1"))
    card = machine.cards[0].label
    now_s, held = [100.0], []
    monkeypatch.setattr(machine, "clock_s", lambda: now_s[0])
    count_up = patterns.count_up

    def made_anew(length: int) -> Any:
        held.append(card in machine._counting)
        return count_up(length)

    monkeypatch.setattr(patterns, "count_up", made_anew)
    made = machine.fill(card, 80, PATTERN)
    now_s[0] += 2
    assert machine.mismatch(made, PATTERN).count == 0
    assert held == [False, False]
