from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_nvml import UUIDS, fake_nvml, refuse, time_out

from harness.devices.nvidia import Card as DriverCard, read_cards
from harness.hardware.card import numa_node
from harness.hardware.machine import Reading
from harness.hardware.nvml import Nvml, Sensors, cpu_reading
from harness.records import Card

_WHOLE = Reading(
    at_s=2.5,
    clock_mhz=1755.0,
    clock_max_mhz=1980.0,
    temperature_c=64.0,
    temperature_slowdown_c=87.0,
    power_w=523.4,
    power_limit_w=700.0,
    utilization_percent=97.0,
    throttle_reasons=("SwPowerCap", "HwSlowdown"),
    ecc_corrected=3,
    ecc_uncorrected=0,
    remapped_rows=3,
    remap_pending=False,
    remap_failed=False,
    retired_pages=0,
    retired_pending=False,
    recovery_action=0,
    pcie_generation=5,
    pcie_generation_max=5,
    pcie_width=4,
    pcie_width_max=16,
    pcie_replays=7,
    nvlinks_active=3,
    nvlinks_total=4,
    nvlink_gbs=26.562,
    nvlink_errors=6,
    xid=(79, 63),
)


def test_everything_that_a_card_tells_is_read() -> None:
    assert Nvml(fake_nvml()).reading(UUIDS[1], 2.5) == _WHOLE


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("nvmlDeviceGetTemperature", {"temperature_c"}),
        ("nvmlDeviceGetTotalEccErrors", {"ecc_corrected", "ecc_uncorrected"}),
        ("nvmlDeviceGetRemappedRows", {"remapped_rows", "remap_pending", "remap_failed"}),
        ("nvmlDeviceGetRetiredPages", {"retired_pages"}),
        ("nvmlDeviceGetFieldValues", {"recovery_action", "nvlink_gbs"}),
        ("nvmlDeviceGetNvLinkState", {"nvlinks_active", "nvlinks_total", "nvlink_gbs", "nvlink_errors"}),
        ("nvmlDeviceGetCurrPcieLinkWidth", {"pcie_width"}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"throttle_reasons"}),
        ("nvmlDeviceRegisterEvents", {"xid"}),
    ],
)
def test_a_question_that_fails_leaves_out_its_own_field_alone(question: str, missing: set[str]) -> None:
    reading = Nvml(fake_nvml(**{question: refuse})).reading(UUIDS[0], 2.5)
    assert {field.name for field in fields(Reading) if getattr(reading, field.name) is None} == missing


