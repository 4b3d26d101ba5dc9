"""The number types that programs and arrays are generated in, by TensorFlow's names, without TensorFlow."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from harness.errors import UsageError

#: Types that gradients flow through, the simplest first: examples shrink towards the front.
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64")
DTYPES = FLOATS + INTEGERS

#: Integers up to and including this magnitude are all exact: 2 to the number of significant bits of the IEEE 754
#: (bfloat16: 8 bits, one of them implied) format, or the largest value of the integer type.
EXACT_LIMIT = {
    "float64": 2**53,
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
    "int32": 2**31 - 1,
    "int64": 2**63 - 1,
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type of that name; ``bfloat16`` is that of ``ml_dtypes``, which TensorFlow uses too.

    Raises:
        UsageError: NumPy knows no such type.
    """
    if name == "bfloat16":
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    try:
        return np.dtype(name)
    except TypeError:
        raise UsageError(f"dtype={name!r} is no number type; accepted: {', '.join(DTYPES)}, bool") from None


def dtype_name(dtype: Any) -> str:
    """The name of a NumPy, ``ml_dtypes`` or TensorFlow number type, or of one that is already a name.

    Raises:
        UsageError: it is not one of :data:`DTYPES`.
    """
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(name, str):
        name = np.dtype(dtype).name
    if name not in DTYPES:
        raise UsageError(f"dtype={dtype!r}; accepted: {', '.join(DTYPES)}")
    return name


def is_float(name: str) -> bool:
    """Whether gradients flow through the type of that name."""
    return name in FLOATS


def exact_limit(name: str) -> int:
    """The largest magnitude up to which every integer is exact in the type of that name."""
    return EXACT_LIMIT[name]
