"""Whether driver, libraries, TensorFlow and the cards fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.hardware.naming import described, device_of, is_gpu
from harness.hardware.software.installed import Software
from harness.hardware.software.kernels import Kernels, kernels_for
from harness.hardware.software.versions import (
    major,
    major_minor,
    older,
)
from harness.records import Card, Finding, Verdict
from harness.tensorflow_version import (
    MINIMUM_DRIVERS,
    OLDEST,
    OLDEST_NUMPY,
    OLDEST_PYTHON,
    TOO_NEW,
    TOO_NEW_PYTHON,
    TOOLKIT_DRIVERS,
)

INSTALL = "python -m pip install 'tensorflow[and-cuda]'"
#: Libraries that belong to the driver and not to CUDA's packages.
_OF_DRIVER = ("libcuda.so", "libnvidia-ml.so")
#: Libraries without which everything but TensorRT works.
_OPTIONAL = ("libnvinfer", "libnvinfer_plugin", "libnvonnxparser")


@dataclass
class SoftwareJudged:
    """``compared`` counts the comparisons, ``unproven`` says what could not be known, ``steps`` what to do about what.

    ``unusable`` are the labels of cards on which no op can run.
    """

    findings: list[Finding] = field(default_factory=list)
    scope: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    steps: dict[str, Verdict] = field(default_factory=dict)
    compared: int = 0
    unusable: set[str] = field(default_factory=set)

    def add(
        self,
        where: str,
        expected: str,
        found: str,
        message: str,
        step: str,
        *,
        severity: Verdict = Verdict.FAIL,
        device: str | None = None,
    ) -> None:
        """A finding, and what to do about it."""
        self.findings.append(Finding("software", where, device, expected, found, message, severity))
        self.steps.setdefault(step, severity)

    @property
    def next_step(self) -> str:
        """What to do about all that fails, or else about the warnings; empty where there is neither."""
        for severity in (Verdict.FAIL, Verdict.WARN):
            steps = [step for step, of in self.steps.items() if of is severity]
            if steps:
                return "; ".join(steps)
        return ""


def judge_software(software: Software, cards: Sequence[Card], present: Sequence[Card]) -> SoftwareJudged:
    """Compare what is there with what this TensorFlow needs. ``cards`` are TensorFlow's, ``present`` the driver's."""
    judged = SoftwareJudged()
    _versions(software, judged)
    gpus = [card for card in cards if is_gpu(card)]
    if gpus or any(is_gpu(card) for card in present):
        _cuda(software, gpus, judged)
    elif software.missing_libraries:
        judged.scope.append(
            f"no GPU here, and so nothing needs what TensorFlow did not find: {', '.join(software.missing_libraries)}"
        )
    else:
        judged.scope.append("no GPU here: no driver, CUDA, cuDNN or NCCL to compare")
    return judged


def _versions(software: Software, judged: SoftwareJudged) -> None:
    for name, version, (first, end) in (
        ("TensorFlow", software.tensorflow, (OLDEST, TOO_NEW)),
        ("Python", software.python, (OLDEST_PYTHON, TOO_NEW_PYTHON)),
    ):
        judged.compared += 1
        if older(version, first) or not older(version, end):
            judged.add(
                name,
                f"at least {first}, below {end}",
                version,
                f"{name} {version} is not one that these checks are made for ({first} or later, before {end})",
                f"use {name} from {first} on, before {end}, or a version of this harness that knows it",
                severity=Verdict.WARN,
            )
    judged.compared += 1
    if older(software.numpy, OLDEST_NUMPY):
        judged.add(
            "NumPy",
            f"at least {OLDEST_NUMPY}",
            software.numpy,
            f"NumPy {software.numpy} is older than TensorFlow works with",
            f"python -m pip install 'numpy>={OLDEST_NUMPY}'",
        )
    onednn = {True: "on", False: "off", None: "not known"}[software.onednn]
    built = f"for CUDA {software.built_cuda or '(version not known)'}" if software.built_with_cuda else "without CUDA"
    judged.scope.append(
        f"TensorFlow {software.tensorflow} built {built}, Python {software.python}, NumPy {software.numpy}, oneDNN "
        f"{onednn}"
    )


def _cuda(software: Software, gpus: Sequence[Card], judged: SoftwareJudged) -> None:
    judged.compared += 1
    if not software.built_with_cuda:
        judged.add(
            "TensorFlow",
            "a build with CUDA",
            "a build without CUDA",
            f"there are GPUs, and this TensorFlow {software.tensorflow} was built without CUDA: it uses none of them",
            INSTALL,
        )
        return
    versions = [
        f"{name} {version}" for name, version in (("driver", software.driver), ("CUDA of the driver",
        software.driver_cuda), ("cuDNN", software.cudnn), ("NCCL", software.nccl)) if version is not None
    ]  # fmt: skip
    judged.scope.append(", ".join(versions) if versions else "neither driver nor libraries say their version")
    _libraries(software, judged)
    _driver(software, gpus, judged)
    _cudnn(software, judged)
    _nccl(software, gpus, judged)
    for card in gpus:
        _kernels(software, card, judged)


def _libraries(software: Software, judged: SoftwareJudged) -> None:
    for library in software.missing_libraries:
        judged.compared += 1
        if library.startswith(_OPTIONAL):
            judged.scope.append(f"{library} is not there: nothing but TensorRT needs it")
            continue
        judged.add(
            library,
            "a library that TensorFlow can load",
            "not found",
            f"TensorFlow could not load {library}",
            _cure(library, software),
        )


def _cure(library: str, software: Software) -> str:
    if library.startswith(_OF_DRIVER):
        return (
            f"{library} comes with the driver: install the NVIDIA driver; in a container, start it with --gpus all "
            "and the NVIDIA Container Toolkit"
        )
    same = f"=={software.tensorflow}"
    pinned = INSTALL.replace("[and-cuda]", f"[and-cuda]{same}")
    return (
        f"{pinned} brings {library}; where it is installed elsewhere, put its folder into LD_LIBRARY_PATH "
        f"(ldconfig -p | grep {library.partition('.so')[0]} shows whether the system knows it)"
    )


def _driver(software: Software, gpus: Sequence[Card], judged: SoftwareJudged) -> None:
    if software.built_cuda is None:
        judged.unproven.append("which CUDA this TensorFlow was built for is not known")
        return
    needed = MINIMUM_DRIVERS.get(major(software.built_cuda))
    upgrade = f"install NVIDIA driver {needed} or later" if needed else "install a newer NVIDIA driver"
    if software.driver is not None and needed is not None:
        judged.compared += 1
        if older(software.driver, needed):
            judged.add(
                "driver",
                f"{needed} or later, for CUDA {major(software.built_cuda)}",
                software.driver,
                f"driver {software.driver} is too old for CUDA {software.built_cuda}, which this TensorFlow was built "
                f"for: it needs {needed}",
                f"{upgrade}, or a TensorFlow that was built for an older CUDA",
            )
            judged.unusable.update(card.label for card in gpus)
    elif software.driver_cuda is not None:
        judged.compared += 1
        if older(major(software.driver_cuda), major(software.built_cuda)):
            judged.add(
                "driver",
                f"one that supports CUDA {major(software.built_cuda)}",
                f"one for CUDA {software.driver_cuda}",
                f"the driver supports CUDA {software.driver_cuda}, and this TensorFlow was built for "
                f"{software.built_cuda}",
                upgrade,
            )
            judged.unusable.update(card.label for card in gpus)
    else:
        judged.unproven.append("the version of the driver is not known, so that nothing says whether it is new enough")


def _cudnn(software: Software, judged: SoftwareJudged) -> None:
    if software.built_cudnn is None or software.cudnn is None:
        if not any("cudnn" in library for library in software.missing_libraries):
            judged.scope.append("cuDNN was not compared: TensorFlow or the library does not say its version")
        return
    judged.compared += 1
    built, found = software.built_cudnn, software.cudnn
    if major(built) != major(found) or older(major_minor(found), major_minor(built)):
        judged.add(
            "cuDNN",
            f"{major(built)}.x, {major_minor(built)} or later",
            found,
            f"cuDNN {found} is loaded, and this TensorFlow was built for {built}: it takes the same major version, "
            "and no older minor one",
            f"{INSTALL.replace('[and-cuda]', f'[and-cuda]=={software.tensorflow}')}, and take another cuDNN out of "
            "LD_LIBRARY_PATH",
        )


def _nccl(software: Software, gpus: Sequence[Card], judged: SoftwareJudged) -> None:
    if len(gpus) < 2 or any("nccl" in library for library in software.missing_libraries):
        return
    if software.nccl is None:
        judged.scope.append("the version of NCCL is not known: whether it works is what the check collectives says")
        return
    judged.compared += 1
    if major(software.nccl) != "2":
        judged.add(
            "NCCL",
            "2.x",
            software.nccl,
            f"NCCL {software.nccl} is loaded, and TensorFlow is written for NCCL 2",
            INSTALL,
        )


def _kernels(software: Software, card: Card, judged: SoftwareJudged) -> None:
    if not software.kernels_sass and not software.kernels_ptx:
        judged.unproven.append(
            f"what kernels the wheel has is not known, so that nothing says whether {card.label} has any"
        )
        return
    kind = kernels_for(card.compute_capability, software.kernels_sass, software.kernels_ptx)
    if kind is None:
        judged.unproven.append(f"the compute capability of {described(card)} is not known")
        return
    judged.compared += 1
    there = f"machine code for {_listed(software.kernels_sass)}, PTX for {_listed(software.kernels_ptx)}"
    expected = f"machine code for compute capability {card.compute_capability}"
    if kind is Kernels.NOTHING:
        judged.unusable.add(card.label)
        judged.add(
            "kernels",
            expected,
            there,
            f"this TensorFlow has no kernels for {described(card)} with compute capability {card.compute_capability}",
            f"use a TensorFlow that supports {card.label} (compute capability {card.compute_capability}), or build "
            f"one with TF_CUDA_COMPUTE_CAPABILITIES={card.compute_capability}",
            device=device_of(card),
        )
    elif kind is Kernels.COMPILED:
        _compiled(software, card, judged, expected, there)


def _compiled(software: Software, card: Card, judged: SoftwareJudged, expected: str, there: str) -> None:
    own = TOOLKIT_DRIVERS.get(major_minor(software.built_cuda or ""))
    if own is not None and software.driver is not None and older(software.driver, own):
        judged.unusable.add(card.label)
        judged.add(
            "kernels",
            f"{expected}, or driver {own} or later, which compiles this PTX",
            f"{there}; driver {software.driver}",
            f"{described(card)} needs its kernels compiled from PTX of CUDA {software.built_cuda}, which driver "
            f"{software.driver} cannot do",
            f"install NVIDIA driver {own} or later",
            device=device_of(card),
        )
        return
    judged.add(
        "kernels",
        expected,
        there,
        f"the driver compiles every kernel for {described(card)} from PTX when it is first used: the first start takes "
        "minutes",
        f"nothing is wrong with {card.label}: give CUDA_CACHE_MAXSIZE=4294967296 so that what was compiled is kept, "
        f"or use a TensorFlow with machine code for {card.compute_capability}",
        severity=Verdict.WARN,
        device=device_of(card),
    )


def _listed(versions: Sequence[str]) -> str:
    return ", ".join(versions) or "nothing"
