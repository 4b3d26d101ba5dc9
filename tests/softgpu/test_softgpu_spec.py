"""The specs ``softgpu:N`` and ``softgpu:NxM``: their grammar, their plan, and what cannot be had."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.devices.device import Devices
from harness.devices.inventory import Inventory, PhysicalGpu
from harness.devices.kinds.auto import AutoSpec
from harness.devices.kinds.kind import Request
from harness.devices.kinds.software_gpu import DEFAULT_MIB, SoftwareGpuSpec
from harness.devices.profile import load_profile
from harness.devices.request import resolve
from harness.devices.spec import parse_spec
from harness.errors import DevicesUnavailable, InvalidSpec, SoftwareGpusUnavailable
from harness.softgpu import SoftwareGpus, load
from harness.softgpu.described import total_mib
from harness.softgpu.loading import refuse_too_large


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("softgpu:1", SoftwareGpuSpec(1)),
        ("softgpu:4", SoftwareGpuSpec(4)),
        ("softgpu:2x512", SoftwareGpuSpec(2, 512)),
        ("softgpu:2x65536", SoftwareGpuSpec(2, 65_536)),
        (f"softgpu:2x{DEFAULT_MIB}", SoftwareGpuSpec(2)),
    ],
)
def test_a_spec_is_parsed(text: str, spec: SoftwareGpuSpec) -> None:
    assert parse_spec(text) == spec
    assert parse_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("softgpu:0", "at least 1 device is needed"),
        ("softgpu:4x1", "a software GPU needs 16 MiB or more"),
        ("softgpu:2x0", "a software GPU needs 16 MiB or more"),
        ("softgpu:2x65537", "a software GPU has at most 65,536 MiB"),
        ("softgpu:2000", "at most 1024 devices are supported"),
        ("softgpu", "say how many software GPUs"),
        ("softgpu:", "say how many software GPUs"),
        ("softgpu:-1", "say how many software GPUs"),
        ("softgpu:2x", "say how many software GPUs"),
    ],
)
def test_a_wrong_spec_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidSpec, match=why) as caught:
        parse_spec(text)
    assert "softgpu:NxM" in str(caught.value)


def test_a_plan_says_that_the_gpus_are_software() -> None:
    plan = resolve("softgpu:2x512").plan(Inventory())
    assert Devices(plan.devices, spec="softgpu:2x512").counted == "2 software GPUs"
    assert Devices(resolve("cpu:2").plan(Inventory()).devices, spec="cpu:2").counted == "2 devices"
    assert [(device.kind, device.parsed.short) for device in plan.devices] == [
        ("software-gpu", "GPU:0"),
        ("software-gpu", "GPU:1"),
    ]
    assert plan.software_gpus == SoftwareGpus(2, 512)
    assert plan.reason == "2 software GPUs of 512 MiB each, as requested; no real GPU is tested"
    assert not plan.same_effect(resolve("softgpu:2").plan(Inventory()))


def test_auto_never_takes_software_gpus() -> None:
    for inventory in (Inventory(), Inventory(gpus=(PhysicalGpu("/physical_device:GPU:0"),))):
        assert Request(AutoSpec()).plan(inventory).software_gpus is None


def test_a_profile_can_name_software_gpus(tmp_path: Any) -> None:
    file = tmp_path / "two.toml"
    file.write_text("schema_version = 1\nspec = 'softgpu:2x512'\nsoft_placement = true\n", encoding="utf-8")
    profile = load_profile(file)
    assert profile.spec == SoftwareGpuSpec(2, 512)
    assert resolve(file).plan(Inventory()).options.soft_placement


def test_a_profile_names_a_description_by_its_path_from_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machines").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = 'schema_version = 1\n[cards]\ncount = 3\nmodel = "Tesla T4"\n'
    (tmp_path / "machines" / "three.toml").write_text(text, encoding="utf-8")
    file = tmp_path / "three-cards.toml"
    for spec in ("softgpu:machines/three.toml", f"softgpu:{tmp_path / 'machines' / 'three.toml'}"):
        file.write_text(f"schema_version = 1\nspec = '{spec}'\n", encoding="utf-8")
        for profile in (file, Path("..") / file.name):
            assert len(resolve(profile).plan(Inventory()).devices) == 3
    file.write_text("schema_version = 1\nspec = 'softgpu:@clean-8'\n", encoding="utf-8")
    assert len(resolve(file).plan(Inventory()).devices) == 8


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            "softgpu:16x65536",
            "1,048,576 MiB in all, need about 67,840 memory mappings, but Linux allows a process only 65,530",
        ),
        ("softgpu:600", "need about 88,448 memory mappings"),
        ("softgpu:8x65536", "need about 16,384 MiB for the tables of TensorFlow's allocator, but 8,192 MiB are"),
    ],
)
def test_more_memory_than_the_machine_can_hold_is_refused_in_one_line(spec: str, why: str) -> None:
    gpus = resolve(spec).plan(Inventory()).software_gpus
    assert gpus is not None
    with pytest.raises(SoftwareGpusUnavailable) as caught:
        refuse_too_large(gpus, 65_530, 8192)
    assert why in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    refuse_too_large(gpus, 10**6, 10**6)


def test_usual_sizes_are_not_refused() -> None:
    for gpus in (SoftwareGpus(64, 2048), SoftwareGpus(4, 65_536), SoftwareGpus(600, 16)):
        refuse_too_large(gpus, 65_530, 8192)


def test_beside_real_gpus_there_are_no_software_gpus() -> None:
    config = SimpleNamespace(list_physical_devices=lambda kind: ["GPU:0"])
    with pytest.raises(SoftwareGpusUnavailable, match=r"sees 1 real GPU, .* CUDA_VISIBLE_DEVICES=-1"):
        load(SimpleNamespace(config=config), SoftwareGpus(2, 512))


@pytest.mark.parametrize("usable", [16, 512, 1792, 1793, 2048, 4700, 6000, 81920])
def test_a_device_states_as_much_memory_as_tensorflow_leaves_usable(usable: int) -> None:
    total = total_mib(usable)
    reserve = 255 if total < 2048 else max(300, total * 0.06)
    assert usable <= total - reserve < usable + 2


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ('kind = "cuda-unavailable"\ncode = 802', "cuInit fails with error 802"),
        ('kind = "lost"\ncard = 0', "every GPU in it is missing, lost, absent or hidden by CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_machine_without_a_usable_gpu_is_refused_with_the_reason(fault: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(f'schema_version = 1\n[cards]\ncount = 1\nmodel = "Tesla T4"\n[[fault]]\n{fault}\n', "utf-8")
    with pytest.raises(DevicesUnavailable) as caught:
        resolve(f"softgpu:{path}").plan(Inventory())
    assert caught.value.needed == f"a GPU that TensorFlow can use; the described machine has none: {why}"
    assert len(str(caught.value).splitlines()) == 1
