"""The CPU: its model, and whether TensorFlow computes with oneDNN on it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from harness.tensorflow_version import ONEDNN_ARM_PART, ONEDNN_FEATURES


def read_cpuinfo(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """Read the first processor's entry of ``/proc/cpuinfo``, by key. Empty where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, separator, value in lines if separator}


def cpu_model(cpuinfo: Mapping[str, str]) -> str | None:
    """Name the CPU, or ``None`` where the name is unknown."""
    return cpuinfo.get("model name") or platform.processor() or None


def onednn_enabled(
    cpuinfo: Mapping[str, str], environ: Mapping[str, str] = os.environ, system: str = platform.system()
) -> bool | None:
    """Whether TensorFlow's oneDNN kernels are on. TensorFlow reads the variable once, when it is loaded.

    ``TF_ENABLE_ONEDNN_OPTS`` decides where it is 0, 1, true or false, else the CPU's features. ``None``: unknown.
    """
    if system != "Linux":
        # Only the Linux builds of TensorFlow are known to carry oneDNN.
        return False if system == "Darwin" else None
    setting = environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower()
    if setting in ("0", "false"):
        return False
    if setting in ("1", "true"):
        return True
    if not cpuinfo:
        return None
    features = set(cpuinfo.get("flags", "").split())
    return bool(features & ONEDNN_FEATURES) or cpuinfo.get("CPU part") == ONEDNN_ARM_PART
