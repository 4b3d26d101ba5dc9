"""The faults of a described machine: one ``[[fault]]`` table each, distinguished by ``kind``.

``card`` is the slot of the card, from 0, whatever number the driver or TensorFlow gives it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from harness.devices.described.nvml_errors import NVML_ERRORS, NvmlErrorName
from harness.devices.toml_file import Table

#: Errors of the memory that were corrected long ago: a healthy card has some.
OLD_CORRECTED = 3
#: One name: faults.h takes lists, and an empty one for all ops.
_OP = "^[A-Za-z_][A-Za-z0-9_]*$"
#: A version of CUDA, which NVML gives as one number.
CUDA_VERSION = r"^\d{1,2}(\.\d)?$"
VERSION = r"^\d+(\.\d+)*$"
#: What a card, a driver or a run can count: more never comes up.
MOST_COUNTED = 10**12


FloatType = Literal["float16", "bfloat16", "float32", "float64"]
NumberType = Literal["int8", "uint8", "int16", "uint16", "int32", "int64", "complex64", "complex128", FloatType]
_Probability = Annotated[float, Field(gt=0, le=1, description="a number above 0, up to 1")]


def whole_number(least: int, most: int | None = None, of: str = "", **default: Any) -> Any:
    """Make the field of an integer in a range, with ``default=`` if it may be left out. ``of``: what it counts."""
    highest = "10^12" if most == MOST_COUNTED else f"{most:,}" if most is not None else ""
    described = f"an integer from {least} to {highest}" if highest else f"an integer, {least} or more"
    made: Any = Field(ge=least, le=most, description=described + (f" ({of})" if of else ""), **default)
    return made


class FaultTable(Table):
    """Base of all faults."""


class OnCard(FaultTable):
    """A fault of one card."""

    card: int = whole_number(0, of="the slot of a card")


class OnPair(FaultTable):
    """A fault of the copies from one card to another."""

    pair: list[int] = Field(min_length=2, max_length=2, description="two cards, [from, to], such as [1, 3]")
    kind: str
    probability: _Probability = 1.0


class LinkWidth(OnCard):
    """The PCIe link runs with fewer lanes."""

    kind: Literal["link-width"]
    width: Literal[1, 2, 4, 8] = Field(default=4, description="1, 2, 4 or 8 (PCIe lanes)")


class LinkGeneration(OnCard):
    """The PCIe link stays at an older generation, under load too."""

    kind: Literal["link-generation"]
    generation: int = Field(default=1, ge=1, le=5, description="a PCIe generation from 1 to 5")


class Hot(OnCard):
    """The card heats up under load until it slows down."""

    kind: Literal["hot"]
    slowdown_after_s: float = Field(
        default=1.0, gt=0, description="a number above 0 (seconds of load until the card slows down)"
    )


class Ecc(OnCard):
    """Memory errors grow while the card is in use."""

    kind: Literal["ecc"]
    corrected_per_s: float = Field(default=10.0, ge=0, le=1e9, description="a number from 0 to 1e9 (errors a second)")
    uncorrected_per_s: float = Field(default=0.0, ge=0, le=1e9, description="a number from 0 to 1e9 (errors a second)")
    old_corrected: int = whole_number(
        0, MOST_COUNTED, "corrected errors before the driver was loaded", default=OLD_CORRECTED
    )
    old_uncorrected: int = whole_number(0, MOST_COUNTED, "uncorrected errors before the driver was loaded", default=0)


class RowRemap(OnCard):
    """A row of the memory waits for a reset to be replaced, or cannot be replaced."""

    kind: Literal["row-remap"]
    state: Literal["pending", "failed"] = Field(default="pending", description="'pending' or 'failed'")


class RetiredPages(OnCard):
    """Pages of the memory were retired, as on cards before the A100."""

    kind: Literal["retired-pages"]
    count: int = whole_number(1, 64, "pages with double-bit errors", default=4)
    pending: bool = Field(
        default=True, description="true or false (whether the pages are retired only at the next reset)"
    )


class PowerLimit(OnCard):
    """Somebody has lowered the power limit."""

    kind: Literal["power-limit"]
    watts: float = Field(default=350.0, gt=0, description="a number above 0 (watts)")


class MemoryHeld(OnCard):
    """A process that is no longer alive still holds memory."""

    kind: Literal["memory-held"]
    share: float = Field(
        default=0.8, gt=0, lt=1, description="a number between 0 and 1 (the share of the memory that is held)"
    )
    process: int = whole_number(1, 2**22, "the id of the process", default=4242)


class CudaUnavailable(FaultTable):
    """The driver sees the cards, but CUDA cannot start."""

    kind: Literal["cuda-unavailable"]
    code: int = Field(
        default=802, ge=1, lt=2**31, description="an integer, 1 or more, such as 802 (the error code of cuInit)"
    )


def _named_in_full(name: object) -> object:
    return f"NVML_ERROR_{name}" if f"NVML_ERROR_{name}" in NVML_ERRORS else name


class NvmlError(FaultTable):
    """NVML returns an error: from every function for one card, or from one function for one card or for all."""

    kind: Literal["nvml-error"]
    error: Annotated[NvmlErrorName, BeforeValidator(_named_in_full)] = Field(
        description="an error of nvml.h, with or without NVML_ERROR_ before it: "
        + ", ".join(name.removeprefix("NVML_ERROR_") for name in NVML_ERRORS)
    )
    card: int | None = whole_number(0, of="the slot of a card", default=None)
    call: str | None = Field(
        default=None,
        description="an NVML function without a version suffix such as _v2, for example 'nvmlDeviceGetTemperature'; "
        "required without the key `card`",
    )


class Lost(OnCard):
    """The card falls off the bus, at once or in the middle of a run."""

    kind: Literal["lost"]
    after_ops: int = whole_number(0, MOST_COUNTED, "ops that the card runs before it is lost", default=0)


class NoWrite(OnCard):
    """A kernel returns without having written its result."""

    kind: Literal["no-write"]
    op: str = Field(default="MatMul", pattern=_OP, description="the name of an op, such as 'MatMul'")
    probability: _Probability = 1.0


class Nondeterministic(OnCard):
    """Sums of floats differ from run to run in their last bit."""

    kind: Literal["nondeterministic"]
    probability: _Probability = 0.5


class Stale(OnPair):
    """A copy from the first card to the second one does not arrive: the old content stays."""

    kind: Literal["stale"]


class Shifted(OnPair):
    """A copy from the first card to the second one arrives 8 bytes too far."""

    kind: Literal["shifted"]


class Zeros(OnPair):
    """A copy from the first card to the second one delivers zeros."""

    kind: Literal["zeros"]


class PairFlip(OnPair):
    """A copy from the first card to the second one flips a bit."""

    kind: Literal["pair-flip"]


class BitFlip(OnCard):
    """A result computed on the card sometimes has a flipped bit."""

    kind: Literal["bit-flip"]
    probability: _Probability = 0.05
    op: str | None = Field(
        default=None,
        pattern=_OP,
        description="the name of an op, such as 'MatMul'; default: matrix products and convolutions",
    )
    dtype: NumberType | None = Field(
        default=None, description=f"one of {', '.join(get_args(NumberType))}; default: all"
    )
    bits: int = whole_number(1, 8, "neighbouring bits that flip in an element", default=1)
    run: int = whole_number(
        1,
        1024,
        "neighbouring elements that are wrong together; the index of the first is a multiple of this number",
        default=1,
    )
    least_elements: int = whole_number(0, of="results with fewer elements stay right", default=0)
    elements: list[Annotated[int, Field(ge=0)]] | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="up to 1024 different indices into the flattened result, such as [0, 17] (these elements are wrong "
        "at the same time; indices beyond the end of the result are ignored); default: any element",
    )


class WrongCard(OnCard):
    """Every matrix product and convolution on the card is wrong at one element, always the same."""

    kind: Literal["wrong-card"]


class WrongArithmetic(OnCard):
    """Results of one dtype are wrong on the card by a relative error."""

    kind: Literal["wrong-arithmetic"]
    dtype: FloatType = Field(description=f"one of {', '.join(get_args(FloatType))}")
    relative_error: float = Field(default=1e-2, gt=0, description="a number above 0")


class Slow(OnCard):
    """The card computes at a fraction of its rate."""

    kind: Literal["slow"]
    factor: float = Field(
        default=0.6, gt=0, lt=1, description="a number between 0 and 1 (the share of its rate that is left)"
    )


class Missing(OnCard):
    """The driver sees the card, TensorFlow does not."""

    kind: Literal["missing"]


class Absent(OnCard):
    """Neither the driver nor TensorFlow sees the card: only ``--require`` notices."""

    kind: Literal["absent"]


class Misnumbered(FaultTable):
    """TensorFlow swaps two cards, compared with the order of ``CUDA_VISIBLE_DEVICES``."""

    kind: Literal["misnumbered"]
    cards: list[int] = Field(min_length=2, max_length=2, description="two cards, such as [0, 1]")


class StuckAllocation(OnCard):
    """A share of the memory is reported as free but unavailable."""

    kind: Literal["stuck-allocation"]
    share: float = Field(default=0.5, gt=0, le=1, description="a number above 0, up to 1 (the share of the memory)")


class StuckBit(OnCard):
    """One bit of one memory cell keeps its value."""

    kind: Literal["stuck-bit"]
    word: int = whole_number(0, of="the number of a 64-bit word of the memory", default=1_000_003)
    bit: int = whole_number(0, 63, "the bit of the word", default=17)
    value: Literal[0, 1] = Field(default=1, description="0 or 1 (what the bit always reads)")


class Leak(OnCard):
    """Each matrix product or convolution leaks memory."""

    kind: Literal["leak"]
    bytes_per_step: int = whole_number(1, of="bytes leaked by each op", default=2**20)


class Replays(OnCard):
    """The PCIe link has to resend packets."""

    kind: Literal["replays"]
    per_s: float = Field(default=50.0, gt=0, le=1e9, description="a number above 0, up to 1e9 (packets a second)")


class NvlinkDown(OnCard):
    """NVLinks of the card are down."""

    kind: Literal["nvlink-down"]
    links: int = whole_number(1, of="NVLinks that are down", default=1)


class Xid(OnCard):
    """The driver reports an error of the card while the card works."""

    kind: Literal["xid"]
    code: int = Field(default=79, ge=1, le=999, description="an Xid number from 1 to 999, such as 79")
    after_s: float = Field(default=0.5, ge=0, description="a number, 0 or more (seconds of work before the error)")


class CollectiveDrop(OnCard):
    """Collective ops leave out what the card contributes."""

    kind: Literal["collective-drop"]
    algorithm: Literal["nccl", "ring"] | None = Field(
        default=None,
        description="'nccl' or 'ring'; default: both (hierarchical copy and reduction to one device use no "
        "collective ops, only copies and sums: for those, use the faults 'zeros' and 'no-write')",
    )


class LibraryMissing(FaultTable):
    """TensorFlow cannot load a library."""

    kind: Literal["library-missing"]
    library: str = Field(
        default="libcudnn.so.9", pattern=r"^lib[\w.+-]+$", description="the name of a library, such as 'libcudnn.so.9'"
    )


class DriverTooOld(FaultTable):
    """The driver is too old for the CUDA version that TensorFlow was built for."""

    kind: Literal["driver-too-old"]
    driver: str = Field(default="470.57.02", pattern=VERSION, description="a version, such as '470.57.02'")
    driver_cuda: str = Field(default="11.4", pattern=CUDA_VERSION, description="a version, such as '11.4'")


class KernelsMissing(FaultTable):
    """The TensorFlow wheel has neither machine code nor PTX for the compute capability of the cards."""

    kind: Literal["kernels-missing"]
