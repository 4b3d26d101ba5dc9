from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices.cpu import cpu_model, onednn_enabled, read_cpuinfo

_CPUINFO = """processor\t: 0
model name\t: Some CPU @ 2.50GHz
flags\t\t: fpu avx2 fma{more}

processor\t: 1
model name\t: Another CPU
"""


def _cpuinfo(folder: Path, more: str = "") -> dict[str, str]:
    path = folder / "cpuinfo"
    path.write_text(_CPUINFO.format(more=more), encoding="utf-8")
    return read_cpuinfo(path)


def test_the_first_processor_gives_the_model(tmp_path: Path) -> None:
    assert cpu_model(_cpuinfo(tmp_path)) == "Some CPU @ 2.50GHz"
    assert read_cpuinfo(tmp_path / "absent") == {}


@pytest.mark.parametrize(
    ("feature", "default"),
    [("", False), (" avx512f", False), (" avx512_vnni", True), (" avx_vnni", True), (" amx_bf16", True)],
)
def test_onednn_is_on_by_default_on_cpus_with_neural_network_features(
    tmp_path: Path, feature: str, default: bool
) -> None:
    cpuinfo = _cpuinfo(tmp_path, feature)
    assert onednn_enabled(cpuinfo, {}, "Linux") is default
    assert onednn_enabled(cpuinfo, {"TF_ENABLE_ONEDNN_OPTS": "maybe"}, "Linux") is default


@pytest.mark.parametrize(("value", "enabled"), [("0", False), ("1", True), ("False", False), ("TRUE", True)])
def test_the_environment_decides_over_the_cpu(tmp_path: Path, value: str, enabled: bool) -> None:
    for feature in ("", " avx512_vnni"):
        assert onednn_enabled(_cpuinfo(tmp_path, feature), {"TF_ENABLE_ONEDNN_OPTS": value}, "Linux") is enabled


def test_what_is_not_known_is_none() -> None:
    assert onednn_enabled({}, {}, "Linux") is None
    assert onednn_enabled({}, {"TF_ENABLE_ONEDNN_OPTS": "1"}, "Windows") is None
    assert onednn_enabled({}, {}, "Darwin") is False
    assert onednn_enabled({"CPU part": "0xd40"}, {}, "Linux") is True
    assert onednn_enabled({"CPU part": "0xd0c"}, {}, "Linux") is False
