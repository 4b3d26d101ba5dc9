"""Broken machines that once passed, and healthy ones that once failed, on the stand-in for the driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from described_machines import H100, text, worked

from harness.checking.check import CheckContext
from harness.devices.described.order import uuid_of
from harness.devices.described.reading import read_description
from harness.devices.described.state import gpus_of
from harness.devices.device import Devices
from harness.devices.nvidia import (
    Card as DriverCard,
    cards_on_bus,
    cuda_error,
    cuda_uuids,
    in_container,
    memory_by_process,
    read_cards,
    silenced,
    silent_cards,
)
from harness.hardware.account import Account, on_machine
from harness.hardware.cards import check as cards_check
from harness.hardware.cards.judge import judge_cuda, judge_unreachable
from harness.hardware.links import read_links
from harness.hardware.machine import DeviceMemoryFull, Reading
from harness.hardware.memory.judge import judge_held
from harness.hardware.nvml import Nvml
from harness.hardware.profile import profile_for, profile_of
from harness.hardware.rates import judge_drift, judge_rates
from harness.hardware.real import TensorFlowMachine
from harness.hardware.software.installed import Software
from harness.hardware.sustained_load.judge import judge_sensors, settings_of
from harness.hardware.sustained_load.measure import Load
from harness.hardware.watch import CardWatch
from harness.records import Card, CheckResult, Exercised, Figure, Finding, Quantity, RunRecord, Verdict
from harness.report.card_verdicts import verdict_lines
from harness.softgpu import described
from harness.softgpu.compiler import NAMES
from harness.softgpu.drivers import Drivers

_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = [
    pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs"),
    pytest.mark.usefixtures("no_machine_afterwards"),
]
V100, L4 = "Tesla V100-SXM2-16GB", "NVIDIA L4"


def machine(count: int, model: str, *faults: str, **lines: str) -> Drivers:
    made = read_description("test.toml", text(count, model, *faults, **lines))
    return described.install_driver(gpus_of(made, "test.toml"))


def card(known: DriverCard) -> Card:
    assert known.total_mib is not None
    assert known.free_mib is not None
    return Card(
        f"GPU:{known.index}",
        known.name,
        index=known.index,
        uuid=known.uuid,
        memory_bytes=known.total_mib * 2**20,
        free_bytes=known.free_mib * 2**20,
        kind="GPU",
    )


def installed(error: int | None) -> Software:
    return Software("2.21.0", "2.0", "3.12", built_with_cuda=True, cuda_error=error)


def said(model: str, *faults: str, work_s: float = 3.0, count: int = 2) -> list[tuple[str, str, Verdict]]:
    """What the sensors of the cards say under load: card, place and severity."""
    driver = machine(count, model, *faults)
    nvml = Nvml.load()
    cards = [card(known) for known in read_cards()]
    before = [nvml.reading(uuid_of(slot), 0.0) for slot in range(count)]
    worked(driver, range(count), work_s)
    loads = [
        Load(each, (), rest, [nvml.reading(each.uuid or "", work_s)]) for each, rest in zip(cards, before, strict=True)
    ]
    findings: list[tuple[str, Finding]] = []
    for load in loads:
        profile = profile_for(load.card.name)
        findings += [(load.card.label, each) for each in judge_sensors(load, loads, profile)]
        findings += [(load.card.label, each) for each in settings_of(load, profile)[1]]
    assert all(each.next_step for _, each in findings)
    return [(label, each.where, each.severity) for label, each in findings]


def test_cards_that_cuda_cannot_use_fail_with_the_error_of_cuinit_and_its_cause() -> None:
    machine(8, H100, "cuda-unavailable code = 802")
    found = list(judge_cuda([Card("CPU:0", "a CPU")], [card(each) for each in read_cards()], installed(cuda_error())))
    assert [(each.device, each.severity) for each in found] == [(f"GPU:{at}", Verdict.FAIL) for at in range(8)]
    why = "cannot be used: cuInit fails with error 802 (SYSTEM_NOT_READY): the NVSwitch fabric is not set up"
    assert found[3].message == f"GPU:3 {why}"
    assert "nvidia-fabricmanager" in found[0].next_step
    machine(8, H100)
    assert cuda_error() is None
    cpu, gpus = [Card("CPU:0", "a CPU")], [card(each) for each in read_cards()]
    unused = list(judge_cuda(cpu, gpus, installed(None)))
    assert len(unused) == 8
    assert unused[0].message == "GPU:0 cannot be used: the driver lists it, but TensorFlow uses no GPU"
    assert [each.device for each in judge_cuda(cpu, gpus, replace(installed(100), visible="2,1"))] == ["GPU:2", "GPU:1"]
    for cards, known, software, why in (
        ([Card("GPU:0", H100)], gpus, installed(None), "there is a GPU"),
        (cpu, gpus, replace(installed(None), built_with_cuda=False), "see the check software"),
        (cpu, gpus, replace(installed(100), visible="-1"), "they are hidden on purpose"),
        (cpu, [], installed(None), "there is no GPU to use"),
    ):
        assert list(judge_cuda(cards, known, software)) == [], why


@pytest.mark.parametrize(("spec", "verdict"), [("auto", Verdict.FAIL), ("gpu", Verdict.FAIL), ("cpu:4", Verdict.PASS)])
def test_logical_cpus_pass_for_cards_only_if_they_were_asked_for(devices: Devices, spec: str, verdict: Verdict) -> None:
    machine(8, H100, "cuda-unavailable code = 802")
    asked = Devices(tuple(devices), spec=spec)
    result = cards_check.run(CheckContext(asked, machine=TensorFlowMachine(asked)))
    assert result.verdict is verdict, result.reason
    assert ("cuInit fails with error 802" in result.reason) == (verdict is Verdict.FAIL)


def test_a_lost_card_keeps_its_place_with_its_error() -> None:
    machine(8, H100, "lost card = 3")
    (lost,) = silent_cards()
    assert (lost.index, lost.error) == (3, "GPU is lost")
    (found,) = judge_unreachable([Card("GPU:0", H100), Card("nvml:3", "GPU", index=3, error=lost.error)])
    assert (found.device, found.severity) == ("nvml:3", Verdict.FAIL)
    assert "GPU is lost" in found.message
    machine(8, H100, "lost card = 3", "memory-held card = 7", "memory-held card = 0")
    assert len(memory_by_process()) == 2, "it hides nothing of the cards behind it"
    machine(8, H100)
    assert silent_cards() == ()


def test_a_card_on_the_bus_that_the_driver_does_not_know_is_found(tmp_path: Path) -> None:
    for address, vendor, kind in (
        ("0000:1b:00.0", "0x10de", "0x030200"),
        ("0000:1b:00.1", "0x10de", "0x040300"),  # its audio
        ("0000:05:00.0", "0x1002", "0x030000"),
        ("0000:1e:00.0", "0x10de", "0x030000"),
    ):
        (tmp_path / address).mkdir()
        (tmp_path / address / "vendor").write_text(vendor + "\n", encoding="ascii")
        (tmp_path / address / "class").write_text(kind + "\n", encoding="ascii")
    assert cards_on_bus(tmp_path) == ("0000:1b:00.0", "0000:1e:00.0")
    assert cards_on_bus(tmp_path / "none") == ()
    (tmp_path / "vfio-pci").mkdir()
    (tmp_path / "0000:1e:00.0" / "driver").symlink_to(tmp_path / "vfio-pci")
    assert cards_on_bus(tmp_path) == ("0000:1b:00.0",), "the other one belongs to a virtual machine"


def test_a_container_sees_the_bus_of_its_host_and_not_its_cards(tmp_path: Path) -> None:
    assert not in_container(tmp_path, {})
    assert in_container(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    (tmp_path / ".dockerenv").touch()
    assert in_container(tmp_path, {})


@pytest.mark.parametrize(
    ("model", "fault", "where", "severity"),
    [
        (H100, "row-remap card = 1", "row remapping", Verdict.FAIL),
        (H100, 'row-remap card = 1, state = "failed"', "row remapping", Verdict.FAIL),
        (V100, "retired-pages card = 1", "page retirement", Verdict.FAIL),
        (V100, "retired-pages card = 1, count = 60, pending = false", "page retirement", Verdict.FAIL),
        (H100, "link-width card = 1, width = 4", "PCIe width under load", Verdict.FAIL),
        (H100, "power-limit card = 1, watts = 350.0", "power limit", Verdict.WARN),
        (H100, "nvlink-down card = 1, links = 2", "NVLinks under load", Verdict.FAIL),
        (H100, "ecc card = 1, corrected_per_s = 50.0", "ECC under load", Verdict.FAIL),
        (H100, "ecc card = 1, corrected_per_s = 3.4", "ECC under load", Verdict.WARN),
    ],
)
def test_what_a_card_says_of_itself_is_judged(model: str, fault: str, where: str, severity: Verdict) -> None:
    assert ("GPU:1", where, severity) in (found := said(model, fault))
    assert {label for label, _, _ in found} == {"GPU:1"}


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (H100, "ecc card = 1, corrected_per_s = 0.0, old_corrected = 5000, old_uncorrected = 4"),
        (V100, "retired-pages card = 1, count = 3, pending = false"),
        (L4, "power-limit card = 1, watts = 71.9"),
        (H100, "hot card = 1, slowdown_after_s = 1000.0"),
    ],
)
def test_what_is_past_or_within_its_limits_is_left_alone(model: str, fault: str) -> None:
    assert said(model, fault) == []


def test_links_that_are_down_on_all_cards_are_seen_by_the_profile() -> None:
    faults = [f"nvlink-down card = {slot}, links = 18" for slot in range(2)]
    assert said(H100, *faults) == [(f"GPU:{slot}", "NVLinks under load", Verdict.FAIL) for slot in range(2)]


def test_memory_that_a_dead_process_holds_is_found_with_the_process() -> None:
    alive: Callable[[int], bool] = lambda process: process != 4242  # noqa: E731
    machine(2, H100, "memory-held card = 1, share = 0.88")
    first, second = (judge_held(card(known), memory_by_process(), alive) for known in read_cards())
    assert first is None
    assert second is not None
    assert "process 4242, which no longer runs, holds" in second.message
    machine(2, H100, "memory-held card = 1, share = 0.2")
    assert [judge_held(card(known), memory_by_process(), alive) for known in read_cards()] == [None, None]


@pytest.mark.parametrize("part", ["logical GPU", "MIG slice", "software GPU"])
def test_a_part_of_a_card_is_not_judged_by_the_rates_of_a_whole_one(part: str) -> None:
    def offences(made: Card, *values: float) -> int:
        cards = [Card(f"GPU:{at}", made.name, kind="GPU", part=made.part) for at in range(len(values))]
        figures = [
            Figure("matmul float32", value, "GFLOP/s", each.label, quantity=Quantity.RATE)
            for each, value in zip(cards, values, strict=True)
        ]
        profiles = {each.label: found for each in cards if (found := profile_of(each)) is not None}
        return len(judge_rates(figures, cards, profiles).offences)

    whole = Card("GPU:0", H100, kind="GPU")
    assert offences(whole, 25_000.0, 10_000.0)
    half = Card("GPU:0", H100, kind="GPU", part=part)
    assert not offences(half, 25_000.0, 10_000.0)
    falling = [100.0] * 3 + [50.0] * 3
    assert judge_drift(falling, whole) is not None
    assert judge_drift(falling, half) is None


def test_a_slice_of_a_card_has_a_uuid_of_its_own() -> None:
    driver = machine(1, H100)
    values = {"cards": 1, "cuda_devices": 2, "cuda.0.uuid": uuid_of(0), "cuda.1.uuid": uuid_of(0)}
    slices = [f"MIG-0000000{at}-0000-4000-8000-000000000000" for at in (1, 2)]
    driver.write({**values, "cuda.0.mig_uuid": slices[0], "cuda.1.mig_uuid": slices[1]})
    assert cuda_uuids() == tuple(slices)
    driver.write(values)
    assert cuda_uuids() == (uuid_of(0), uuid_of(0))


def test_the_driver_says_how_cards_are_joined() -> None:
    for lines, count in (("", 18), ("bridges = [[0, 1, 6], [1, 2, 6]]", 6)):
        machine(3, H100, cards=lines)
        cards = [replace(card(each), pci=each.pci) for each in read_cards()]
        links = read_links(Nvml.load(), cards, cards)
        for pair in (("GPU:0", "GPU:1"), ("GPU:1", "GPU:2")):
            assert links[pair].nvlinks == count
            assert links[pair].gbs == pytest.approx(24.7 * count, rel=0.001)
        assert links["GPU:0", "GPU:2"].nvlinks == (0 if lines else count)


def test_cards_for_one_process_are_known_as_such() -> None:
    machine(2, H100, cards="exclusive = true")
    assert [known.exclusive for known in read_cards()] == [True, True]
    machine(2, H100)
    assert [known.exclusive for known in read_cards()] == [False, False]


def test_serial_number_vbios_and_board_are_read() -> None:
    machine(2, H100)
    first, second = read_cards()
    assert first.serial != second.serial
    assert (first.vbios, first.board_part) == ("96.00.30.00.01", "692-2G520-0200-000")


#: What a check that was lost leaves behind: no card.
CRASHED = CheckResult(
    "copies", Verdict.FAIL, "its process was killed by signal 6", "", Exercised(),
    findings=(Finding("error", "check copies", None, "it completes", "a crash", "its process was killed"),),
)  # fmt: skip
PASSED = CheckResult("copies", Verdict.PASS, "all arrived", "", Exercised(values=1))


@pytest.mark.parametrize(
    ("fault", "where", "action"),
    [
        ("xid card = 1, code = 79", "Xid during the check 'copies'", "power the node off and on"),
        ("xid card = 1, code = 74", "Xid during the check 'copies'", "nvidia-smi nvlink -e"),
        ("replays card = 1, per_s = 40.0", "PCIe replays during the check 'copies'", "reseat the card"),
        (
            "ecc card = 1, corrected_per_s = 0.0, uncorrected_per_s = 1.0",
            "ECC during the check 'copies'",
            "have it replaced",
        ),
    ],
)
def test_what_a_card_counts_during_any_check_is_named_from_outside_also_after_a_crash(
    fault: str, where: str, action: str
) -> None:
    driver = machine(3, H100, fault)
    for ended, verdict in ((CRASHED, Verdict.FAIL), (PASSED, Verdict.FAIL)):
        driver.write(dict(gpus_of(read_description("x", text(3, H100, fault)), "x").driver))
        watch = CardWatch()
        watch.cards_are([card(known) for known in read_cards()])
        assert watch.judged(ended) == ended, "nothing has happened yet"
        worked(driver, range(3), 5.0)
        judged = watch.judged(ended)
        new = judged.findings[len(ended.findings) :]
        assert [(each.device, each.where) for each in new] == [("GPU:1", where)]
        assert action in new[0].next_step
        assert judged.verdict is verdict
        assert watch.judged(ended) == ended, "each event is reported once"
    clean = machine(3, H100)
    watch = CardWatch()
    watch.cards_are([card(known) for known in read_cards()])
    worked(clean, range(3), 5.0)
    assert watch.judged(PASSED) == PASSED


def test_a_card_that_is_lost_during_a_check_is_named_and_what_the_check_found_is_not_told_twice() -> None:
    driver = machine(3, H100, "xid card = 1, code = 79")
    watch = CardWatch()
    watch.cards_are([card(known) for known in read_cards()])
    worked(driver, range(3), 5.0)
    own = Finding("sensor", "Xid under load", "GPU:1", "no Xid", "79", "was reported", subject="Xid")
    told = replace(PASSED, verdict=Verdict.FAIL, findings=(own,))
    assert watch.judged(told) == told
    machine(3, H100, "lost card = 2")
    (lost,) = watch.judged(PASSED).findings
    assert (lost.kind, lost.device, lost.lasting) == ("missing-device", "GPU:2", True)


def test_a_card_that_is_lost_has_the_name_of_the_checks_whatever_number_the_driver_gives_it() -> None:
    machine(4, H100)
    watch = CardWatch()
    known = read_cards()
    # As with CUDA_VISIBLE_DEVICES=3,2.
    watch.cards_are([replace(card(known[3]), label="GPU:0", index=0), replace(card(known[2]), label="GPU:1", index=1)])
    machine(4, H100, "lost card = 3", "lost card = 0")
    assert [each.device for each in watch.judged(PASSED).findings] == ["nvml:0", "GPU:0"]
    assert watch.judged(PASSED) == PASSED
    assert silenced([known[2].uuid, known[3].uuid]) == {known[3].uuid: "GPU is lost"}


def test_an_error_after_which_a_card_no_longer_answers_is_about_that_card() -> None:
    machine(3, H100)
    cards = tuple(card(known) for known in read_cards())
    waits = {"GPU:0": Reading(0.0, remap_pending=True)}
    readings = {"reading": lambda label: waits.get(label, Reading(0.0)), "software": lambda: installed(None)}
    on = SimpleNamespace(cards=cards, present=cards, **readings)
    context = CheckContext(Devices((), spec="gpu", reason=""), machine=on)

    def body(_: object, account: Account) -> str:
        account.count("GPU:0", values=1)
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

    with pytest.raises(RuntimeError, match="ILLEGAL"):
        on_machine(context, body)
    machine(3, H100, "lost card = 2")
    outcome = on_machine(context, body)
    lost, waiting = outcome.findings
    assert (waiting.device, waiting.where) == ("GPU:0", "row remapping"), "what the others wait for is not lost"
    assert (lost.kind, lost.device, outcome.verdict) == ("missing-device", "GPU:2", Verdict.FAIL)
    assert outcome.exercised.nothing, "what came before says nothing of the other cards"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in outcome.scope[-1]
    result = replace(PASSED, verdict=outcome.verdict, exercised=outcome.exercised, findings=outcome.findings)
    record = RunRecord("", "", (), "", Verdict.FAIL, 1, True, (result,), cards=cards)
    actions = "GPU:0: reset; GPU:2: power the node off and on, and reseat; 1 other GPU without a finding"
    assert next(verdict_lines(record)).startswith(actions)


def test_memory_that_is_not_given_back_after_a_loss_is_not_held_against_another_card() -> None:
    def full(*_: object) -> str:
        raise DeviceMemoryFull("GPU:0", 8192)

    for faults, named in (([], "GPU:0"), (["lost card = 2"], "GPU:2")):
        machine(3, H100)
        cards = tuple(card(known) for known in read_cards())
        readings = {"reading": lambda label: Reading(0.0), "software": lambda: installed(None)}
        on = SimpleNamespace(cards=cards, present=cards, **readings)
        machine(3, H100, *faults)
        outcome = on_machine(CheckContext(Devices((), spec="gpu"), machine=on), full)
        assert [each.device for each in outcome.findings] == [named]
