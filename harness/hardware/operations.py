"""The operations of the arithmetic check: TensorFlow's op, and the same by NumPy in float64 or integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.hardware.machine import Operation
from harness.judgement.tolerance import epsilon_of_name
from harness.lazy import tf

#: The convolution has a window of 3 by 3 and a stride of 2, because Winograd and Fourier kernels have a stride of 1,
#: and the bound of a sum of products does not hold for them.
WINDOW = 3
STRIDE = 2


def numpy_dtype(name: str) -> Any:
    """Return NumPy's dtype of that name; bfloat16 is ml_dtypes'."""
    import ml_dtypes  # noqa: F401 - adds bfloat16 to NumPy

    return np.dtype(name)


def itemsize(dtype: str) -> int:
    """Return the bytes of an element, by NumPy's or ml_dtypes' name."""
    return int(numpy_dtype(dtype).itemsize)


def wide(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` in the widest dtype of its kind: complex128, float64 or int64."""
    if np.iscomplexobj(array):
        return array.astype(np.complex128)
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def matmul(n: int, dtype: str) -> Operation:
    """Multiply two ``[n, n]`` matrices. int8 gives int32."""
    result = "int32" if dtype == "int8" else dtype

    def tensorflow(a: Any, b: Any) -> Any:
        return tf.matmul(a, b, output_type=tf.int32) if dtype == "int8" else tf.matmul(a, b)

    traffic = float(n * n * (2 * itemsize(dtype) + itemsize(result)))
    return Operation(f"matmul {dtype}", dtype, result, tensorflow, _product, 2.0 * n**3, traffic)


def _product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    first, second = wide(a), wide(b)
    if first.dtype.kind != "i":
        return np.asarray(first @ second)
    # Small integers are exact in float64, whose products NumPy computes a hundred times faster.
    return np.asarray((first.astype(np.float64) @ second.astype(np.float64)).astype(np.int64))


def convolution(images: int, size: int, channels: int, dtype: str) -> Operation:
    """Convolve ``[images, size, size, channels]`` with ``[3, 3, channels, channels]``, with a stride of 2."""
    out = (size - WINDOW) // STRIDE + 1

    def tensorflow(images: Any, windows: Any) -> Any:
        return tf.nn.conv2d(images, windows, strides=STRIDE, padding="VALID")

    elements = images * size**2 * channels + WINDOW**2 * channels**2 + images * out**2 * channels
    flop, traffic = 2.0 * images * out**2 * channels**2 * WINDOW**2, float(elements * itemsize(dtype))
    return Operation(f"convolution {dtype}", dtype, dtype, tensorflow, _convolve, flop, traffic)


def _convolve(images: NDArray[Any], windows: NDArray[Any]) -> NDArray[Any]:
    a, w = wide(images), wide(windows)
    out = (a.shape[1] - WINDOW) // STRIDE + 1
    last = STRIDE * (out - 1) + 1
    parts = [
        a[:, i : i + last : STRIDE, j : j + last : STRIDE, :] @ w[i, j] for i in range(WINDOW) for j in range(WINDOW)
    ]
    return np.asarray(np.sum(parts, axis=0))


def reduction(rows: int, columns: int, dtype: str) -> Operation:
    """Sum the rows of ``[rows, columns]``."""

    def tensorflow(a: Any) -> Any:
        return tf.reduce_sum(a, axis=1)

    return _streaming("reduction", dtype, tensorflow, lambda a: np.sum(wide(a), axis=1), rows * (columns + 1))


def addition(size: int, dtype: str) -> Operation:
    """Add two vectors of ``size`` elements: one rounding, two reads and a write."""
    return _streaming("addition", dtype, lambda a, b: a + b, lambda a, b: wide(a) + wide(b), 3 * size)


#: Roundings of :func:`elementwise`: one each for the product and the sum; a GPU's root may be off by 3 units in the
#: last place and its quotient by 2, which are 6 and 4 roundings (CUDA C++ Programming Guide, mathematical functions,
#: without ``-prec-sqrt`` and ``-prec-div``); the rest is for float16 computed by way of float32.
ELEMENTWISE_ROUNDINGS = 16


def elementwise(size: int, dtype: str) -> Operation:
    """Compute ``sqrt(a) * b / (a + b)`` of positive vectors of ``size`` elements; ``a * b`` of integers."""
    whole = epsilon_of_name(dtype) == 0

    def tensorflow(a: Any, b: Any) -> Any:
        return a * b if whole else tf.sqrt(a) * b / (a + b)

    def reference(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        first, second = wide(a), wide(b)
        return np.asarray(first * second if whole else np.sqrt(first) * second / (first + second))

    return _streaming("elementwise", dtype, tensorflow, reference, 3 * size)


def fft(rows: int, points: int, dtype: str) -> Operation:
    """Fourier-transform each row of ``[rows, points]``, counted as ``5 n log2(n)`` operations, as is usual."""

    def tensorflow(a: Any) -> Any:
        return tf.signal.fft(a)

    flop, traffic = 5.0 * rows * points * float(np.log2(points)), 2.0 * rows * points * itemsize(dtype)
    return Operation(f"fft {dtype}", dtype, dtype, tensorflow, lambda a: np.fft.fft(wide(a), axis=-1), flop, traffic)


def sort(rows: int, columns: int, dtype: str) -> Operation:
    """Sort each row of ``[rows, columns]``: at least one read and one write."""

    def tensorflow(a: Any) -> Any:
        return tf.sort(a, axis=-1)

    return _streaming("sort", dtype, tensorflow, lambda a: np.sort(wide(a), axis=-1), 2 * rows * columns)


def _streaming(
    name: str, dtype: str, tensorflow: Callable[..., Any], reference: Callable[..., Any], moved: int
) -> Operation:
    """Make an operation that is limited by memory, with the number of elements that it moves."""
    traffic = float(moved * itemsize(dtype))
    return Operation(f"{name} {dtype}", dtype, dtype, tensorflow, reference, None, traffic, "GB/s")


#: What TensorFlow says when it places an op without soft placement, or when no kernel takes a dtype.
_NO_KERNEL = (
    "could not find device for node",
    "no opkernel was registered",
    "no supported kernel",
    "not in the list of allowed values",
    "no registered",
)


class NoKernel(Exception):
    """TensorFlow has no kernel of the operation for this kind of device."""


@contextmanager
def raising_no_kernel() -> Iterator[None]:
    """Turn TensorFlow's error for a missing kernel into :class:`NoKernel`, without loading TensorFlow."""
    try:
        yield
    except Exception as error:
        of_tensorflow = type(error).__module__.partition(".")[0] == "tensorflow"
        if of_tensorflow and any(text in str(error).lower() for text in _NO_KERNEL):
            raise NoKernel(str(error).partition("\n")[0]) from error
        raise
