"""The CPU: its model, and whether TensorFlow computes with oneDNN on it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

#: CPU features, as Linux names them, with which TensorFlow switches oneDNN on by default. From DefaultOneDnnPolicy in
#: TensorFlow's tensorflow/core/util/port.cc. Other x86 CPUs, such as those with AVX2 alone, are left without.
_ONEDNN_FEATURES = frozenset({"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"})
#: Linux's CPU part number of Arm's Neoverse V1, the one Arm core with oneDNN on by default (same source).
_NEOVERSE_V1_PART = "0xd40"


def read_cpuinfo(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The first processor's entry of ``/proc/cpuinfo``, by key. Empty where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    entry: dict[str, str] = {}
    for line in text.split("\n\n")[0].splitlines():
        key, separator, value = line.partition(":")
        if separator:
            entry[key.strip()] = value.strip()
    return entry


def cpu_model(cpuinfo: Mapping[str, str]) -> str | None:
    """The CPU's name for people, or ``None`` where nothing says it."""
    return cpuinfo.get("model name") or platform.processor() or None


def onednn_enabled(
    cpuinfo: Mapping[str, str], environ: Mapping[str, str] = os.environ, system: str = platform.system()
) -> bool | None:
    """Whether TensorFlow's oneDNN kernels are on. TensorFlow reads the variable once, when it is loaded.

    ``TF_ENABLE_ONEDNN_OPTS`` decides where it is 0, 1, true or false, else the CPU's features. ``None`` where
    neither says it (another operating system than Linux).
    """
    if system != "Linux":
        # Only the Linux builds of TensorFlow 2.19 to 2.21 are known to carry oneDNN.
        return False if system == "Darwin" else None
    asked = environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower()
    if asked in ("0", "false"):
        return False
    if asked in ("1", "true"):
        return True
    if not cpuinfo:
        return None
    features = set(cpuinfo.get("flags", "").split())
    return bool(features & _ONEDNN_FEATURES) or cpuinfo.get("CPU part") == _NEOVERSE_V1_PART
