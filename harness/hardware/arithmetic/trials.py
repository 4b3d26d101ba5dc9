"""The operations of each level of the arithmetic check, with their operands and the bounds of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.checking.check import Level
from harness.hardware import operations
from harness.hardware.arithmetic.bounds import SHORT, Allowed, exact, rounded, summed, transformed
from harness.hardware.machine import Operation
from harness.hardware.operations import numpy_dtype

#: How the error of an operation is bounded.
Form = Literal["summed", "rounded", "transformed", "exact"]

FLOATS = ("float64", "float32", "float16", "bfloat16")
#: Integer dtypes with kernels on GPUs: TensorFlow adds and multiplies int32 on the host for them.
WHOLE = ("int8", "int64")


#: Makes one operand, of a shape and in a dtype.
Draw = Callable[[np.random.Generator, tuple[int, ...], str], NDArray[Any]]


@dataclass(frozen=True)
class Trial:
    """An operation and its operands. ``terms`` are the products in a sum, or the roundings one after the other.

    ``multiplies``: products are formed, so that TF32 may be used for float32.
    """

    operation: Operation
    shapes: tuple[tuple[int, ...], ...]
    draw: Draw
    form: Form
    terms: int = 1
    multiplies: bool = False
    #: TF32 switched on or off for it; ``None``: unchanged.
    tf32: bool | None = None
    #: The name of its figure, if not that of the operation.
    figure: str = ""

    def operands(self, random: np.random.Generator) -> tuple[NDArray[Any], ...]:
        """Return operands, the same for the same state of ``random``."""
        return tuple(self.draw(random, shape, self.operation.dtype) for shape in self.shapes)

    def reference(self, operands: tuple[NDArray[Any], ...]) -> NDArray[Any]:
        """Return the true result, in float64, complex128 or int64."""
        found: NDArray[Any] = self.operation.reference(*(operations.wide(each) for each in operands))
        return found

    def allowed(self, operands: tuple[NDArray[Any], ...], reference: NDArray[Any], tf32: bool) -> Allowed:
        """Return how far a result may be from ``reference``."""
        if self.form == "summed":
            magnitude = self.operation.reference(*(np.abs(operations.wide(each)) for each in operands))
            coarse = tf32 and self.multiplies and self.operation.dtype == "float32"
            return summed(reference, magnitude, self.terms, self.operation.dtype, tf32=coarse)
        if self.form == "rounded":
            return rounded(reference, self.terms, self.operation.dtype)
        return transformed(reference, self.operation.dtype) if self.form == "transformed" else exact()


def values_of(level: Level) -> list[Trial]:
    """Return the operations whose results are judged."""
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
    images, points = (4, 4096) if level is Level.DEEP else (2, 512)
    return [
        *(_matmul(n, dtype) for dtype in (*FLOATS, "int8", "int32")),
        *(_convolution(images, 65, 32, dtype) for dtype in FLOATS),
        *(_reduction(n, 2048, dtype) for dtype in (*FLOATS, "int64")),
        *(_addition(n * n, dtype) for dtype in (*FLOATS, *WHOLE)),
        *(_elementwise(n * n, dtype) for dtype in (*FLOATS, *WHOLE)),
        *(_fft(64, points, dtype) for dtype in ("complex64", "complex128")),
        *(_sort(64, 4 * n, dtype) for dtype in (*FLOATS, "int64")),
    ]


def rates_of(level: Level, on_gpu: bool, room_bytes: int | None = None) -> list[Trial]:
    """Return the operations whose rates are measured, large enough to make the launch negligible.

    ``room_bytes`` is the memory of a device; a small one gets shorter vectors.
    """
    side = {"float32": 4096 if on_gpu else 1024, "float64": 4096 if on_gpu else 512}
    side["float16"] = side["bfloat16"] = 8192 if on_gpu else 256
    # On CPUs 16 MiB: the host maps and unmaps larger results page by page, which is slow.
    vector = 2**26 if on_gpu else 2**22
    # Two operands, the first result, the last one and the one after that, in float32; and as much to spare.
    while room_bytes is not None and 6 * 4 * vector > room_bytes:
        vector //= 2
    side["int8"] = side["float16"]
    # On GPUs, profiles have the int8 rate of tensor cores, which TensorFlow's products do not use.
    dtypes = ("float32",) if level is Level.QUICK else FLOATS if on_gpu else (*FLOATS, "int8")
    quick = [
        *(_matmul(side[dtype], dtype) for dtype in dtypes),
        replace(_addition(vector, "float32"), figure="memory bandwidth"),
    ]
    if level is Level.QUICK:
        return quick
    images, rows = (64, 8192) if on_gpu else (4, 64)
    return [
        *quick,
        _convolution(images, 65, 256 if on_gpu else 32, "float32"),
        _reduction(vector // 2**11, 2**11, "float32"),
        _fft(rows, 4096, "complex64"),
        _sort(rows, 4096, "float32"),
    ]


def both_ways(trials: Iterable[Trial]) -> list[Trial]:
    """Return ``trials`` with float32 products twice: in float32, and in TF32 with ``tfloat32`` in their names."""
    made = []
    for trial in trials:
        if not trial.multiplies or trial.operation.dtype != "float32":
            made.append(trial)
            continue
        coarse = replace(trial.operation, name=tfloat32(trial.operation.name))
        made += [replace(trial, tf32=False), replace(trial, operation=coarse, tf32=True)]
    return made


def tfloat32(name: str) -> str:
    """Return the name of an operation or figure in TF32, as in profiles."""
    return name.replace(" float32", " tfloat32")


def _matmul(n: int, dtype: str) -> Trial:
    form: Form = "exact" if _whole(dtype) else "summed"
    return Trial(operations.matmul(n, dtype), ((n, n), (n, n)), _drawn, form, n, multiplies=True)


def _convolution(images: int, size: int, channels: int, dtype: str) -> Trial:
    window = operations.WINDOW
    shapes = ((images, size, size, channels), (window, window, channels, channels))
    operation = operations.convolution(images, size, channels, dtype)
    return Trial(operation, shapes, _drawn, "summed", window**2 * channels, multiplies=True)


def _reduction(rows: int, columns: int, dtype: str) -> Trial:
    """Sum integers in short dtypes, because some kernels add them up in the dtype itself, and others in float32.

    Up to 2,048 numbers of -1, 0 and 1 have sums below 256, which are exact in bfloat16.
    """
    operation = operations.reduction(rows, columns, dtype)
    if dtype in SHORT:
        return Trial(operation, ((rows, columns),), _signs, "exact")
    form: Form = "exact" if _whole(dtype) else "summed"
    return Trial(operation, ((rows, columns),), _drawn, form, columns)


def _addition(size: int, dtype: str) -> Trial:
    form: Form = "exact" if _whole(dtype) else "rounded"
    return Trial(operations.addition(size, dtype), ((size,), (size,)), _drawn, form)


def _elementwise(size: int, dtype: str) -> Trial:
    form: Form = "exact" if _whole(dtype) else "rounded"
    operation = operations.elementwise(size, dtype)
    return Trial(operation, ((size,), (size,)), _positive, form, operations.ELEMENTWISE_ROUNDINGS)


def _fft(rows: int, points: int, dtype: str) -> Trial:
    return Trial(operations.fft(rows, points, dtype), ((rows, points),), _complex, "transformed")


def _sort(rows: int, columns: int, dtype: str) -> Trial:
    return Trial(operations.sort(rows, columns, dtype), ((rows, columns),), _drawn, "exact")


def _whole(dtype: str) -> bool:
    return dtype.startswith("int")


def _drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Draw numbers of either sign. Integers are so small that no sum of products overflows."""
    if _whole(dtype):
        return random.integers(-10, 11, shape).astype(dtype)
    if dtype in ("float32", "float64"):
        made: NDArray[Any] = random.random(shape, np.dtype(dtype))
        made *= 2
        made -= 1
        return made
    return random.uniform(-1, 1, shape).astype(numpy_dtype(dtype))


def _signs(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return random.integers(-1, 2, shape).astype(numpy_dtype(dtype))


def _positive(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    if _whole(dtype):
        return random.integers(1, 11, shape).astype(dtype)
    return random.uniform(0.5, 2, shape).astype(numpy_dtype(dtype))


def _complex(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    parts = random.uniform(-1, 1, (2, *shape))
    return np.asarray(parts[0] + 1j * parts[1], np.dtype(dtype))
