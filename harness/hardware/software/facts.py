"""Reads what the driver, the GPU libraries and TensorFlow say of themselves."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from harness.devices.cpu import onednn_enabled, read_cpuinfo
from harness.devices.nvidia import cuda_uuids, driver_version
from harness.hardware import gpu_libraries
from harness.hardware.nvml import Nvml
from harness.hardware.software.installed import Software

_NUMBERING = "CUDA_VISIBLE_DEVICES"


def read_software(nvml: Nvml | None = None, environ: Mapping[str, str] = os.environ) -> Software:
    """Versions and settings of this process. TensorFlow is loaded; its runtime is not started.

    Nothing of CUDA is loaded, nor looked for, where TensorFlow was built without it or no driver is here.
    """
    import numpy as np
    import tensorflow as tf

    build: Mapping[str, Any] = tf.sysconfig.get_build_info()
    sass, ptx = kernels(build.get("cuda_compute_capabilities") or ())
    with_cuda = bool(tf.test.is_built_with_cuda())
    driver = (nvml or Nvml.load()) if with_cuda else Nvml(None)
    version = (driver.driver_version() or driver_version()) if with_cuda else None
    there = with_cuda and version is not None
    cudnn = str(build["cudnn_version"]) if build.get("cudnn_version") else None
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
        cudnn=gpu_libraries.cudnn_version(cudnn) if there else None,
        nccl=gpu_libraries.nccl_version() if there else None,
        kernels_sass=sass,
        kernels_ptx=ptx,
        missing_libraries=gpu_libraries.missing(build) if there else (),
        visible=environ.get(_NUMBERING),
        numbering=cuda_uuids() if there else (),
        tf32=bool(tf.config.experimental.tensor_float_32_execution_enabled()),
    )


def kernels(capabilities: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a wheel has machine code (SASS) for, and what PTX, from its ``sm_89`` and ``compute_90``.

    TensorFlow's build takes ``compute_90`` for machine code and PTX both; only ``sm_89`` is machine code alone.
    """
    sass, ptx = [], []
    for text in capabilities:
        kind, _, number = str(text).partition("_")
        if not number[:-1].isdigit():
            continue
        # 9.0a is a capability of its own: number is then 90a.
        digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
        capability = f"{digits[:-1]}.{digits[-1]}{number[len(digits) :]}"
        sass.append(capability)
        if kind == "compute":
            ptx.append(capability)
    return tuple(sass), tuple(ptx)
