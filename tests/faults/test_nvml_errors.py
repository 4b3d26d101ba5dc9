"""Every error of NVML and of cuInit: a description can ask for it, programs get it, and no card is good in silence."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from described_machines import H100, text

from harness.checking.check import CheckContext
from harness.devices.described.nvml_errors import NVML_ERRORS
from harness.devices.described.order import uuid_of
from harness.devices.described.reading import read_description
from harness.devices.described.state import gpus_of
from harness.devices.inventory import read_inventory
from harness.devices.nvidia import cuda_error, memory_by_process, nvml_error, read_cards, silent_cards
from harness.hardware.cards.judge import judge_cuda
from harness.hardware.nvml import Nvml
from harness.hardware.software.installed import Software
from harness.hardware.sustained_load import check as sustained_load
from harness.hardware.sustained_load.measure import Load
from harness.records import Card, Verdict
from harness.softgpu import DescribedGpus, described
from harness.softgpu.compiler import NAMES
from harness.softgpu.drivers import nvml_functions

_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = [
    pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs"),
    pytest.mark.usefixtures("no_machine_afterwards"),
]
#: Not about a card that has something wrong: it is given to another process, or there is no driver.
NO_PERMISSION, NO_DRIVER = "NVML_ERROR_NO_PERMISSION", ("NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_LIBRARY_NOT_FOUND")


def gpus(*faults: str, count: int = 3, model: str = H100) -> DescribedGpus:
    lines = "software_mib = 64"
    return gpus_of(read_description("test.toml", text(count, model, *faults, cards=lines)), "test.toml")


def machine(*faults: str, count: int = 3, model: str = H100) -> None:
    described.install_driver(gpus(*faults, count=count, model=model))


def test_the_errors_have_the_numbers_of_nvml() -> None:
    known = {name: getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")}
    assert known == NVML_ERRORS


@pytest.mark.parametrize("name", NVML_ERRORS)
def test_each_error_can_be_that_of_a_card_and_the_others_answer(name: str) -> None:
    machine(f'nvml-error error = "{name}", card = 1')
    assert [card.uuid for card in read_cards()] == [uuid_of(0), uuid_of(2)]
    silent = silent_cards()
    assert [card.index for card in silent] == ([] if name == NO_PERMISSION else [1])
    assert all(card.error == str(pynvml.NVMLError(NVML_ERRORS[name])) for card in silent)
    assert len({str(pynvml.NVMLError(number)) for number in NVML_ERRORS.values()}) == len(NVML_ERRORS)


@pytest.mark.parametrize("name", NVML_ERRORS)
def test_each_error_can_be_that_of_the_start_and_is_no_missing_driver(name: str) -> None:
    machine(f'nvml-error error = "{name.removeprefix("NVML_ERROR_")}", call = "nvmlInit"')
    with pytest.raises(pynvml.nvmlExceptionClass(NVML_ERRORS[name])):
        pynvml.nvmlInit()
    assert (read_cards(), silent_cards(), memory_by_process()) == ((), (), {})
    error = None if name in NO_DRIVER else str(pynvml.NVMLError(NVML_ERRORS[name]))
    assert nvml_error() == error
    config: Any = SimpleNamespace(list_physical_devices=lambda _: [])
    unusable = read_inventory(SimpleNamespace(config=config)).unusable
    assert unusable == (() if error is None else (f"GPUs that NVML cannot count ({error})",))
    machine()
    assert nvml_error() is None
    assert len(read_cards()) == 3


def _asked(name: str) -> None:
    """Call a function of nvidia-ml-py, about the second card if it is about one."""
    function = getattr(pynvml, name)
    known: dict[str, list[Any]] = {
        "nvmlDeviceGetHandleByIndex": [1],
        "nvmlDeviceGetHandleByUUID": [uuid_of(1)],
        "nvmlDeviceGetHandleBySerial": ["1320000001"],
        "nvmlDeviceGetHandleByPciBusId": ["0000:1E:00.0"],
        "nvmlDeviceGetFieldValues": [None, [pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]],
    }
    arguments = known.get(name, [None, *[0] * 3])
    if name in ("nvmlEventSetFree", "nvmlEventSetWait"):
        arguments = [pynvml.nvmlEventSetCreate(), 0]
    elif name == "nvmlDeviceRegisterEvents":
        arguments = [None, 8, pynvml.nvmlEventSetCreate()]
    elif name == "nvmlDeviceGetDeviceHandleFromMigDeviceHandle":
        whole = pynvml.nvmlDeviceGetHandleByIndex(1)
        arguments = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, 0)]
    if arguments[0] is None:
        arguments[0] = pynvml.nvmlDeviceGetHandleByIndex(1)
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    function(*arguments[: len(required)])


@pytest.mark.parametrize("name", sorted(set(nvml_functions()) - {"nvmlInit"}))
def test_each_function_of_nvml_can_fail_for_a_card_or_for_all(name: str) -> None:
    lines = "software_mib = 64\nslices = 1"
    about_card = nvml_functions()[name]
    try:
        for card in ("", ", card = 1") if about_card else ("",):
            fault = f'nvml-error error = "NVML_ERROR_IRQ_ISSUE", call = "{name}"{card}'
            made = read_description("test.toml", text(2, H100, fault, cards=lines))
            described.install_driver(gpus_of(made, "test.toml"))
            pynvml.nvmlInit()
            with pytest.raises(pynvml.nvmlExceptionClass(pynvml.NVML_ERROR_IRQ_ISSUE)):
                _asked(name)
    finally:
        machine()
        pynvml.nvmlShutdown()


@pytest.mark.parametrize(
    ("call", "lacking"),
    [
        ("nvmlDeviceGetTemperature", "temperature c of GPU:1"),
        ("nvmlDeviceGetTotalEccErrors", "ecc corrected, ecc uncorrected of GPU:1"),
        ("nvmlDeviceGetRemappedRows", "remapped rows of GPU:1"),
        ("nvmlDeviceRegisterEvents", "xid of GPU:1"),
        ("nvmlDeviceGetHandleByUUID", "all of GPU:1"),
    ],
)
def test_what_one_card_does_not_say_is_named_with_the_card(call: str, lacking: str) -> None:
    def unread() -> str:
        nvml = Nvml.load()
        cards = [Card(f"GPU:{at}", H100, kind="GPU", uuid=uuid_of(at)) for at in range(3)]
        loads = [Load(card, (), nvml.reading(card.uuid or "", 0.0)) for card in cards]
        return sustained_load._sensors(loads)

    machine(f'nvml-error error = "NVML_ERROR_UNKNOWN", call = "{call}", card = 1')
    assert unread() == f"sensors not available: nvlink errors; {lacking}"
    machine()
    assert unread() == "sensors not available: nvlink errors"


def test_events_that_cannot_be_read_are_unknown_and_not_none() -> None:
    machine('nvml-error error = "NVML_ERROR_UNKNOWN", call = "nvmlEventSetWait"')
    assert Nvml.load().reading(uuid_of(0), 0.0).xid is None
    machine()
    assert Nvml.load().reading(uuid_of(0), 0.0).xid == ()


def test_a_card_without_memory_of_its_own_is_a_card() -> None:
    machine('nvml-error error = "NVML_ERROR_NOT_SUPPORTED", call = "nvmlDeviceGetMemoryInfo", card = 1')
    assert [card.total_mib is None for card in read_cards()] == [False, True, False]
    assert silent_cards() == ()


def test_each_error_of_cuinit_is_one_line_with_its_number() -> None:
    for code in range(1, 1000):
        machine(f"cuda-unavailable code = {code}", count=1)
        assert cuda_error() == code
        software = Software("2.21.0", "2.0", "3.12", built_with_cuda=True, cuda_error=code)
        known = [Card("nvml:0", H100, kind="GPU", uuid=uuid_of(0))]
        (found,) = judge_cuda([], known, software)
        assert found.message.startswith(f"nvml:0 cannot be used: cuInit fails with error {code}")
        assert len(found.message.splitlines()) == 1
        assert found.next_step


def every_error() -> None:
    """Run checks on machines with each error, of a card and of the start, and on the machine in good order."""
    import harness
    from harness.checks.registry import SUITE
    from harness.hardware.real import TensorFlowMachine
    from harness.hardware.watch import CardWatch
    from harness.softgpu import switch

    with TemporaryDirectory() as folder:
        path = Path(folder) / "test.toml"
        path.write_text(text(3, H100, cards="software_mib = 64"), encoding="utf-8")
        devices = harness.configure(f"softgpu:{path}")
    built: dict[Any, Any] = {}

    def judged(*faults: str) -> tuple[Verdict, list[str]]:
        switch(gpus(*faults))
        on = TensorFlowMachine(devices)
        on._built = built
        CardWatch().cards_are(on.cards)
        checks = SUITE.select(["software", "cards"])
        software, cards = (check.run(CheckContext(devices, machine=on)) for check in checks)
        assert software.verdict in (Verdict.PASS, Verdict.UNKNOWN), (faults, software.reason)
        assert all(each.next_step and len(each.message.splitlines()) == 1 for each in cards.findings)
        return cards.verdict, [each.message for each in cards.findings]

    for name, number in NVML_ERRORS.items():
        said = str(pynvml.NVMLError(number))
        silent = [f"nvml:1 (PCI 0000:1E:00.0) does not answer the driver: {said}"]
        verdict, messages = judged(f'nvml-error error = "{name}", card = 1')
        if name == NO_PERMISSION:
            (message,) = messages
            assert verdict is Verdict.WARN
            assert message.startswith("GPU:1 is used by TensorFlow, but NVML does not describe it")
        else:
            assert (verdict, messages) == (Verdict.FAIL, silent), name
        why = "unknown to the driver" if name in NO_DRIVER else f"NVML fails: {said}"
        for call in ("nvmlInit", "nvmlDeviceGetCount"):
            # One cause for all of them.
            expected = [f"each of the 3 GPUs is on the PCI bus, but {why}"]
            assert judged(f'nvml-error error = "{name}", call = "{call}"') == (Verdict.FAIL, expected), (name, call)
        assert judged() == (Verdict.PASS, []), name


@pytest.mark.long
def test_no_error_of_nvml_is_passed_over_in_silence(fresh_process: Callable[..., object]) -> None:
    fresh_process(every_error, timeout_s=900)
