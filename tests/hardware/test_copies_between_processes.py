"""Copies of one tensor to a device of another process, each of which has to cross: seen in what the network carried."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

_SIZE_BYTES = 8 * 2**20
_REPEATS = 3


def send_again_and_again() -> None:
    import psutil

    import harness
    from harness.hardware.machine import Pattern
    from harness.hardware.real import TensorFlowMachine

    def carried(copies: Callable[[], Any]) -> float:
        before: int = psutil.net_io_counters().bytes_sent
        copies()
        after: int = psutil.net_io_counters().bytes_sent
        return (after - before) / _SIZE_BYTES

    machine = TensorFlowMachine(harness.configure("cores:2"))
    one, other = (card.label for card in machine.cards)
    pattern = Pattern(3, 5)
    made = machine.fill(one, _SIZE_BYTES, pattern)
    print(
        json.dumps(
            {
                "one by one": carried(lambda: [machine.move(made, other) for _ in range(_REPEATS)]),
                "in one call": carried(lambda: machine.move(made, other, _REPEATS)),
                "there and back": carried(
                    lambda: machine.exchange([(made, other), (machine.fill(other, _SIZE_BYTES, pattern), one)], 2)
                ),
                "arrived": machine.mismatch(machine.move(made, other, _REPEATS), pattern).count,
            }
        )
    )


def test_each_copy_of_the_same_tensor_crosses(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """TensorFlow keeps what it copied once: the second op on that device would copy nothing, however fast it looks."""
    seen = json.loads(fresh_process(send_again_and_again).stdout.splitlines()[-1])
    assert seen["one by one"] >= _REPEATS
    assert seen["in one call"] >= _REPEATS
    assert seen["there and back"] >= 4
    assert seen["arrived"] == 0
