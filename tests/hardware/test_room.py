from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from harness.hardware import room

_GIB = 2**30


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100 * _GIB))


def _cgroup(folder: Path, limit: str, used: int, cache: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\nactive_file 7\n")
    return folder


@pytest.mark.usefixtures("available")
def test_a_container_has_what_its_limit_leaves_and_the_cache_counts_as_free(tmp_path: Path) -> None:
    assert room.host_free_bytes(_cgroup(tmp_path, str(8 * _GIB), 5 * _GIB, _GIB)) == 4 * _GIB


@pytest.mark.usefixtures("available")
def test_without_a_limit_or_with_a_larger_one_it_is_what_the_host_has(tmp_path: Path) -> None:
    assert room.host_free_bytes(tmp_path) == 100 * _GIB
    assert room.host_free_bytes(_cgroup(tmp_path, "max", _GIB, 0)) == 100 * _GIB
    assert room.host_free_bytes(_cgroup(tmp_path, str(500 * _GIB), _GIB, 0)) == 100 * _GIB


@pytest.mark.usefixtures("available")
def test_the_older_form_of_limits_is_read_too_and_nothing_is_negative(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(2 * _GIB))
    (folder / "memory.usage_in_bytes").write_text(str(3 * _GIB))
    (folder / "memory.stat").write_text(f"total_inactive_file {2 * _GIB}\n")
    assert room.host_free_bytes(tmp_path) == _GIB
    (folder / "memory.stat").write_text("total_inactive_file 0\n")
    assert room.host_free_bytes(tmp_path) == 0
