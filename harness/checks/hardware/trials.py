"""What the arithmetic check runs at each level: operations with their operands, and how their results are judged."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.checks.check import Level
from harness.checks.hardware import operations
from harness.judgement.hardware.bounds import SHORT, Allowed, exact, rounded, summed, transformed
from harness.machine.operation import Operation

#: How the error of an operation is bounded.
Form = Literal["summed", "rounded", "transformed", "exact"]

FLOATS = ("float64", "float32", "float16", "bfloat16")
#: Whole numbers of ops that GPUs have: of int32, TensorFlow adds and multiplies on the host for them.
WHOLE = ("int8", "int64")


@dataclass(frozen=True)
class Trial:
    """An operation and its operands. ``terms`` are the products in a sum, or the roundings one after the other.

    ``multiplies``: products are formed, so that TF32 may be used for float32.
    """

    operation: Operation
    operands: Callable[[np.random.Generator], tuple[NDArray[Any], ...]]
    form: Form
    terms: int = 1
    multiplies: bool = False

    def reference(self, operands: tuple[NDArray[Any], ...]) -> NDArray[Any]:
        """The true result, in float64, complex128 or int64."""
        found: NDArray[Any] = self.operation.reference(*(operations.wide(each) for each in operands))
        return found

    def allowed(self, operands: tuple[NDArray[Any], ...], reference: NDArray[Any], tf32: bool) -> Allowed:
        """How far a result may be from ``reference``."""
        if self.form == "summed":
            magnitude = self.operation.reference(*(np.abs(operations.wide(each)) for each in operands))
            return summed(reference, magnitude, self.terms, self.operation.dtype, tf32=tf32 and self.multiplies)
        if self.form == "rounded":
            return rounded(reference, self.terms, self.operation.dtype)
        return transformed(reference, self.operation.dtype) if self.form == "transformed" else exact()


def numpy_dtype(name: str) -> Any:
    """NumPy's dtype of that name; bfloat16 is ml_dtypes'."""
    return np.dtype(importlib.import_module("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def values_of(level: Level) -> list[Trial]:
    """The operations whose results are judged. ``quick`` has few; ``deep`` has larger operands."""
    n = {Level.QUICK: 128, Level.STANDARD: 256, Level.DEEP: 768}[level]
    if level is Level.QUICK:
        return [
            *(_matmul(n, dtype) for dtype in ("float64", "float32", "bfloat16", "int32")),
            _convolution(2, 33, 16, "float32"),
            _reduction(n, 1024, "float32"),
            _elementwise(n * n, "float32"),
            _fft(16, 1024, "complex64"),
            _sort(16, 1024, "float32"),
        ]
    images = 4 if level is Level.DEEP else 2
    return [
        *(_matmul(n, dtype) for dtype in (*FLOATS, "int8", "int32")),
        *(_convolution(images, 65, 32, dtype) for dtype in FLOATS),
        *(_reduction(n, 2048, dtype) for dtype in (*FLOATS, "int64")),
        *(_addition(n * n, dtype) for dtype in (*FLOATS, *WHOLE)),
        *(_elementwise(n * n, dtype) for dtype in (*FLOATS, *WHOLE)),
        *(
            _fft(64, 2 * n, dtype) if _power_of_two(n) else _fft(64, 4096, dtype)
            for dtype in ("complex64", "complex128")
        ),
        *(_sort(64, 4 * n, dtype) for dtype in (*FLOATS, "int64")),
    ]


def rates_of(level: Level, on_gpu: bool, described: bool) -> list[Trial]:
    """The operations whose rates are measured, of sizes that keep the kind of card busy.

    On a described machine NumPy does the work and the clock is simulated, so that small sizes say the same.
    """
    small = described or not on_gpu
    side = {"float32": 256 if described else 1024 if small else 4096}
    side |= {"float64": 256 if described else 512 if small else 4096, "float16": 256 if small else 8192}
    side["bfloat16"] = side["float16"]
    # On CPUs 16 MiB: what is larger, the host gives and takes back page by page for each result, which is slow.
    vector = 2**16 if described else 2**22 if small else 2**27
    dtypes = ("float32",) if level is Level.QUICK else FLOATS
    quick = [*(_matmul(side[dtype], dtype) for dtype in dtypes), _addition(vector, "float32")]
    if level is Level.QUICK:
        return quick
    images, rows = (4, 64) if small else (64, 8192)
    return [
        *quick,
        _convolution(images, 65, 32 if small else 256, "float32"),
        _reduction(vector // 2**11, 2**11, "float32"),
        _fft(rows, 4096, "complex64"),
        _sort(rows, 4096, "float32"),
    ]


def _matmul(n: int, dtype: str) -> Trial:
    whole = dtype.startswith("int")
    return Trial(
        operations.matmul(n, dtype),
        lambda random: (_drawn(random, (n, n), dtype), _drawn(random, (n, n), dtype)),
        "exact" if whole else "summed",
        n,
        multiplies=True,
    )


def _convolution(images: int, size: int, channels: int, dtype: str) -> Trial:
    windows = (operations.WINDOW, operations.WINDOW, channels, channels)
    return Trial(
        operations.convolution(images, size, channels, dtype),
        lambda random: (_drawn(random, (images, size, size, channels), dtype), _drawn(random, windows, dtype)),
        "summed",
        operations.WINDOW**2 * channels,
        multiplies=True,
    )


def _reduction(rows: int, columns: int, dtype: str) -> Trial:
    """Sums of short dtypes are of whole numbers: some kernels add them up in the dtype itself, and others in float32.

    Up to 2,048 numbers of -1, 0 and 1 have sums below 256, which bfloat16 has exactly.
    """
    if dtype in SHORT:
        return Trial(
            operations.reduction(rows, columns, dtype),
            lambda random: (random.integers(-1, 2, (rows, columns)).astype(numpy_dtype(dtype)),),
            "exact",
        )
    form: Form = "exact" if dtype.startswith("int") else "summed"
    return Trial(
        operations.reduction(rows, columns, dtype),
        lambda random: (_drawn(random, (rows, columns), dtype),),
        form,
        columns,
    )


def _addition(size: int, dtype: str) -> Trial:
    form: Form = "exact" if dtype.startswith("int") else "rounded"
    return Trial(
        operations.addition(size, dtype),
        lambda random: (_drawn(random, (size,), dtype), _drawn(random, (size,), dtype)),
        form,
    )


def _elementwise(size: int, dtype: str) -> Trial:
    whole = dtype.startswith("int")
    return Trial(
        operations.elementwise(size, dtype),
        lambda random: (_positive(random, size, dtype), _positive(random, size, dtype)),
        "exact" if whole else "rounded",
        operations.ELEMENTWISE_ROUNDINGS,
    )


def _fft(rows: int, points: int, dtype: str) -> Trial:
    def operands(random: np.random.Generator) -> tuple[NDArray[Any], ...]:
        parts = random.uniform(-1, 1, (2, rows, points))
        return ((parts[0] + 1j * parts[1]).astype(dtype),)

    return Trial(operations.fft(rows, points, dtype), operands, "transformed")


def _sort(rows: int, columns: int, dtype: str) -> Trial:
    return Trial(
        operations.sort(rows, columns, dtype), lambda random: (_drawn(random, (rows, columns), dtype),), "exact"
    )


def _drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Numbers of either sign. Whole ones are so small that no sum of products overflows."""
    if dtype.startswith("int"):
        return random.integers(-10, 11, shape).astype(dtype)
    return random.uniform(-1, 1, shape).astype(numpy_dtype(dtype))


def _positive(random: np.random.Generator, size: int, dtype: str) -> NDArray[Any]:
    if dtype.startswith("int"):
        return random.integers(1, 11, size).astype(dtype)
    return random.uniform(0.5, 2, size).astype(numpy_dtype(dtype))


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0
