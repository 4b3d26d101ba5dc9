"""Reads what the driver, the GPU libraries and TensorFlow report about themselves.

TensorFlow loads GPU libraries by name when it first looks for GPUs. If one is missing it only says that it "cannot
dlopen some GPU libraries", and goes on without a GPU. So they are looked up here by the same names.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.devices.cpu import onednn_enabled, read_cpuinfo
from harness.devices.nvidia import cuda_error, cuda_uuids, driver_version
from harness.hardware.nvml import Nvml
from harness.hardware.software.installed import Software
from harness.hardware.surroundings import surroundings
from harness.lazy import tf
from harness.softgpu import DescribedGpus, loaded
from harness.tensorflow_version import GPU_LIBRARIES

#: Opens a shared library, or raises OSError.
Open = Callable[[str], Any]

#: cuFFT and cuSOLVER of CUDA 12 count 11; those of CUDA 13 count 12.
_BEHIND = {"cufft", "cusolver"}


def read_software(nvml: Nvml | None = None, environ: Mapping[str, str] = os.environ) -> Software:
    """Return versions and settings of this process. TensorFlow is loaded; its runtime is not started.

    Nothing of CUDA is loaded or looked up without a driver, or if TensorFlow was built without CUDA.
    """
    import numpy as np

    build: Mapping[str, Any] = tf.sysconfig.get_build_info()
    sass, ptx = kernels(build.get("cuda_compute_capabilities") or ())
    with_cuda = bool(tf.test.is_built_with_cuda())
    driver = (nvml or Nvml.load()) if with_cuda else Nvml(None)
    version = (driver.driver_version() or driver_version()) if with_cuda else None
    there = with_cuda and (version is not None or driver.opened)
    cudnn = str(build["cudnn_version"]) if build.get("cudnn_version") else None
    machine = loaded()
    if isinstance(machine, DescribedGpus):
        # The libraries of CUDA are neither there nor needed: the description says which ones the machine has.
        said = dict(machine.driver)
        sass, ptx = tuple(said["kernels_sass"].split()), tuple(said["kernels_ptx"].split())
        libraries = said.get("cudnn"), said.get("nccl"), tuple(said.get("missing_libraries", "").split())
    elif there and machine is None:
        libraries = cudnn_version(cudnn), nccl_version(), missing(build)
    else:
        libraries = None, None, ()
    return Software(
        tensorflow=tf.__version__,
        numpy=np.__version__,
        python=platform.python_version(),
        onednn=onednn_enabled(read_cpuinfo()),
        built_with_cuda=with_cuda,
        built_cuda=str(build["cuda_version"]) if build.get("cuda_version") else None,
        built_cudnn=cudnn,
        driver=version,
        driver_cuda=driver.cuda_version(),
        cudnn=libraries[0],
        nccl=libraries[1],
        kernels_sass=sass,
        kernels_ptx=ptx,
        missing_libraries=libraries[2],
        visible=environ.get("CUDA_VISIBLE_DEVICES"),
        numbering=cuda_uuids() if there else (),
        cuda_error=cuda_error() if there else None,
        tf32=bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        around=surroundings(driver),
    )


def kernels(capabilities: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a wheel has machine code (SASS) and PTX for, from its ``sm_89`` and ``compute_90``.

    In TensorFlow's build ``compute_90`` means machine code and PTX, ``sm_89`` only machine code.
    """
    sass, ptx = [], []
    for text in capabilities:
        kind, _, number = str(text).partition("_")
        if not number[:-1].isdigit():
            continue
        # 9.0a is a separate capability: number is then 90a.
        digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
        capability = f"{digits[:-1]}.{digits[-1]}{number[len(digits) :]}"
        sass.append(capability)
        if kind == "compute":
            ptx.append(capability)
    return tuple(sass), tuple(ptx)


def names(build: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the libraries that a wheel with this build info needs; none if its CUDA version is unknown."""
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
    """Return the names that cannot be opened, neither by the system nor from NVIDIA's Python packages."""
    places = package_folders() if folders is None else folders
    return tuple(name for name in names(build) if find(name, opened, places) is None)


def find(name: str, opened: Open = ctypes.CDLL, folders: Sequence[Path] = ()) -> Any | None:
    """Open a library, or return ``None``. One that is loaded already is found by its name."""
    for candidate in (name, *(str(folder / name) for folder in folders if (folder / name).exists())):
        try:
            return opened(candidate)
        except OSError:
            continue
    return None


def package_folders() -> tuple[Path, ...]:
    """Return where ``pip install tensorflow[and-cuda]`` puts libraries and TensorFlow looks for them."""
    found = []
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if not name.lower().startswith("nvidia-"):
            continue
        files = distribution.files or ()
        found += [Path(str(file.locate())).parent for file in files if ".so." in file.name]
    return tuple(dict.fromkeys(found))


def cudnn_version(major: str | None, opened: Open = ctypes.CDLL) -> str | None:
    """Return cuDNN's version, such as ``9.3.0``. Up to 8 the major version counts 1000, from 9 on 10000."""
    library = find(f"libcudnn.so.{major.split('.')[0]}", opened, package_folders()) if major else None
    if library is None:
        return None
    library.cudnnGetVersion.restype = ctypes.c_size_t
    number = int(library.cudnnGetVersion())
    per_major = 10_000 if number >= 90_000 else 1_000
    return f"{number // per_major}.{number % per_major // 100}.{number % 100}"


def nccl_version(opened: Open = ctypes.CDLL) -> str | None:
    """Return NCCL's version, such as ``2.21.5``. Up to 2.8 the major version counts 1000, from 2.9 on 10000."""
    library = find("libnccl.so.2", opened, package_folders())
    if library is None:
        return None
    number = ctypes.c_int()
    if library.ncclGetVersion(ctypes.byref(number)) != 0:
        return None
    per_major, per_minor = (10_000, 100) if number.value >= 10_000 else (1_000, 100)
    return f"{number.value // per_major}.{number.value % per_major // per_minor}.{number.value % 100}"
