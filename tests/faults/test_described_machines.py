"""Each fault of a described machine gives the right verdict and names its card, and no other; clean machines pass."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from described_machines import H100, Subject, blamed, machine, results

from harness.checking.check import Level
from harness.devices.described.description import FAULT_KINDS
from harness.devices.described.fault_tables import EXECUTED_ONLY
from harness.devices.described.models import MODELS
from harness.faults.machine import devices
from harness.hardware.corruption import check as corruption
from harness.hardware.sustained_load import check as sustained_load
from harness.records import Verdict, overall

L4, V100, A100, PCIE = "NVIDIA L4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe"

#: Cards, model, faults, who must be named, and the checks that must fail (others may). WARN where nothing fails.
FAULTY: list[tuple[int, str, list[str], set[Subject], set[str]]] = [
    (8, H100, ["link-width card = 3, width = 4"], {3}, {"copies", "sustained-load"}),
    (2, L4, ["link-width card = 0, width = 4"], {0}, {"copies", "sustained-load"}),
    (4, PCIE, ["link-width card = 2, width = 8"], {2}, {"sustained-load"}),
    (1, H100, ["link-width card = 0, width = 1"], {0}, {"sustained-load"}),
    (3, A100, ["link-generation card = 1, generation = 1"], {1}, {"copies", "sustained-load"}),
    (4, H100, ["hot card = 3"], {3}, {"sustained-load"}),
    (1, V100, ["hot card = 0, slowdown_after_s = 0.5"], {0}, {"sustained-load"}),
    (4, L4, ["hot card = 1, slowdown_after_s = 1.5"], {1}, {"sustained-load"}),
    (4, H100, ["ecc card = 2"], {2}, {"sustained-load"}),
    (2, A100, ["ecc card = 0, corrected_per_s = 0.0, uncorrected_per_s = 1.0"], {0}, {"sustained-load"}),
    (5, H100, ["zeros pair = [1, 3]"], {(1, 3)}, {"copies", "corruption"}),
    (2, L4, ["zeros pair = [1, 0]"], {(1, 0)}, {"copies", "corruption"}),
    (4, L4, ["zeros pair = [0, 2]", "zeros pair = [2, 0]"], {(0, 2), (2, 0)}, {"copies", "corruption"}),
    (4, V100, ["pair-flip pair = [3, 2]"], {(3, 2)}, {"copies", "corruption"}),
    (3, H100, ["pair-flip pair = [0, 1], probability = 0.5"], {(0, 1)}, {"corruption"}),
    (5, H100, ["bit-flip card = 4, probability = 0.05"], {4}, {"corruption"}),
    (1, L4, ["bit-flip card = 0, probability = 0.05"], {0}, {"corruption"}),
    (2, A100, ["bit-flip card = 1, probability = 0.05"], {1}, {"corruption"}),
    (
        4,
        V100,
        ["bit-flip card = 0, probability = 0.05", "bit-flip card = 3, probability = 0.1"],
        {0, 3},
        {"corruption"},
    ),
    # Only what uses the whole card touches the multiprocessors that are wrong.
    (4, H100, ["bit-flip card = 2, probability = 0.02, least_elements = 1048576"], {2}, {"sustained-load"}),
    (1, A100, ["bit-flip card = 0, probability = 0.005, least_elements = 1048576"], {0}, {"sustained-load"}),
    (4, H100, ["wrong-card card = 2"], {2}, {"corruption"}),
    (1, PCIE, ["wrong-card card = 0"], {0}, {"corruption"}),
    (4, H100, ["wrong-index index = 1"], {"index 1"}, {"corruption"}),
    (2, L4, ["wrong-index index = 0"], {"index 0"}, {"corruption"}),
    (4, A100, ["wrong-index index = 1", "wrong-card card = 1"], {"index 1", 1}, {"corruption"}),
    (3, H100, ['wrong-arithmetic card = 1, dtype = "float32"'], {1}, {"corruption"}),
    (2, L4, ['wrong-arithmetic card = 0, dtype = "int64"'], {0}, {"corruption"}),
    (4, H100, ["slow card = 3, factor = 0.6"], {3}, {"sustained-load"}),
    (2, V100, ["slow card = 0, factor = 0.7"], {0}, {"sustained-load"}),
    (4, L4, ["too-fast card = 2"], {2}, {"sustained-load"}),
    (2, H100, ["too-fast card = 1"], {1}, {"sustained-load"}),
    (1, V100, ["too-fast card = 0"], {0}, {"sustained-load"}),
    (5, H100, ["missing card = 3"], {3}, {"cards"}),
    (2, L4, ["missing card = 0"], {0}, {"cards"}),
    (4, A100, ["misnumbered cards = [1, 2]"], {1, 2}, set()),
    (3, H100, ["stuck-allocation card = 2"], {2}, {"memory"}),
    (1, L4, ["stuck-allocation card = 0, share = 1.0"], {0}, {"memory"}),
    (3, H100, ["memory-setting-ignored card = 1"], {1}, {"memory-settings"}),
    (2, L4, ['memory-setting-ignored card = 0, setting = "limit"'], {0}, {"memory-settings"}),
    (1, V100, ['memory-setting-ignored card = 0, setting = "split"'], {0}, {"memory-settings"}),
    (4, V100, ["stuck-bit card = 3"], {3}, {"memory"}),
    (2, H100, ["stuck-bit card = 1, word = 5000000000, bit = 63, value = 0"], {1}, {"memory"}),
    (2, A100, ["stuck-bit card = 0, word = 70000, bit = 0"], {0}, {"memory"}),
    (4, H100, ["leak card = 0"], {0}, {"memory"}),
    (1, L4, ["leak card = 0, bytes_per_step = 4096"], {0}, {"memory"}),
    (3, H100, ["replays card = 2"], {2}, {"sustained-load"}),
    (4, A100, ["nvlink-down card = 3, links = 2"], {3}, {"sustained-load"}),
    (2, H100, ["xid card = 1, code = 79"], {1}, {"sustained-load"}),
    (3, H100, ["collective-drop card = 1"], {1}, {"collectives"}),
    (4, L4, ['collective-drop card = 2, algorithm = "ring"'], {2}, {"collectives"}),
    (2, H100, ['library-missing library = "libcudnn.so.9"'], {"software"}, {"software"}),
    (1, L4, ["driver-too-old"], {"software"}, {"software"}),
    (2, L4, ["kernels-missing"], {0, 1}, {"software"}),
    (4, L4, ["missing card = 0", "slow card = 2", "zeros pair = [1, 3]"], {0, 2, (1, 3)}, {"cards", "copies"}),
    (4, H100, ["hot card = 0", "ecc card = 1", "xid card = 2", "leak card = 3"], {0, 1, 2, 3}, {"memory"}),
    (
        8,
        H100,
        [
            "link-width card = 0",
            "zeros pair = [1, 3]",
            "hot card = 2",
            "bit-flip card = 4",
            "stuck-allocation card = 6",
        ],
        {0, (1, 3), 2, 4, 6},
        {"copies", "corruption", "memory", "sustained-load"},
    ),
]

#: What ``--require`` alone can see, and what only software GPUs have.
ELSEWHERE = {"absent", *(get_args(table.model_fields["kind"].annotation)[0] for table in EXECUTED_ONLY)}

#: Cards, model, and lines of the tables: no two alike.
CLEAN = [
    *[(count, model, "", "", "") for count, model in zip((1, 2, 3, 4, 5, 6, 7, 8, 2), MODELS, strict=True)],
    *[(count, H100, f"seed = {seed}\nnoise = 0.02", "", "") for seed, count in enumerate((1, 2, 3, 4, 5, 2), start=1)],
    *[(count, L4, f"seed = {seed}", "", "") for seed, count in enumerate((1, 2, 3, 4, 6), start=20)],
    (4, A100, "noise = 0.0", "", ""),
    (2, H100, "", "sensors = false", ""),
    (1, L4, "", "sensors = false", ""),
    (3, V100, "", 'without = ["throttle_reasons", "pcie_width", "xid", "ecc_corrected"]', ""),
    (4, H100, "", "", 'visible = "3,1,0"'),
    (4, A100, "", "", 'visible = "1"'),
    (3, L4, "", "", 'visible = "GPU-c0ffee02,GPU-c0ffee00"'),
    (4, PCIE, "seed = 9", "", ""),
    (2, "A card of tomorrow", "", 'memory_bytes = 17179869184\nrates = { "matmul float32" = 90000.0 }', ""),
    (1, "A small card", "", 'memory_bytes = 2147483648\nrates = { "matmul float32" = 900.0 }\npcie_width = 4', ""),
]


@pytest.mark.parametrize(
    ("count", "model", "faults", "who", "failing"), FAULTY, ids=[f"{n}-{'+'.join(f)}" for n, _, f, _, _ in FAULTY]
)
def test_a_faulty_machine_is_found_out_and_no_other_card_is_named(
    count: int, model: str, faults: list[str], who: set[Subject], failing: set[str]
) -> None:
    made = machine(count, model, *faults)
    said = results(made)
    findings = [finding for result in said.values() for finding in result.findings]
    assert blamed(made, findings) == who, [finding.message for finding in findings]
    assert {check for check, result in said.items() if result.verdict is Verdict.FAIL} >= failing
    verdict = overall(result.verdict for result in said.values())
    assert verdict is (Verdict.FAIL if failing else Verdict.WARN)
    for result in said.values():
        if result.findings:
            assert result.next_step, "who reads it is told what to do"
            assert not any(finding.kind == "error" for finding in result.findings)


@pytest.mark.parametrize(("count", "model", "top", "cards", "software"), CLEAN)
def test_a_clean_machine_passes(count: int, model: str, top: str, cards: str, software: str) -> None:
    made = machine(count, model, top=top, cards=cards, software=software)
    for check, result in results(made).items():
        if check == "collectives" and len(made.cards) == 1:
            assert result.verdict is Verdict.SKIP, "one card has nobody to exchange anything with"
            continue
        assert result.verdict is Verdict.PASS, (check, result.reason, result.findings)
        assert not result.findings
        assert result.exercised.values
        assert result.exercised.devices == tuple(sorted(devices(made.description).names))


def test_there_are_enough_machines_and_every_kind_of_fault_is_on_one() -> None:
    assert len(FAULTY) >= 30
    assert len(CLEAN) >= 30
    planted = {fault.split(" ")[0] for _, _, faults, _, _ in FAULTY for fault in faults}
    assert planted | ELSEWHERE == set(FAULT_KINDS)


def test_a_card_that_nobody_sees_is_not_made_up_and_is_not_counted() -> None:
    made = machine(3, L4, "absent card = 1")
    assert {result.verdict for result in results(made).values()} == {Verdict.PASS}
    assert len(devices(made.description)) == 2, "--require counts these"


def test_a_card_is_named_by_its_slot_and_told_what_to_do() -> None:
    said = results(machine(4, H100, "link-width card = 3"), [sustained_load.CHECK])["sustained-load"]
    assert said.reason == "GPU:3 (PCI 0000:24:00.0) runs at PCIe x4 instead of x16 under load"
    assert said.next_step.startswith("GPU:3: reseat the card, or look at the BIOS setting")


def test_a_rate_that_comes_and_goes_is_told_with_its_interval() -> None:
    said = results(machine(4, H100, "bit-flip card = 2"), [corruption.CHECK])["corruption"]
    told = re.search(r"in \d+ of \d+ trials \((.+)%, 95% interval (.+)% to (.+)%\)", said.reason)
    assert told, said.reason
    rate, low, high = (float(each) for each in told.groups())
    assert low < rate < high
    assert low < 5.0 < high


def test_a_wrong_card_stays_wrong_under_another_number_and_a_wrong_index_does_not_move() -> None:
    """The same card 1, once as GPU:1 and once as GPU:0; the index stays where it is."""
    only = [corruption.CHECK]
    for visible, label in (("0,1", "GPU:1"), ("1,0", "GPU:0")):
        software = f'visible = "{visible}"'
        card = results(machine(2, L4, "wrong-card card = 1", software=software), only)["corruption"]
        assert [finding.device for finding in card.findings] == [f"/job:localhost/replica:0/task:0/device:{label}"]
        index = results(machine(2, L4, "wrong-index index = 1", software=software), only)["corruption"]
        assert [finding.where for finding in index.findings] == ["index 1"]


def test_a_deeper_level_finds_what_is_rarer() -> None:
    said = results(machine(1, L4, "bit-flip card = 0, probability = 0.005"), [corruption.CHECK], level=Level.STANDARD)
    assert said["corruption"].verdict is Verdict.FAIL, "quick may miss it, 1,800 runs do not"
