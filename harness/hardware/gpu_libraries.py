"""The GPU libraries that TensorFlow's wheel needs: which are missing, and the versions of those that are there.

TensorFlow loads them by name when it first looks for GPUs and says of a missing one only that it "cannot dlopen some
GPU libraries"; it then goes on without a GPU. So they are looked for by the same names. Only where a driver is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.tensorflow_version import GPU_LIBRARIES

#: Opens a shared library, or raises OSError.
Open = Callable[[str], Any]

#: cuFFT and cuSOLVER of CUDA 12 count 11; those of CUDA 13 count 12.
_BEHIND = {"cufft", "cusolver"}


def names(build: Mapping[str, Any]) -> tuple[str, ...]:
    """What a wheel with this build info needs; empty where it does not say which CUDA it is for."""
    cuda = str(build.get("cuda_version") or "").split(".")[0]
    cudnn = str(build.get("cudnn_version") or "").split(".")[0]
    if not cuda.isdigit():
        return ()
    behind = dict.fromkeys(_BEHIND, str(int(cuda) - 1))
    versions = {"cuda": cuda, "cudnn": cudnn, **behind}
    return tuple(name.format(**versions) for name in GPU_LIBRARIES if cudnn or "{cudnn}" not in name)


def missing(
    build: Mapping[str, Any], opened: Open = ctypes.CDLL, folders: Sequence[Path] | None = None
) -> tuple[str, ...]:
    """The names that cannot be opened, neither as the system finds them nor from NVIDIA's Python packages."""
    places = package_folders() if folders is None else folders
    return tuple(name for name in names(build) if find(name, opened, places) is None)


def find(name: str, opened: Open = ctypes.CDLL, folders: Sequence[Path] = ()) -> Any | None:
    """The library, opened, or ``None``. One that is loaded already is found by its name."""
    for candidate in (name, *(str(folder / name) for folder in folders if (folder / name).exists())):
        try:
            return opened(candidate)
        except OSError:
            continue
    return None


def package_folders() -> tuple[Path, ...]:
    """Where ``pip install tensorflow[and-cuda]`` has put libraries: TensorFlow itself looks there."""
    found = []
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if not name.lower().startswith("nvidia-"):
            continue
        files = distribution.files or ()
        found += [Path(str(file.locate())).parent for file in files if ".so." in file.name]
    return tuple(dict.fromkeys(found))


def cudnn_version(major: str | None, opened: Open = ctypes.CDLL) -> str | None:
    """cuDNN's version, such as ``9.3.0``. 8 and older count 1000 to the major version, 9 and newer 10000."""
    library = find(f"libcudnn.so.{major.split('.')[0]}", opened, package_folders()) if major else None
    if library is None:
        return None
    library.cudnnGetVersion.restype = ctypes.c_size_t
    number = int(library.cudnnGetVersion())
    per_major = 10_000 if number >= 90_000 else 1_000
    return f"{number // per_major}.{number % per_major // 100}.{number % 100}"


def nccl_version(opened: Open = ctypes.CDLL) -> str | None:
    """NCCL's version, such as ``2.21.5``. Since 2.9 it counts 10000 to the major version, before 1000."""
    library = find("libnccl.so.2", opened, package_folders())
    if library is None:
        return None
    number = ctypes.c_int()
    if library.ncclGetVersion(ctypes.byref(number)) != 0:
        return None
    per_major, per_minor = (10_000, 100) if number.value >= 10_000 else (1_000, 100)
    return f"{number.value // per_major}.{number.value % per_major // per_minor}.{number.value % 100}"
