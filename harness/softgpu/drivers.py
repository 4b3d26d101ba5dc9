"""Stand-ins for NVIDIA's driver libraries, which answer from a description of a machine.

``nvidia-ml-py`` and this package load ``libnvidia-ml.so.1`` and ``libcuda.so.1`` by name. A library that is already in
the process under that name is what they get, so nothing has to be installed or set.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

from harness.errors import SoftwareGpusUnavailable
from harness.softgpu.compiler import Compiler, find_compiler
from harness.softgpu.library import OPTIONS, cache_folder, compile_once, open_library, seal
from harness.temporary import folder_of_this_process

_SOURCE = Path(__file__).with_name("driver_source")
NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"
_LIBRARIES = {NVML: "nvml.cc", CUDA: "cuda.cc"}
#: The file of the work of 64 cards before they work, four 64-bit numbers each: see driver_source/state.h.
_NO_WORK = bytes(32 * 64)


@cache
def nvml_functions() -> dict[str, bool]:
    """The functions of NVML that the stand-in has, without their versions, and whether each is about a card."""
    source = (_SOURCE / _LIBRARIES[NVML]).read_text(encoding="utf-8")
    found = re.findall(r"^int (nvml\w+?)(?:_v\d|WithFlags)?\(([^)]*)\)", source, re.MULTILINE)
    return {name: "Device " in arguments or "Device*" in arguments for name, arguments in found}


def build_drivers(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder with both libraries, compiled where they are not in the cache.

    Raises:
        SoftwareGpusUnavailable: there is no compiler, it fails, or the cache cannot be written.
    """
    compiler = find_compiler(environment)
    digest = hashlib.sha256("\0".join((compiler.version, *compiler.command, *OPTIONS)).encode())
    for file in sorted(_SOURCE.iterdir()):
        digest.update(file.read_bytes())
    folder = cache_folder(environment) / f"drivers-{digest.hexdigest()[:16]}"
    compile_once(folder, [folder / name for name in _LIBRARIES], partial(_compile, compiler, folder))
    return folder


def _compile(compiler: Compiler, folder: Path) -> None:
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name, source in _LIBRARIES.items():
        arguments = [*OPTIONS, str(_SOURCE / source), f"-Wl,-soname,{name}", "-o", str(unfinished / name)]
        compiler.compile(arguments, folder.with_suffix(".log"))
    seal([unfinished / name for name in _LIBRARIES])
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


def _is_real(name: str) -> bool:
    """Whether this process has a library of this name that is no stand-in."""
    with contextlib.suppress(OSError):
        return not hasattr(ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW), "harness_described_machine")
    return False


class Drivers:
    """The driver of a described machine: the file that the libraries answer from, and how long each card has worked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "machine"
        self.work_path = folder / "machine.work"
        self.work_path.write_bytes(_NO_WORK)
        self.write({})

    @classmethod
    def install(cls) -> Drivers:
        """Put both libraries into this process, in a folder that ends with it.

        Raises:
            SoftwareGpusUnavailable: the process has loaded real ones, or they cannot be compiled.
        """
        built = build_drivers()
        if loaded := [name for name in _LIBRARIES if _is_real(name)]:
            names = " and ".join(loaded)
            why = f"this process has already loaded the real {names}, which a described machine would have to replace"
            remedy = (
                "in a fresh process, call harness.configure before tf.config.list_physical_devices, pynvml.nvmlInit or "
                "anything else that looks for GPUs"
            )
            raise SoftwareGpusUnavailable(why, remedy)
        made = cls(folder_of_this_process("harness-machine-"))
        for name in _LIBRARIES:
            library = open_library(built / name, ctypes.RTLD_GLOBAL)
            library.harness_described_machine(str(made.path).encode())
        return made

    def write(self, values: Mapping[str, object]) -> None:
        """Answer from ``values``, by the keys of ``driver_source/nvml.cc``. The cards have not worked yet."""
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text("".join(f"{key} {value}\n" for key, value in values.items()), encoding="utf-8")
        unfinished.replace(self.path)
        # In place: the libraries have mapped the file.
        with self.work_path.open("r+b") as file:
            file.write(_NO_WORK)
