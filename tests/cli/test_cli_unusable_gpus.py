"""A machine whose GPUs nobody can use fails, whatever was selected, and no CPU is tested in their place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run

from harness.records import RunRecord, Verdict
from harness.report.storage import load_run
from harness.softgpu.compiler import NAMES

pytestmark = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="needs a C++ compiler, to make software GPUs")


def described(folder: Path, *faults: str, count: int = 2) -> str:
    head = f'schema_version = 1\n[cards]\ncount = {count}\nmodel = "NVIDIA L4"\nsoftware_mib = 64\n'
    tables = ["[[fault]]\n" + fault.replace(", ", "\n") for fault in faults]
    (folder / "machine.toml").write_text("\n".join([head, *tables, ""]), encoding="utf-8")
    return "machine.toml"


def checked(folder: Path, *faults: str, only: str, count: int = 2) -> tuple[int, str, RunRecord]:
    selected = ("--fake", described(folder, *faults, count=count), "--only", only)
    done = run(folder, "validate", *selected, planted=False)
    return done.returncode, done.stdout, load_run(folder / "harness-report")


@pytest.mark.parametrize(
    ("fault", "why", "action"),
    [
        # No NVSwitch joins these cards, so that no fabric manager can help.
        ("code = 802", "error 802 (SYSTEM_NOT_READY): the driver is not ready", "reboot the node"),
        ("code = 803", "error 803 (SYSTEM_DRIVER_MISMATCH)", "reboot the node"),
        ("code = 100", "error 100 (NO_DEVICE): no GPU is visible", "look at CUDA_VISIBLE_DEVICES"),
        ("code = 7000", "error 7000: CUDA does not start", "find out why CUDA does not start"),
    ],
)
def test_cards_that_cuda_cannot_use_fail_each_with_its_identity_and_no_check_passes_on_cpus(
    tmp_path: Path, fault: str, why: str, action: str
) -> None:
    code, text, made = checked(tmp_path, f'kind = "cuda-unavailable", {fault}', only="memory")
    assert (code, made.verdict, made.described) == (1, Verdict.FAIL, True)
    verdicts = {each.check: each.verdict for each in made.results}
    assert (verdicts["cards"], verdicts["memory"]) == (Verdict.FAIL, Verdict.SKIP)
    assert all(each.exercised.devices == () for each in made.results), "no CPU was tested"
    assert [(each.labels, each.action) for each in made.card_verdicts] == [
        (("nvml:0",), action),
        (("nvml:1",), action),
    ]
    page = (tmp_path / "harness-report" / "report.html").read_text(encoding="utf-8")
    for slot in range(2):
        identity = f"serial 132000000{slot}, GPU-c0ffee0{slot}-0000-4000-8000-00000000000{slot}"
        assert identity in text
        assert identity in page
    assert text.count(f"    cannot be used: cuInit fails with {why}") == 1, "one cause is told once"
    (skipped,) = (each for each in made.results if each.check == "memory")
    assert "no GPU can be used" in skipped.reason


def test_a_lost_or_missing_card_is_named_by_what_can_still_be_read_of_it(tmp_path: Path) -> None:
    code, text, made = checked(tmp_path, 'kind = "lost", card = 1', 'kind = "missing", card = 2', only="cards", count=3)
    assert (code, made.verdict) == (1, Verdict.FAIL)
    assert "GPU nvml:1 (PCI 0000:1E:00.0, serial number and UUID cannot be read): power the node off" in text
    assert "GPU nvml:2 (serial 1320000002, GPU-c0ffee02-0000-4000-8000-000000000002, PCI 0000:21:00.0): find" in text
    assert "1 other GPU healthy" in text


@pytest.mark.parametrize(("kind", "action"), [("lost", "power the node off"), ("missing", "look at CUDA_VISIBLE")])
def test_the_only_card_of_a_machine_may_be_the_one_that_cannot_be_used(tmp_path: Path, kind: str, action: str) -> None:
    code, text, made = checked(tmp_path, f'kind = "{kind}", card = 0', only="memory", count=1)
    assert (code, made.verdict, made.results[-1].verdict) == (1, Verdict.FAIL, Verdict.SKIP)
    assert f"nvml:0: {action}" in text


def test_cards_without_a_driver_fail_with_a_record_and_one_cause(tmp_path: Path) -> None:
    code, text, made = checked(tmp_path, 'kind = "driver-not-loaded"', only="memory")
    assert (code, made.verdict, made.described) == (1, Verdict.FAIL, True)
    assert "the machine: install or load the driver" in text
    assert "2 NVIDIA GPUs on the PCI bus (0000:1B:00.0, 0000:1E:00.0) cannot be used" in text
    (verdict,) = made.card_verdicts
    assert (verdict.shared, verdict.findings) == (True, 1)


def test_what_the_driver_reports_is_found_whichever_check_runs(tmp_path: Path) -> None:
    code, _, made = checked(tmp_path, 'kind = "xid", card = 1, code = 119, after_s = 0.00001', only="cards")
    (found,) = made.results[0].findings
    assert (code, found.where, found.device) == (1, "Xid during the check 'cards'", made.cards[1].device)
    assert [each.action for each in made.card_verdicts] == ["reset"]


def test_a_machine_in_good_order_passes(tmp_path: Path) -> None:
    code, _, made = checked(tmp_path, only="cards")
    assert (code, made.verdict) == (0, Verdict.PASS)
    assert [each.check for each in made.results] == ["cards"], "nothing was added"


def real_cards_that_cuda_cannot_use() -> None:
    """Ask for devices as ``validate`` does, with a driver whose cards are there, unusable or hidden."""
    from harness.devices.described.reading import read_description
    from harness.devices.described.state import gpus_of
    from harness.devices.usable import configure_usable
    from harness.errors import DevicesUnavailable
    from harness.softgpu.described import install_driver

    broken = '[[fault]]\nkind = "cuda-unavailable"\n'
    lines = 'schema_version = 1\n[cards]\ncount = 2\nmodel = "NVIDIA L4"\n{}{}'

    def installed(fault: str, software: str = "") -> None:
        install_driver(gpus_of(read_description("x", lines.format(software, fault)), "x"))

    installed(broken)
    for spec in ("auto", "gpu", "gpu:2", "gpu:2x512"):
        devices = configure_usable(spec)
        assert len(devices) == 0
        assert "the driver has 2 GPUs, but TensorFlow uses none (cuInit fails with error 802)" in devices.reason
    installed(broken, '[software]\nvisible = "-1"\n')
    with pytest.raises(DevicesUnavailable):
        configure_usable("gpu")
    installed(broken)
    assert len(configure_usable("cpu:2")) == 2, "CPUs were asked for"


def cards_that_are_hidden() -> None:
    """Hide all cards on purpose: CPUs are then what ``auto`` has."""
    from harness.devices.described.reading import read_description
    from harness.devices.described.state import gpus_of
    from harness.devices.usable import configure_usable
    from harness.softgpu.described import install_driver

    text = 'schema_version = 1\n[cards]\ncount = 2\nmodel = "NVIDIA L4"\n[software]\nvisible = "-1"\n'
    install_driver(gpus_of(read_description("x", text), "x"))
    assert {device.kind for device in configure_usable("auto")} == {"logical-cpu"}


@pytest.mark.parametrize("program", [real_cards_that_cuda_cannot_use, cards_that_are_hidden])
def test_real_cards_are_replaced_by_cpus_only_where_someone_hides_them(
    fresh_process: Callable[..., object], program: Callable[[], None]
) -> None:
    fresh_process(program, timeout_s=600)
