"""Judges whether driver, libraries, TensorFlow and the cards fit together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.hardware.account import Account
from harness.hardware.finding import finding
from harness.hardware.software.installed import Software
from harness.hardware.software.kernels import Kernels, kernels_for
from harness.records import Card, Verdict
from harness.tensorflow_version import (
    MINIMUM_DRIVERS,
    OLDEST,
    OLDEST_NUMPY,
    OLDEST_PYTHON,
    TOO_NEW,
    TOO_NEW_PYTHON,
    TOOLKIT_DRIVERS,
)

_INSTALL = "python -m pip install 'tensorflow[and-cuda]'"
#: For what the build information of TensorFlow lacks.
_OFFICIAL = "use an official TensorFlow wheel: tf.sysconfig.get_build_info() of the installed TensorFlow has no {!r}"
_NVML = "install nvidia-ml-py and check that nvidia-smi works, so that the driver can be queried"
#: Libraries that belong to the driver and not to CUDA's packages.
_OF_DRIVER = ("libcuda.so", "libnvidia-ml.so")
#: Libraries that only TensorRT needs.
_OPTIONAL = ("libnvinfer", "libnvinfer_plugin", "libnvonnxparser")


def judge_software(software: Software, cards: Sequence[Card], present: Sequence[Card], account: Account) -> set[str]:
    """Compare what is installed with what this TensorFlow needs, and return the labels of cards that cannot run any op.

    ``cards`` are TensorFlow's, ``present`` the driver's.
    """
    judge = _Judge(software, account)
    judge.versions()
    gpus = [card for card in cards if card.is_gpu]
    if gpus or any(card.is_gpu for card in present):
        judge.cuda(gpus)
    elif software.missing_libraries:
        account.scope.append(
            f"no GPU, so these missing libraries do not matter: {', '.join(software.missing_libraries)}"
        )
    else:
        account.scope.append("no GPU: no driver, CUDA, cuDNN or NCCL to compare")
    return judge.unusable


class _Judge:
    def __init__(self, software: Software, account: Account) -> None:
        self.software, self.account = software, account
        self.unusable: set[str] = set()
        #: The labels of cards for which the wheel has PTX instead of machine code.
        self.compiled: list[str] = []
        self.pinned = _INSTALL.replace("[and-cuda]", f"[and-cuda]=={software.tensorflow}")

    def add(
        self,
        where: str,
        expected: str,
        found: str,
        message: str,
        next_step: str,
        *,
        severity: Verdict = Verdict.FAIL,
        card: Card | None = None,
        subject: str = "",
    ) -> None:
        self.account.found(
            finding(
                "software",
                card,
                where,
                expected=expected,
                found=found,
                message=message,
                next_step=next_step,
                severity=severity,
                subject=subject,
            )
        )

    def versions(self) -> None:
        software = self.software
        for name, version, (first, end) in (
            ("TensorFlow", software.tensorflow, (OLDEST, TOO_NEW)),
            ("Python", software.python, (OLDEST_PYTHON, TOO_NEW_PYTHON)),
        ):
            self.account.count(values=1)
            if older(version, first) or not older(version, end):
                self.add(
                    name,
                    f"at least {first}, below {end}",
                    version,
                    f"{name} {version} is not a tested version ({first} or later, below {end})",
                    f"use {name} {first} or later, below {end}, or another version of this harness",
                    severity=Verdict.WARN,
                )
        self.account.count(values=1)
        if older(software.numpy, OLDEST_NUMPY):
            self.add(
                "NumPy",
                f"at least {OLDEST_NUMPY}",
                software.numpy,
                f"NumPy {software.numpy} is too old for TensorFlow",
                f"python -m pip install 'numpy>={OLDEST_NUMPY}'",
            )
        onednn = {True: "on", False: "off", None: "unknown"}[software.onednn]
        built = f"for CUDA {software.built_cuda or '(unknown)'}" if software.built_with_cuda else "without CUDA"
        self.account.scope.append(
            f"TensorFlow {software.tensorflow} built {built}, Python {software.python}, NumPy {software.numpy}, oneDNN "
            f"{onednn}"
        )

    def cuda(self, gpus: Sequence[Card]) -> None:
        software = self.software
        self.account.count(values=1)
        if not software.built_with_cuda:
            message = f"TensorFlow {software.tensorflow} was built without CUDA, so it uses none of the GPUs"
            self.add("TensorFlow", "a build with CUDA", "a build without CUDA", message, _INSTALL)
            return
        known = {
            "driver": software.driver,
            "driver's CUDA": software.driver_cuda,
            "cuDNN": software.cudnn,
            "NCCL": software.nccl,
        }
        versions = ", ".join(f"{name} {version}" for name, version in known.items() if version is not None)
        self.account.scope.append(versions or "versions of driver and libraries unknown")
        self._libraries()
        self._driver(gpus)
        self._cudnn()
        self._nccl(gpus)
        for card in gpus:
            self._kernels(card)
        if self.compiled:
            self.account.scope.append(
                f"{', '.join(self.compiled)}: the driver compiles each kernel from PTX when it is first used, so the "
                "first start takes minutes; CUDA_CACHE_MAXSIZE=4294967296 keeps the compiled kernels"
            )

    def _libraries(self) -> None:
        for library in self.software.missing_libraries:
            self.account.count(values=1)
            if library.startswith(_OPTIONAL):
                self.account.scope.append(f"{library} is missing: only TensorRT needs it")
                continue
            if library.startswith(_OF_DRIVER):
                step = (
                    f"install the NVIDIA driver, which contains {library}; in a container, use the NVIDIA Container "
                    "Toolkit and --gpus all"
                )
            else:
                known = f"ldconfig -p | grep {library.partition('.so')[0]} shows whether the system finds it"
                step = (
                    f"install {library} with {self.pinned}; if the library is installed elsewhere, add its folder to "
                    f"LD_LIBRARY_PATH ({known})"
                )
            message = f"TensorFlow could not load {library}"
            short = library.partition(".so")[0].removeprefix("lib")
            self.add(library, "a library that TensorFlow can load", "none", message, step, subject=short)

    def _driver(self, gpus: Sequence[Card]) -> None:
        software = self.software
        built = software.built_cuda
        if built is None:
            self.account.unproven("the CUDA version of this TensorFlow is unknown", _OFFICIAL.format("cuda_version"))
            return
        needed = MINIMUM_DRIVERS.get(major(built))
        upgrade = f"install NVIDIA driver {needed} or later" if needed else "install a newer NVIDIA driver"
        if software.driver is not None and needed is not None:
            self.account.count(values=1)
            if older(software.driver, needed):
                self.add(
                    "driver",
                    f"{needed} or later, for CUDA {major(built)}",
                    software.driver,
                    f"driver {software.driver} is too old: this TensorFlow was built for CUDA {built}, which needs "
                    f"driver {needed} or later",
                    f"{upgrade}, or a TensorFlow that was built for an older CUDA",
                )
                self.unusable.update(card.label for card in gpus)
        elif software.driver_cuda is not None:
            self.account.count(values=1)
            if older(major(software.driver_cuda), major(built)):
                self.add(
                    "driver",
                    f"support for CUDA {major(built)}",
                    f"support for CUDA {software.driver_cuda}",
                    f"the driver supports CUDA {software.driver_cuda}, but this TensorFlow was built for CUDA {built}",
                    upgrade,
                )
                self.unusable.update(card.label for card in gpus)
        else:
            self.account.unproven("driver version unknown, so the driver may be too old", _NVML)

    def _cudnn(self) -> None:
        built, found = self.software.built_cudnn, self.software.cudnn
        if built is None or found is None:
            if not any("cudnn" in library for library in self.software.missing_libraries):
                self.account.scope.append("cuDNN was not compared: its version is unknown")
            return
        self.account.count(values=1)
        if major(built) != major(found) or older(major_minor(found), major_minor(built)):
            self.add(
                "cuDNN",
                f"{major(built)}.x, {major_minor(built)} or later",
                found,
                f"cuDNN {found} is loaded, but this TensorFlow was built for {built} and needs the same major version "
                "and no older minor version",
                f"run {self.pinned}, and remove other cuDNN versions from LD_LIBRARY_PATH",
            )

    def _nccl(self, gpus: Sequence[Card]) -> None:
        found = self.software.nccl
        if len(gpus) < 2 or any("nccl" in library for library in self.software.missing_libraries):
            return
        if found is None:
            self.account.scope.append("NCCL version unknown: the check 'collectives' shows whether NCCL works")
            return
        self.account.count(values=1)
        if major(found) != "2":
            self.add("NCCL", "2.x", found, f"NCCL {found} is loaded, but TensorFlow needs NCCL 2", _INSTALL)

    def _kernels(self, card: Card) -> None:
        software, capability = self.software, card.compute_capability
        if not software.kernels_sass and not software.kernels_ptx:
            step = _OFFICIAL.format("cuda_compute_capabilities")
            self.account.unproven(f"which kernels the wheel has for {card.label} is unknown", step)
            return
        kind = kernels_for(capability, software.kernels_sass, software.kernels_ptx)
        if kind is None:
            self.account.unproven(f"compute capability of {card.label} unknown", _NVML)
            return
        self.account.count(values=1)
        there = f"machine code for {_listed(software.kernels_sass)}, PTX for {_listed(software.kernels_ptx)}"
        expected = f"machine code for compute capability {capability}"
        if kind is Kernels.NOTHING:
            self.unusable.add(card.label)
            self.add(
                "kernels",
                expected,
                there,
                f"has compute capability {capability}, for which this TensorFlow has no kernels",
                f"use a TensorFlow that supports compute capability {capability}, or build one with "
                f"TF_CUDA_COMPUTE_CAPABILITIES={capability}",
                card=card,
            )
        elif kind is Kernels.COMPILED:
            self._compiled(card, expected, there)

    def _compiled(self, card: Card, expected: str, there: str) -> None:
        software = self.software
        own = TOOLKIT_DRIVERS.get(major_minor(software.built_cuda or ""))
        if own is not None and software.driver is not None and older(software.driver, own):
            self.unusable.add(card.label)
            self.add(
                "kernels",
                f"{expected}, or driver {own} or later, which compiles this PTX",
                f"{there}; driver {software.driver}",
                f"needs its kernels compiled from PTX of CUDA {software.built_cuda}, which driver {software.driver} "
                "cannot do",
                f"install NVIDIA driver {own} or later",
                card=card,
            )
            return
        self.compiled.append(card.label)


def _listed(versions: Sequence[str]) -> str:
    return ", ".join(versions) or "nothing"


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: ``12.5.1`` is ``(12, 5, 1)``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def older(version: str, than: str) -> bool:
    """Return whether ``version`` is below ``than``, number by number; missing numbers are zeros."""
    left, right = numbers(version), numbers(than)
    length = max(len(left), len(right))
    return left + (0,) * (length - len(left)) < right + (0,) * (length - len(right))


def major(version: str) -> str:
    """Return the first number."""
    return version.partition(".")[0]


def major_minor(version: str) -> str:
    """Return the first two numbers: ``12.5.1`` is ``12.5``."""
    return ".".join(version.split(".")[:2])
