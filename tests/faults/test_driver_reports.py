"""What only a driver tells of its cards: each fault has its action on its card, and the machine without it has none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from described_machines import H100, text, worked

from harness.checking.check import CheckContext
from harness.devices import bus
from harness.devices.described.driver_tables import RECOVERY_ACTIONS
from harness.devices.described.reading import read_description
from harness.devices.described.state import gpus_of
from harness.devices.device import Devices
from harness.devices.inventory import read_inventory
from harness.devices.nvidia import read_cards
from harness.errors import InvalidDescription
from harness.hardware.cards import check as cards_check
from harness.hardware.finding import joined
from harness.hardware.nvml import Nvml
from harness.hardware.profile import profile_for
from harness.hardware.real import TensorFlowMachine
from harness.hardware.surroundings import surroundings
from harness.hardware.sustained_load.judge import judge_sensors, judge_settings, judge_unread, settings_of
from harness.hardware.sustained_load.measure import Load
from harness.records import Card, CheckResult, Exercised, Finding, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts, verdict_lines
from harness.softgpu import DescribedGpus, described
from harness.softgpu.compiler import NAMES

_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = [
    pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs"),
    pytest.mark.usefixtures("no_machine_afterwards"),
]
A100, RTX, GB10 = "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090", "NVIDIA GB10"


def gpus(count: int, model: str, *faults: str, **lines: str) -> DescribedGpus:
    return gpus_of(read_description("test.toml", text(count, model, *faults, **lines)), "test.toml")


def findings(
    count: int, model: str, *faults: str, samples: int = 10, **lines: str
) -> tuple[tuple[Card, ...], list[Finding], list[str]]:
    """What the sensors come to after a load in which each sample follows 0.3 s of work, and the hints."""
    driver = described.install_driver(gpus(count, model, *faults, **lines))
    nvml = Nvml.load()
    cards = tuple(
        Card(
            f"GPU:{known.index}",
            known.name,
            index=known.index,
            uuid=known.uuid,
            memory_bytes=None if known.total_mib is None else known.total_mib * 2**20,
            kind="GPU",
        )
        for known in read_cards()
    )
    loads = [Load(card, (), nvml.reading(card.uuid or "", 0.0)) for card in cards]
    for number in range(samples):
        worked(driver, range(count), 0.3)
        for load in loads:
            load.during.append(nvml.reading(load.card.uuid or "", 0.3 * (number + 1)))
    found: list[Finding] = []
    for load in loads:
        profile = profile_for(load.card.name)
        found += judge_sensors(load, [other for other in loads if other.card.name == load.card.name], profile)
        found += settings_of(load, profile)[1]
    odd, hints = judge_settings(loads)
    return cards, joined([*found, *odd, *judge_unread(loads, surroundings())], cards), hints


def record(cards: tuple[Card, ...], found: list[Finding]) -> RunRecord:
    result = CheckResult("sustained-load", Verdict.FAIL, "", "", Exercised(values=1), findings=tuple(found))
    return RunRecord("", "", (), "", Verdict.FAIL, 1, True, (result,), cards=cards)


def actions(count: int, model: str, *faults: str, **lines: Any) -> dict[str, tuple[str, Verdict]]:
    """The action for each card, or for all of them together."""
    cards, found, _ = findings(count, model, *faults, **lines)
    assert all(each.next_step for each in found)
    verdicts = card_verdicts(record(cards, found))
    return {
        "all" if each.shared else ", ".join(label.removeprefix("GPU:") for label in each.labels): (
            each.action,
            each.severity,
        )
        for each in verdicts
    }


@cache
def of_clean(model: str) -> dict[str, tuple[str, Verdict]]:
    """The actions on a machine of four such cards in good order."""
    return actions(4, model)


FAIL, WARN = Verdict.FAIL, Verdict.WARN
SENSORS = (
    *("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo", "nvmlDeviceGetTotalEccErrors"),
    *("nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPcieReplayCounter"),
)


UNCORRECTED = "ecc card = 0, uncorrected_per_s = 5.0"


def failing(error: str, *calls: str, card: int | None = None) -> list[str]:
    where = "" if card is None else f", card = {card}"
    return [f'nvml-error error = "{error}", call = "{call}"{where}' for call in calls]


@pytest.mark.parametrize(
    ("model", "faults", "wanted"),
    [
        (H100, ["nvlink-errors card = 0, links = [14], old = 505"], {"0": ("watch", WARN)}),
        (H100, ["nvlink-errors card = 0, links = [14], old = 505, per_s = 1.0"], {"0": ("reseat", WARN)}),
        (H100, ['nvlink-errors card = 1, links = [3], error = "crc-flit", per_s = 1000'], {"1": ("reseat", FAIL)}),
        (H100, ['nvlink-errors card = 1, error = "crc-data", per_s = 5.0'], {"1": ("reseat", WARN)}),
        (A100, ['nvlink-errors card = 2, links = [0, 11], error = "replay", old = 5000'], {"2": ("watch", WARN)}),
        (H100, ["clock-lock card = 2"], {"2": ("unlock its clocks", FAIL)}),
        (A100, ["clock-lock card = 2, mhz = 1000"], {"2": ("unlock its clocks", WARN)}),
        (H100, ['clock-lock card = 1, clock = "memory"'], {"1": ("unlock its clocks", FAIL)}),
        (H100, ["power-cap card = 3"], {"3": ("look at its power supply and the board's power limits", FAIL)}),
        (H100, ["power-brake card = 1"], {"1": ("look at its power supply", FAIL)}),
        (RTX, ["power-limit card = 1, watts = 220"], {"1": ("raise its power limit", WARN)}),
        (H100, ['recovery-action card = 1, action = "reboot"'], {"1": ("reboot the node", FAIL)}),
        (H100, ["recovery-action card = 1"], {"1": ("reset", FAIL)}),
        (
            H100,
            ['recovery-action card = 1, action = "drain-p2p"', "ecc card = 1, uncorrected_per_s = 1.0"],
            {"1": ("stop copies between GPUs, and start their programs again", FAIL)},
        ),
        # What the driver asks for goes before the strongest word, and a repair that failed before that.
        (A100, [UNCORRECTED, "row-remap card = 0"], {"0": ("reset", FAIL)}),
        (
            A100,
            ["ecc card = 0, uncorrected_per_s = 5.0", 'row-remap card = 0, state = "failed"'],
            {"0": ("replace", FAIL)},
        ),
        (
            A100,
            ["xid card = 0, code = 48, after_s = 0.05", "ecc card = 0, uncorrected_per_s = 5.0"],
            {"0": ("reset", FAIL)},
        ),
        *(
            (H100, [f"xid card = 3, code = {code}, after_s = 0.05"], {"3": ("reset", FAIL)})
            for code in (46, 61, 95, 119, 140, 143, 145)
        ),
        (H100, ["xid card = 3, code = 54, after_s = 0.05"], {"3": ("look at its power supply", FAIL)}),
        (H100, ["clock-lock card = 1", "clock-lock card = 3"], dict.fromkeys("13", ("unlock its clocks", FAIL))),
        *(
            (H100, [f"xid card = 2, code = {code}, after_s = 0.2"], {"2": (OF_PROGRAM, WARN)})
            for OF_PROGRAM in ("look at the program that used it; the card is not to blame",)
            for code in (13, 31, 43, 45, 68, 109)
        ),
        (H100, ["ecc-off card = 2"], {"2": ("switch its ECC on", WARN)}),
        (H100, ["fabric-state card = 1"], {"1": ("start the fabric manager", FAIL)}),
        (H100, failing("UNKNOWN", SENSORS[0], card=2), {"2": ("reset", FAIL)}),
        (H100, failing("TIMEOUT", *SENSORS, card=0), {"0": ("reset", FAIL)}),
        (A100, failing("CORRUPTED_INFOROM", SENSORS[3], card=1), {"1": ("replace", FAIL)}),
        # One cause for all cards, which is not in a card.
        (H100, failing("UNKNOWN", SENSORS[1]), {"all": ("reset", WARN)}),
        (H100, [f"clock-lock card = {slot}" for slot in range(4)], {"all": ("unlock its clocks", FAIL)}),
        (H100, [f"fabric-state card = {slot}" for slot in range(4)], {"all": ("start the fabric manager", FAIL)}),
    ],
)
def test_what_the_driver_tells_has_its_action(
    model: str, faults: list[str], wanted: dict[str, tuple[str, Verdict]]
) -> None:
    assert actions(4, model, *faults) == wanted
    assert of_clean(model) == {}


@pytest.mark.parametrize(
    ("count", "model", "faults", "lines"),
    [
        (4, H100, ["thermal-sample card = 1"], ""),
        (4, H100, ["nvlink-errors card = 0, links = [14], old = 3"], ""),
        (4, A100, ["ecc card = 1, corrected_per_s = 0.2, old_corrected = 100000"], ""),
        (4, H100, failing("NOT_SUPPORTED", *SENSORS, card=2), ""),
        (4, H100, [f"persistence-off card = {slot}" for slot in range(4)], ""),
        (4, H100, [f"ecc-off card = {slot}" for slot in range(4)], ""),
        (1, GB10, [], 'compute_capability = "12.1"\non_chip = true'),
        (1, "NVIDIA Thor", ["link-generation card = 0", "link-width card = 0"], 'compute_capability = "11.0"'),
        (4, "NVIDIA B200", [], 'compute_capability = "10.0"\npcie_generation = 6\nnvlinks = 18\nlink_gbs = 53.125'),
        (3, "NVIDIA A30", [], 'compute_capability = "8.0"\nbridges = [[0, 1, 4]]'),
        (2, A100, [], "slices = 2"),
    ],
)
def test_what_is_no_fault_of_a_machine_has_no_action(count: int, model: str, faults: list[str], lines: str) -> None:
    assert actions(count, model, *faults, cards=lines) == {}


def test_a_link_is_named_by_its_number_and_the_first_line_blames_no_card_for_what_all_show() -> None:
    cards, (old,), _ = findings(4, H100, "nvlink-errors card = 0, links = [14], old = 505")
    assert old.message == "GPU:0 has counted 505 recovery errors on NVLink 14 since the driver was loaded"
    _, (several,), _ = findings(2, H100, 'nvlink-errors card = 0, links = [0, 1, 2], error = "crc-flit", per_s = 900')
    assert "on NVLinks 0 to 2 under load" in several.message
    cards, found, _ = findings(8, H100, *[f"clock-lock card = {slot}" for slot in range(8)])
    lines = list(verdict_lines(record(cards, found)))
    assert lines[0] == "the machine: unlock its clocks; 8 GPUs otherwise healthy"
    assert found[0].message.startswith("each of the 8 GPUs runs at 345 of 1,980 MHz under load")


def test_modes_are_hints() -> None:
    _, found, hints = findings(4, H100, "persistence-off card = 2")
    assert not found
    assert [hint.partition(":")[0] for hint in hints] == ["hint"]
    assert "GPU:2" in hints[0]
    assert findings(4, H100)[2] == []


def test_a_sensor_that_answers_now_and_then_is_a_warning() -> None:
    described.install_driver(gpus(2, H100))
    nvml = Nvml.load()
    cards = [Card(f"GPU:{at}", H100, kind="GPU", uuid=known.uuid) for at, known in enumerate(read_cards())]
    loads = [Load(card, (), nvml.reading(card.uuid or "", 0.0)) for card in cards]
    for number in range(9):
        faults = failing("TIMEOUT", *SENSORS, card=1) if number == 4 else []
        described.install_driver(gpus(2, H100, *faults))
        for load in loads:
            load.during.append(nvml.reading(load.card.uuid or "", 1.0 + number))
    (found,) = judge_unread(loads, surroundings())
    assert (found.device, found.severity) == ("GPU:1", Verdict.WARN)
    assert "now and then" in found.message
    slices = [replace(load, card=replace(load.card, part="MIG slice")) for load in loads]
    assert list(judge_unread(slices, surroundings())), "a slice has the sensors of its card"


def test_each_recovery_action_of_nvml_has_one_step_and_nothing_beside_it() -> None:
    for action in RECOVERY_ACTIONS:
        faults = [f'recovery-action card = 0, action = "{action}"', "row-remap card = 0", "xid card = 0, code = 48"]
        _, found, _ = findings(1, H100, *faults[::2])
        assert len({each.next_step for each in found}) == 1, action
        assert found[0].next_step.startswith("the driver asks for")
        if "reboot" in action:
            assert all("reset" not in each.next_step for each in found)


@pytest.fixture
def on_machine_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DescribedGpus]:
    """Let the process be on a described machine."""

    def be(count: int, model: str, *faults: str, **lines: str) -> DescribedGpus:
        made = gpus(count, model, *faults, **lines)
        described.install_driver(made)
        for module in ("harness.devices.bus", "harness.hardware.card"):
            monkeypatch.setattr(f"{module}.loaded", lambda: made)
        return made

    return be


@pytest.mark.devices(kind="logical-cpu")
@pytest.mark.parametrize("count", [1, 2, 8])
def test_cards_without_a_driver_fail_with_one_cause(
    devices: Devices, on_machine_of: Callable[..., DescribedGpus], count: int
) -> None:
    made = on_machine_of(count, H100, "driver-not-loaded")
    assert made.count == 0
    assert len(bus.without_driver()) == count
    nothing: Any = SimpleNamespace(config=SimpleNamespace(list_physical_devices=lambda _: []))
    unusable = read_inventory(nothing).unusable
    assert unusable[0] == "GPU at PCI 0000:1B:00.0 (NVIDIA's driver is not loaded)"
    asked = Devices((), spec="auto", reason="")
    result = cards_check.run(CheckContext(asked, machine=TensorFlowMachine(asked)))
    (found,) = result.findings
    assert (result.verdict, found.device, len(found.devices)) == (Verdict.FAIL, None, count)
    assert found.message.startswith("NVIDIA's driver is not loaded: ")
    assert "modprobe nvidia" in found.next_step
    assert "reseat" not in found.next_step
    chosen = Devices(tuple(devices), spec="cpu:4")
    assert cards_check.run(CheckContext(chosen, machine=TensorFlowMachine(chosen))).verdict is Verdict.PASS
    on_machine_of(count, H100, "driver-not-loaded", software="container = true")
    assert bus.without_driver() == (), "a container sees the bus of its host"
    on_machine_of(count, H100)
    assert bus.without_driver() == ()


def test_a_card_that_is_only_on_the_bus_is_named_and_its_twin_is_not_missed(
    on_machine_of: Callable[..., DescribedGpus],
) -> None:
    asked = Devices((), spec="auto", reason="")
    on_machine_of(4, H100, "bus-only card = 2")
    made = TensorFlowMachine(asked)
    assert [(card.pci, card.error) for card in made.present if card.error] == [
        ("0000:21:00.0", "is on the PCI bus, but unknown to the driver")
    ]
    on_machine_of(4, H100)
    assert not [card for card in TensorFlowMachine(asked).present if card.error]


@pytest.mark.parametrize(
    ("model", "fault", "software", "step", "never"),
    [
        (RTX, "cuda-unavailable code = 802", "", "no NVSwitch joins these GPUs", "nvidia-fabricmanager"),
        (H100, "cuda-unavailable code = 802", "", "nvidia-fabricmanager", "no NVSwitch"),
        (H100, "cuda-unavailable code = 3", "", "uvm_disable_hmm=1", "CUDA_VISIBLE_DEVICES"),
        (H100, "cuda-unavailable code = 3", 'driver = "470.57.02"\ndriver_cuda = "11.4"', "reboot the node", "hmm"),
        *(
            (H100, f"cuda-unavailable code = {code}", "container = true", "container", "reboot the node")
            for code in (3, 100, 304, 802, 803, 999)
        ),
        (H100, "cuda-unavailable code = 999", "", "modprobe nvidia-uvm", "container"),
    ],
)
def test_the_advice_about_an_error_of_cuinit_depends_on_the_machine(
    on_machine_of: Callable[..., DescribedGpus], model: str, fault: str, software: str, step: str, never: str
) -> None:
    asked = Devices((), spec="auto", reason="")
    on_machine_of(2, model, fault, software=software)
    result = cards_check.run(CheckContext(asked, machine=TensorFlowMachine(asked)))
    steps = {each.next_step for each in result.findings}
    assert result.verdict is Verdict.FAIL
    assert len(steps) == 1
    assert step in (said := steps.pop())
    assert never not in said.lower()


def test_a_container_that_lost_its_gpus_is_told_to_start_again(on_machine_of: Callable[..., DescribedGpus]) -> None:
    asked = Devices((), spec="auto", reason="")
    for error in ("UNKNOWN", "LIB_RM_VERSION_MISMATCH"):
        faults = ["cuda-unavailable code = 999", f'nvml-error error = "{error}", call = "nvmlInit"']
        on_machine_of(2, H100, *faults, software="container = true")
        result = cards_check.run(CheckContext(asked, machine=TensorFlowMachine(asked)))
        (found,) = result.findings
        assert (result.verdict, found.device) == (Verdict.FAIL, None)
        assert "restart the container" in found.next_step
        assert "reboot" not in found.next_step
        on_machine_of(2, H100, *faults)
        host = cards_check.run(CheckContext(asked, machine=TensorFlowMachine(asked)))
        assert all("container" not in each.next_step for each in host.findings)


@pytest.mark.parametrize(
    ("fault", "accepted"),
    [
        ("nvlink-errors card = 0, links = [18], old = 5", "numbers below 18"),
        ("nvlink-errors card = 0", "a number above 0"),
        ("clock-lock card = 0, mhz = 1980", "less than 1980"),
        ("power-cap card = 0, watts = 700", "less than 700"),
    ],
)
def test_a_fault_that_changes_nothing_is_refused(fault: str, accepted: str) -> None:
    with pytest.raises(InvalidDescription, match=accepted):
        read_description("test.toml", text(2, H100, fault))
