"""The action that the report names for each card: the right one, on the right card, and none on a clean machine."""

from __future__ import annotations

import pytest
from actions import wrong_actions
from described_machines import H100
from simulated import machine, results

from harness.checking.check import Check
from harness.hardware.cards import check as cards
from harness.hardware.collectives import check as collectives
from harness.hardware.copies import check as copies
from harness.hardware.corruption import check as corruption
from harness.hardware.memory import check as memory
from harness.hardware.sustained_load import check as load

pytest_plugins = ["little_data"]
pytestmark = pytest.mark.usefixtures("little_data")

A100, L4, V100, PCIE = "NVIDIA A100-SXM4-80GB", "NVIDIA L4", "Tesla V100-SXM2-16GB", "NVIDIA H100 PCIe"
#: Cards, model, fault, and the check that finds it.
FAULTY: list[tuple[int, str, str, Check]] = [
    (3, H100, "link-width card = 1, width = 4", load.CHECK),
    (2, L4, "link-generation card = 0, generation = 1", load.CHECK),
    (3, H100, "hot card = 2", load.CHECK),
    (2, H100, "ecc card = 1, corrected_per_s = 50.0", load.CHECK),
    (2, A100, "row-remap card = 0", load.CHECK),
    (2, A100, 'row-remap card = 1, state = "failed"', load.CHECK),
    (2, V100, "retired-pages card = 1", load.CHECK),
    (1, V100, "retired-pages card = 0, count = 60, pending = false", load.CHECK),
    (2, H100, "power-limit card = 1, watts = 350.0", load.CHECK),
    (2, H100, "replays card = 0, per_s = 50.0", load.CHECK),
    (2, A100, "nvlink-down card = 1, links = 2", load.CHECK),
    (2, H100, "xid card = 1, code = 79", load.CHECK),
    (3, H100, "slow card = 1, factor = 0.4", load.CHECK),
    (2, H100, "bit-flip card = 1, probability = 0.05, least_elements = 65536", load.CHECK),
    (2, L4, "bit-flip card = 0, probability = 0.3", corruption.CHECK),
    (3, H100, "wrong-card card = 2", corruption.CHECK),
    (4, H100, "zeros pair = [1, 3]", copies.CHECK),
    (3, V100, "pair-flip pair = [2, 0]", copies.CHECK),
    (4, H100, "lost card = 3", cards.CHECK),
    (2, H100, "memory-held card = 1, share = 0.88", memory.CHECK),
    (2, L4, "stuck-bit card = 1", memory.CHECK),
    (2, L4, "leak card = 1", memory.CHECK),
    (3, H100, "collective-drop card = 2", collectives.CHECK),
]


@pytest.mark.parametrize(("count", "model", "fault", "check"), FAULTY, ids=[each[2] for each in FAULTY])
def test_each_card_has_the_action_that_its_fault_asks_for(count: int, model: str, fault: str, check: Check) -> None:
    for faults in ([fault], []):
        made = machine(count, model, *faults)
        findings = results(made, [check])[check.id].findings
        assert bool(findings) is bool(faults), findings
        assert wrong_actions(made, findings, faults) == []
