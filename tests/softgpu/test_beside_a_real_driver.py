"""Described software GPUs on a machine with a driver of its own, whose libraries here are two small ones in C++."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.softgpu.compiler import NAMES

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in NAMES), reason="needs a C++ compiler, to make software GPUs"
)
#: A driver with one card, which CUDA_VISIBLE_DEVICES=-1 hides from CUDA.
_CUDA = """
#include <stdio.h>
__attribute__((constructor)) static void loaded() { puts("the real libcuda.so.1 was loaded"); }
extern "C" int cuInit(unsigned) { return 100; }
"""
_NVML = """
#include <stdio.h>
#include <string.h>
__attribute__((constructor)) static void loaded() { puts("the real libnvidia-ml.so.1 was loaded"); }
extern "C" int nvmlInitWithFlags(unsigned) { return 0; }
extern "C" int nvmlInit_v2() { return 0; }
extern "C" int nvmlShutdown() { return 0; }
extern "C" int nvmlDeviceGetCount_v2(unsigned* count) { *count = 1; return 0; }
extern "C" int nvmlDeviceGetHandleByIndex_v2(unsigned, void** card) { *card = nullptr; return 0; }
extern "C" int nvmlDeviceGetName(void*, char* name, unsigned size) { strncpy(name, "a real card", size); return 0; }
"""
_CONFIGURE = """
import harness
from harness.devices.nvidia import cuda_uuids, read_cards
try:
    print(len(harness.configure("softgpu:@clean-8")), len(read_cards()), len(cuda_uuids()))
except harness.errors.SoftwareGpusUnavailable as error:
    print(error)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the libraries of the driver."""
    folder = tmp_path_factory.mktemp("driver")
    command = next(found for name in NAMES if (found := shutil.which(name)))
    for name, source in {"libcuda.so.1": _CUDA, "libnvidia-ml.so.1": _NVML}.items():
        (folder / "source.cc").write_text(source, encoding="utf-8")
        made = ["-shared", "-fPIC", str(folder / "source.cc"), f"-Wl,-soname,{name}", "-o", str(folder / name)]
        subprocess.run([command, *made], check=True)
    return folder


def printed(driver: Path, before: str = "", after: str = _CONFIGURE) -> list[str]:
    """What a program prints on the machine with this driver, where the card is hidden."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["LD_LIBRARY_PATH"] = os.pathsep.join([str(driver), os.environ.get("LD_LIBRARY_PATH", "")])
    code = [sys.executable, "-u", "-c", before + after]
    done = subprocess.run(code, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def test_a_described_machine_has_its_own_driver_and_the_real_one_is_not_loaded(driver: Path) -> None:
    assert printed(driver) == ["8 8 8"]


@pytest.mark.parametrize(
    ("before", "library"),
    [
        ("import tensorflow as tf; tf.config.list_physical_devices('GPU')\n", "libcuda.so.1"),
        ("import pynvml; pynvml.nvmlInit()\n", "libnvidia-ml.so.1"),
    ],
)
def test_a_program_that_has_loaded_the_real_driver_is_told_to_configure_first(
    driver: Path, before: str, library: str
) -> None:
    loaded, message = printed(driver, before)
    assert loaded == f"the real {library} was loaded"
    assert f"has already loaded the real {library}" in message
    assert "in a fresh process, call harness.configure before tf.config.list_physical_devices" in message


def test_software_gpus_without_a_description_work_beside_a_real_driver(driver: Path) -> None:
    assert printed(driver, after="import harness; print(len(harness.configure('softgpu:2')))")[-1] == "2"
