"""The fingerprint: the hardware and software that a result was obtained on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from harness.devices.cpu import cpu_model, onednn_enabled, read_cpuinfo
from harness.devices.device import Devices
from harness.devices.inventory import read_inventory
from harness.devices.nvidia import driver_version
from harness.devices.runtime import configured, current
from harness.records import Fingerprint, GpuFacts

_MIB = 1024 * 1024


def fingerprint(devices: Devices | None = None) -> Fingerprint:
    """Describe this machine, this TensorFlow, and ``devices`` (by default the configured ones, if any).

    TensorFlow is loaded; its runtime is not started. Unknown facts are ``None``: driver, CUDA and cuDNN without a
    usable GPU, and ``deterministic_ops`` unless the harness configured the devices or the environment sets it.
    """
    import psutil
    import tensorflow as tf

    if devices is None:
        devices = current()
    inventory = read_inventory(tf)
    cpuinfo = read_cpuinfo()
    build = tf.sysconfig.get_build_info() if inventory.gpus else {}
    return Fingerprint(
        tensorflow=tf.__version__,
        keras=_version("keras"),
        numpy=metadata.version("numpy"),
        python=platform.python_version(),
        onednn=onednn_enabled(cpuinfo),
        cpu_model=cpu_model(cpuinfo),
        cores_logical=psutil.cpu_count(logical=True),
        cores_physical=psutil.cpu_count(logical=False),
        memory_mib=psutil.virtual_memory().total // _MIB,
        operating_system=platform.platform(),
        gpus=tuple(
            GpuFacts(gpu.model or gpu.physical, gpu.uuid, gpu.compute_capability, gpu.total_mib)
            for gpu in inventory.gpus
        ),
        driver=driver_version() if inventory.gpus else None,
        cuda=build.get("cuda_version"),
        cudnn=build.get("cudnn_version"),
        spec=devices.spec if devices is not None else None,
        devices=devices.names if devices is not None else (),
        intra_op_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_threads=tf.config.threading.get_inter_op_parallelism_threads(),
        tf32=tf.config.experimental.tensor_float_32_execution_enabled(),
        deterministic_ops=_deterministic(tf),
        soft_placement=tf.config.get_soft_device_placement(),
    )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _deterministic(tensorflow: Any) -> bool | None:
    """Detect op determinism, which has no getter: a non-deterministic generator is then refused."""
    if os.environ.get("TF_DETERMINISTIC_OPS", "").lower() in ("1", "true"):
        return True
    state = configured()
    if state is None:
        return None
    with tensorflow.device(state.devices.host):
        try:
            tensorflow.random.Generator.from_non_deterministic_state()
        except RuntimeError:
            return True
    return False
