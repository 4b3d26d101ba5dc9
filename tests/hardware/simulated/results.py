"""Results of operations on a described card: the reference in float64, rounded to the dtype of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.hardware.machine import Operation
from simulated.contents import Content

if TYPE_CHECKING:
    import numpy.typing as npt

#: The most that is computed. What is larger is timed alone, or is a product under load, which finds nothing wrong.
MOST_FLOP, MOST_BYTES = 1e9, 2**25


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype of that name, by NumPy or ml_dtypes. Products in TF32 are stored as float32."""
    import ml_dtypes

    if name in ("tf32", "tfloat32"):
        return np.dtype(np.float32)
    return np.dtype(getattr(ml_dtypes, name, name))


def result_of(operation: Operation, contents: Sequence[Content]) -> npt.NDArray[Any]:
    """Compute the result as an array of ``operation.result_dtype``. Integers stay integers, complex stays complex.

    What is large is not computed, because NumPy would take minutes for simulated milliseconds.
    """
    if (operation.flop or 0.0) > MOST_FLOP or sum(content.size_bytes for content in contents) > MOST_BYTES:
        return np.zeros(1, dtype_named(operation.result_dtype))
    arrays = [content.array() for content in contents]
    wide = [array if array.dtype.kind in "biuc" else array.astype(np.float64) for array in arrays]
    with np.errstate(all="ignore"):
        result = np.asarray(operation.reference(*wide))
        dtype = dtype_named(operation.result_dtype)
        return result if result.dtype == dtype else result.astype(dtype)


def wrong_by(array: npt.NDArray[Any], relative_error: float) -> npt.NDArray[Any]:
    """Return the array with every element wrong by that share of it; integers by 1."""
    if array.dtype.kind in "bui":
        return (array ^ 1).astype(array.dtype) if array.dtype.kind == "b" else (array + 1).astype(array.dtype)
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return (wide * (1 + relative_error)).astype(array.dtype)
