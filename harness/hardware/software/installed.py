"""What the driver, the GPU libraries and TensorFlow report about themselves. ``None`` means absent or unknown."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.hardware.driver_errors import Surroundings


@dataclass(frozen=True, slots=True)
class Software:
    """Versions as texts such as ``12.5``. ``built_*`` is what this TensorFlow was built for.

    ``kernels_sass`` and ``kernels_ptx`` are compute capabilities such as ``9.0`` that the wheel has machine code, or
    PTX to compile from, for. ``missing_libraries`` are those that TensorFlow tried to load and could not. ``visible``
    is the value of ``CUDA_VISIBLE_DEVICES`` (or ``None``), and ``numbering`` the UUIDs in TensorFlow's order.
    """

    tensorflow: str
    numpy: str
    python: str
    onednn: bool | None = None
    built_with_cuda: bool = False
    built_cuda: str | None = None
    built_cudnn: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    kernels_sass: tuple[str, ...] = ()
    kernels_ptx: tuple[str, ...] = ()
    missing_libraries: tuple[str, ...] = ()
    visible: str | None = None
    numbering: tuple[str, ...] = ()
    tf32: bool | None = None
    #: The error with which CUDA refuses to start (cuInit); ``None`` where it starts.
    cuda_error: int | None = None
    #: What the advice about an error of the driver depends on.
    around: Surroundings = field(default_factory=Surroundings)
