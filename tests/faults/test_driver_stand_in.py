"""The stand-ins for NVIDIA's libraries answer the real ``nvidia-ml-py`` and this package from a description."""

from __future__ import annotations

import ctypes
import shutil

import pynvml
import pytest
from described_machines import H100, text, worked

from harness.devices.described.order import uuid_of
from harness.devices.described.reading import read_description
from harness.devices.described.state import gpus_of
from harness.devices.nvidia import cuda_uuids, memory_by_process, read_cards
from harness.hardware.machine import Reading
from harness.hardware.nvml import Nvml
from harness.softgpu import described
from harness.softgpu.compiler import NAMES
from harness.softgpu.drivers import Drivers

_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = [
    pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs"),
    pytest.mark.usefixtures("no_machine_afterwards"),
]
V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB"


def machine(count: int, model: str = H100, *faults: str, **lines: str) -> Drivers:
    """The driver of a machine, which answers in this process."""
    made = read_description("test.toml", text(count, model, *faults, **lines))
    return described.install_driver(gpus_of(made, "test.toml"))


def reading(slot: int = 0, nvml: Nvml | None = None) -> Reading:
    return (nvml or Nvml.load()).reading(uuid_of(slot), 0.0)


def test_without_a_description_there_is_no_driver() -> None:
    machine(1).write({})
    assert read_cards() == ()
    assert cuda_uuids() == ()


def test_cards_are_counted_and_identified_by_the_driver_and_by_cuda() -> None:
    machine(3, software='visible = "2,0"')
    cards = read_cards()
    assert [card.uuid for card in cards] == [uuid_of(0), uuid_of(1), uuid_of(2)]
    assert [card.pci for card in cards] == ["0000:1B:00.0", "0000:1E:00.0", "0000:21:00.0"]
    assert {card.name for card in cards} == {H100}
    assert cuda_uuids() == (uuid_of(2), uuid_of(0))
    nvml = Nvml.load()
    assert nvml.driver_version() == "570.86.15"
    assert nvml.cuda_version() == "12.8"


def test_the_sensors_of_a_card_that_rests_and_works() -> None:
    driver = machine(2)
    rest = reading()
    assert (rest.clock_mhz, rest.temperature_c, rest.pcie_generation) == (396.0, 34.0, 1)
    assert (rest.throttle_reasons, rest.xid) == (("GpuIdle",), ())
    worked(driver, [0], 10.0)
    work = reading()
    assert work.throttle_reasons == ()
    assert (work.clock_max_mhz, work.pcie_generation, work.pcie_width, work.nvlinks_active) == (1980.0, 5, 16, 18)
    assert work.temperature_c is not None
    assert 34 < work.temperature_c < 67
    assert work.power_w is not None
    assert rest.power_w is not None
    assert work.power_w > rest.power_w
    assert reading(1).temperature_c == 34.0, "the other card rested"


def test_a_hot_card_slows_down_when_it_has_worked_for_so_long() -> None:
    driver = machine(1, H100, "hot card = 0, slowdown_after_s = 5.0")
    worked(driver, [0], 4.5)
    assert reading().throttle_reasons == ()
    worked(driver, [0], 2.0)
    hot = reading()
    assert hot.throttle_reasons == ("SwThermalSlowdown", "HwThermalSlowdown")
    assert hot.temperature_c is not None
    assert hot.temperature_c >= 87
    assert hot.clock_mhz is not None
    assert hot.clock_mhz < 0.97 * 1980


@pytest.mark.parametrize(
    ("fault", "sensor", "expected"),
    [
        ("ecc card = 0, corrected_per_s = 10.0", "ecc_corrected", 20),
        ("ecc card = 0, corrected_per_s = 0.0, uncorrected_per_s = 1.0", "ecc_uncorrected", 2),
        ("replays card = 0, per_s = 50.0", "pcie_replays", 100),
        ("link-width card = 0, width = 4", "pcie_width", 4),
        ("link-generation card = 0, generation = 2", "pcie_generation", 2),
        ("nvlink-down card = 0, links = 3", "nvlinks_active", 15),
        ("power-limit card = 0, watts = 350.0", "power_limit_w", 350.0),
        ("row-remap card = 0", "remapped_rows", 1),
        ("xid card = 0, code = 63, after_s = 1.5", "xid", (63,)),
    ],
)
def test_a_fault_is_seen_by_its_sensor_on_its_card_alone(fault: str, sensor: str, expected: object) -> None:
    clean = machine(2)
    worked(clean, [0, 1], 2.0)
    nvml = Nvml.load()
    before = getattr(reading(0, nvml), sensor)
    driver = machine(2, H100, fault)
    reading(0, nvml), reading(1, nvml)
    worked(driver, [0, 1], 2.0)
    assert getattr(reading(0, nvml), sensor) == expected != before
    assert getattr(reading(1, nvml), sensor) == before


def test_retired_pages_are_those_of_cards_before_the_a100() -> None:
    machine(2, V100, "retired-pages card = 1, count = 4")
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        pages = [pynvml.nvmlDeviceGetRetiredPages(handle, 1) for handle in handles]
        assert [len(each) for each in pages] == [0, 4]
        assert [pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle) for handle in handles] == [0, 1]
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetRemappedRows(handles[0])
    finally:
        pynvml.nvmlShutdown()


def test_memory_that_a_dead_process_holds_is_counted_under_its_id() -> None:
    machine(2, H100, "memory-held card = 1, share = 0.5, process = 4242")
    first, second = read_cards()
    assert second.total_mib is not None
    assert first.free_mib == first.total_mib
    assert second.free_mib == second.total_mib // 2
    assert memory_by_process() == {(uuid_of(1), 4242): second.total_mib // 2}


def test_a_lost_card_answers_with_its_error_and_the_others_answer() -> None:
    machine(3, H100, "lost card = 1")
    assert [card.index for card in read_cards()] == [0, 2]
    pynvml.nvmlInit()
    try:
        assert pynvml.nvmlDeviceGetCount() == 3
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetHandleByIndex(1)
    finally:
        pynvml.nvmlShutdown()


@pytest.mark.parametrize("code", sorted(set(pynvml.NVMLError._valClassMapping) - {1}))
def test_every_error_of_nvml_can_be_given_for_every_value(code: int) -> None:
    driver = machine(1)
    driver.write({"cards": 1, "card.0.uuid": uuid_of(0), "card.0.temperature": f"!{code}"})
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        with pytest.raises(pynvml.nvmlExceptionClass(code)):
            pynvml.nvmlDeviceGetTemperature(handle, 0)
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetPowerUsage(handle)
    finally:
        pynvml.nvmlShutdown()


def test_a_sensor_that_the_cards_lack_is_unknown_and_the_others_are_read() -> None:
    machine(1, A100, cards='without = ["pcie_width", "ecc_corrected", "xid"]')
    seen = reading()
    assert (seen.pcie_width, seen.ecc_corrected, seen.xid) == (None, None, None)
    assert seen.clock_max_mhz == 1410.0


def test_cuda_that_cannot_start_has_an_error_code_and_no_gpu() -> None:
    machine(2, H100, "cuda-unavailable")
    assert len(read_cards()) == 2
    assert cuda_uuids() == ()
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 802