def test_a_function_or_constant_that_an_older_release_lacks_is_a_field_that_is_missing() -> None:
    old = fake_nvml()
    for name in ("nvmlDeviceGetRemappedRows", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"):
        delattr(old, name)
    reading = Nvml(old).reading(UUIDS[0], 2.5)
    assert reading.remapped_rows is None
    assert reading.temperature_slowdown_c is None
    assert reading.temperature_c == 64.0


def test_reasons_are_read_by_their_older_name_too_and_none_is_an_empty_tuple() -> None:
    old = fake_nvml(nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x8)
    del old.nvmlDeviceGetCurrentClocksEventReasons
    assert Nvml(old).reading(UUIDS[0], 0.0).throttle_reasons == ("HwSlowdown",)
    clean = fake_nvml(nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0)
    assert Nvml(clean).reading(UUIDS[0], 0.0).throttle_reasons == ()


def test_critical_errors_add_up_over_readings_and_none_is_an_empty_tuple() -> None:
    nvml = Nvml(fake_nvml())
    assert nvml.reading(UUIDS[0], 0.0).xid == (79, 63)
    assert nvml.reading(UUIDS[0], 1.0).xid == (79, 63)
    assert Nvml(fake_nvml(nvmlEventSetWait_v2=time_out)).reading(UUIDS[0], 0.0).xid == ()
    assert Nvml(fake_nvml(nvmlEventSetWait_v2=refuse)).reading(UUIDS[0], 0.0).xid is None


def test_an_older_release_takes_the_uuid_as_bytes() -> None:
    def by_bytes(uuid: Any) -> int:
        return UUIDS.index(uuid.decode())

    def strict(uuid: Any) -> int:
        return by_bytes(uuid) if isinstance(uuid, bytes) else refuse()

    assert Nvml(fake_nvml(nvmlDeviceGetHandleByUUID=strict)).reading(UUIDS[1], 2.5) == _WHOLE


def test_a_card_that_is_not_there_and_a_missing_library_give_an_empty_reading() -> None:
    assert Nvml(fake_nvml(nvmlDeviceGetHandleByUUID=refuse)).reading(UUIDS[0], 1.0) == Reading(1.0)
    assert Nvml(None).reading(UUIDS[0], 1.0) == Reading(1.0)
    assert Nvml(None).driver_version() is None
    assert Nvml(None).cuda_version() is None


def test_the_cards_of_the_driver_and_its_versions() -> None:
    nvml = Nvml(fake_nvml())
    assert read_cards(fake_nvml()) == tuple(
        DriverCard(
            "NVIDIA H100 80GB HBM3",
            UUIDS[index],
            85_000_000_000 // 2**20,
            84_000_000_000 // 2**20,
            index,
            f"0000:{0x3B + index:02X}:00.0",
        )
        for index in range(2)
    )
    assert (nvml.driver_version(), nvml.cuda_version()) == ("550.54.15", "12.4")


def test_a_card_that_has_fallen_off_the_bus_is_left_out_and_the_others_are_not() -> None:
    def handle(index: int) -> int:
        return refuse() if index == 0 else index

    assert [card.index for card in read_cards(fake_nvml(nvmlDeviceGetHandleByIndex=handle))] == [1]


def test_a_bus_id_is_written_as_the_kernel_does() -> None:
    short = fake_nvml(nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId="0000:3B:00.0"))
    assert [card.pci for card in read_cards(short)] == ["0000:3B:00.0"] * 2
    assert [card.pci for card in read_cards(fake_nvml(nvmlDeviceGetPciInfo=refuse))] == [None] * 2


def test_the_numa_node_of_a_card(tmp_path: Path) -> None:
    (tmp_path / "0000:3b:00.0").mkdir()
    (tmp_path / "0000:3b:00.0" / "numa_node").write_text("1\n")
    (tmp_path / "0000:3c:00.0").mkdir()
    (tmp_path / "0000:3c:00.0" / "numa_node").write_text("-1\n")
    assert numa_node("0000:3B:00.0", tmp_path) == 1
    assert numa_node("0000:3C:00.0", tmp_path) is None
    assert numa_node("0000:3D:00.0", tmp_path) is None
    assert numa_node(None, tmp_path) is None


def test_sensors_are_those_of_the_card_by_its_uuid() -> None:
    # TensorFlow's GPU:0 is the driver's second card.
    cards = [Card("GPU:0", "H100", uuid=UUIDS[1]), Card("CPU:0", "CPU"), Card("worker/1/CPU:0", "CPU")]
    seen: list[str] = []

    def by_uuid(uuid: str) -> int:
        seen.append(uuid)
        return UUIDS.index(uuid)

    sensors = Sensors(cards)
    sensors.nvml = Nvml(fake_nvml(nvmlDeviceGetHandleByUUID=by_uuid))
    assert sensors.reading("GPU:0", 2.5) == _WHOLE
    assert seen == [UUIDS[1]]
    assert sensors.reading("CPU:0", 3.0).at_s == 3.0
    assert sensors.reading("worker/1/CPU:0", 3.0) == Reading(3.0), "nothing is known of another host"


def test_a_cpu_without_sensors_says_nothing_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    class Frequency:
        current, max = 0.0, 0.0

    monkeypatch.setattr(psutil, "cpu_freq", Frequency)
    monkeypatch.setattr(psutil, "sensors_temperatures", dict, raising=False)
    reading = cpu_reading(1.0)
    assert (reading.clock_mhz, reading.clock_max_mhz, reading.temperature_c) == (None, None, None)


def test_the_hottest_core_is_the_temperature_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    class Sensor:
        def __init__(self, current: float, high: float | None) -> None:
            self.current, self.high = current, high

    found = {"nvme": [Sensor(99.0, 80.0)], "coretemp": [Sensor(51.0, 95.0), Sensor(63.0, None)]}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: found, raising=False)
    reading = cpu_reading(1.0)
    assert (reading.temperature_c, reading.temperature_slowdown_c) == (63.0, 95.0)
