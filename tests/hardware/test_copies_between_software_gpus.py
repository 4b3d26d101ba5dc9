"""Several copies between GPUs in one call: all arrive, whatever their size."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

from harness.softgpu.compiler import NAMES

_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")


def send_in_one_call() -> None:
    import harness
    from harness.hardware.machine import Pattern
    from harness.hardware.real import TensorFlowMachine

    machine = TensorFlowMachine(harness.configure("softgpu:2x64"))
    wrong, graphs = 0, machine._sending._graphs
    for size in (4096, 2**20, 4096):
        patterns = Pattern(size, 5), Pattern(size, 7)
        made = [machine.fill(f"GPU:{at}", size, each) for at, each in enumerate(patterns)]
        wrong += machine.mismatch(machine.move(made[0], "GPU:1", 6), patterns[0]).count
        there, back = machine.exchange([(made[0], "GPU:1"), (made[1], "GPU:0")], 6)
        wrong += machine.mismatch(there, patterns[0]).count + machine.mismatch(back, patterns[1]).count
    assert not wrong
    # One for each direction, whatever the size; in each, every copy is an op of its own.
    assert len(graphs) == 2
    for graph in graphs.values():
        placed = [
            node.device for node in graph.get_concrete_function().graph.as_graph_def().node if node.op == "Identity"
        ]
        assert len([each for each in placed if "GPU" in each]) == 6
    print("all arrived")


def test_all_copies_of_a_call_arrive_in_one_graph(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert "all arrived" in fresh_process(send_in_one_call).stdout
