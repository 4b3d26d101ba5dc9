from __future__ import annotations

import ctypes
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.devices.nvidia import Card, cuda_uuids, driver_version, match_cards, read_cards

_UUIDS = [uuid.UUID(int=17), uuid.UUID(int=42)]
_CARDS = tuple(Card(f"Card {index}", f"GPU-{_UUIDS[index]}", 81_000, 80_000, index) for index in range(2))


class _NVMLError(Exception):
    pass


def _nvml(**changes: Any) -> SimpleNamespace:
    """The driver's management library with two cards; the names come as bytes, as in its older releases."""
    functions: dict[str, Any] = {
        "NVMLError": _NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: f"Card {handle}".encode(),
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{_UUIDS[handle]}",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=81_000 * 2**20, free=80_000 * 2**20 + 5),
    }
    return SimpleNamespace(**{**functions, **changes})


def test_the_cards_are_read_from_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml())
    assert read_cards() == _CARDS


def test_without_library_driver_or_answer_there_are_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise _NVMLError

    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_cards() == ()
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlInit=fail))
    assert read_cards() == ()
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlDeviceGetMemoryInfo=fail))
    assert read_cards() == ()


class _Cuda:
    """The CUDA driver API with two cards, the second one first."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken

    def cuInit(self, flags: int) -> int:  # noqa: N802 - CUDA's own name
        return int(self.broken == "cuInit")

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802
        device._obj.value = ordinal
        return int(self.broken == "cuDeviceGet")

    def cuDeviceGetUuid(self, raw: Any, device: ctypes.c_int) -> int:  # noqa: N802
        raw._obj[:] = list(_UUIDS[1 - device.value].bytes)
        return int(self.broken == "cuDeviceGetUuid")


def test_cuda_names_the_cards_in_the_order_of_this_process() -> None:
    assert cuda_uuids(_Cuda()) == (f"GPU-{_UUIDS[1]}", f"GPU-{_UUIDS[0]}")


@pytest.mark.parametrize("broken", ["cuInit", "cuDeviceGet", "cuDeviceGetUuid"])
def test_where_cuda_refuses_nothing_is_known(broken: str) -> None:
    assert cuda_uuids(_Cuda(broken)) == ()


def test_cards_are_matched_by_uuid_and_not_by_index() -> None:
    assert match_cards(2, _CARDS, cuda_uuids(_Cuda())) == (_CARDS[1], _CARDS[0])
    assert match_cards(1, _CARDS, ("GPU-" + str(_UUIDS[1]),)) == (_CARDS[1],)
    assert match_cards(1, _CARDS, ("GPU-" + str(uuid.UUID(int=3)),)) == (None,)


def test_a_card_is_left_open_where_it_is_not_certain_which_one_it_is() -> None:
    assert match_cards(1, _CARDS, ()) == (None,)
    assert match_cards(1, _CARDS, cuda_uuids(_Cuda())) == (None,)
    assert match_cards(1, _CARDS[:1], ()) == (_CARDS[0],)
    assert match_cards(0, (), ()) == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\n", "570.86.10"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  525.60  x\nGCC version:  gcc version 12.2.0\n", "525.60"),
        ("something else", None),
    ],
)
def test_the_driver_version_is_read_from_the_kernel_module(tmp_path: Path, text: str, version: str | None) -> None:
    path = tmp_path / "version"
    path.write_text(text, encoding="utf-8")
    assert driver_version(path) == version
    assert driver_version(tmp_path / "absent") is None
