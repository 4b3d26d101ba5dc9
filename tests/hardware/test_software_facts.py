from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from harness.hardware.software.measure import cudnn_version, kernels, missing, names, nccl_version

_BUILD = {"cuda_version": "12.5.1", "cudnn_version": "9"}


def test_the_kernels_of_a_wheel() -> None:
    sass, ptx = kernels(["sm_60", "sm_70", "sm_89", "compute_90"])
    assert sass == ("6.0", "7.0", "8.9", "9.0"), "compute_90 has machine code too"
    assert ptx == ("9.0",)
    assert kernels(["sm_90a", "compute_120"]) == (("9.0a", "12.0"), ("12.0",))
    assert kernels([]) == ((), ())
    assert kernels(["sm_", "nonsense"]) == ((), ())


def test_the_libraries_that_a_wheel_needs_by_name() -> None:
    assert names(_BUILD) == (
        "libcudart.so.12",
        "libcublas.so.12",
        "libcublasLt.so.12",
        "libcufft.so.11",
        "libcusolver.so.11",
        "libcusparse.so.12",
        "libcudnn.so.9",
        "libnccl.so.2",
    )
    assert names({}) == ()
    assert "libcudnn.so." not in "".join(names({"cuda_version": "12.5.1"}))


def test_what_cannot_be_opened_is_missing_and_what_a_package_brings_is_not(tmp_path: Path) -> None:
    (tmp_path / "libcufft.so.11").write_bytes(b"")
    there = {*names(_BUILD), str(tmp_path / "libcufft.so.11")} - {"libcudnn.so.9", "libcufft.so.11"}

    def opened(name: str) -> Any:
        if name not in there:
            raise OSError(name)
        return object()

    assert missing(_BUILD, opened, [tmp_path]) == ("libcudnn.so.9",)
    assert missing(_BUILD, opened, []) == ("libcufft.so.11", "libcudnn.so.9")


class _Cudnn:
    def __init__(self, number: int) -> None:
        def version() -> int:
            return number

        self.cudnnGetVersion = version

    cudnnGetVersion: Any  # noqa: N815 - cuDNN's own name


class _Nccl:
    def __init__(self, number: int, status: int = 0) -> None:
        self._number, self._status = number, status

    def ncclGetVersion(self, pointer: Any) -> int:  # noqa: N802 - NCCL's own name
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0] = self._number
        return self._status


def test_versions_of_libraries_in_their_makers_counting() -> None:
    assert cudnn_version("9", lambda _: _Cudnn(90300)) == "9.3.0"
    assert cudnn_version("8", lambda _: _Cudnn(8907)) == "8.9.7"
    assert nccl_version(lambda _: _Nccl(22105)) == "2.21.5"
    assert nccl_version(lambda _: _Nccl(2804)) == "2.8.4"
    assert nccl_version(lambda _: _Nccl(22105, status=1)) is None


def test_a_library_that_is_not_there_has_no_version() -> None:
    def absent(name: str) -> Any:
        raise OSError(name)

    assert cudnn_version("9", absent) is None
    assert cudnn_version(None, absent) is None
    assert nccl_version(absent) is None
