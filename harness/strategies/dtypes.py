"""The dtypes of generated programs and arrays, by TensorFlow's names."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 - adds bfloat16 to NumPy
import numpy as np

from harness.errors import UsageError

#: Types with gradients, the simplest first: examples shrink towards the front.
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64")
DTYPES = FLOATS + INTEGERS

#: All integers up to this magnitude are exact: 2 to the number of significant bits of the float format, or the largest
#: value of the integer type.
EXACT_LIMIT = {
    "float64": 2**53,
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
    "int32": 2**31 - 1,
    "int64": 2**63 - 1,
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy type of that name; ``bfloat16`` is the one of ``ml_dtypes``, as in TensorFlow.

    Raise UsageError if there is no such type.
    """
    try:
        return np.dtype(name)
    except TypeError:
        raise UsageError(f"dtype={name!r}; accepted: {', '.join(DTYPES)}, bool") from None


def dtype_name(dtype: Any) -> str:
    """Return the name of a NumPy, ``ml_dtypes`` or TensorFlow type, or check that of a name.

    Raise UsageError if it is not one of :data:`DTYPES`.
    """
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(name, str):
        name = np.dtype(dtype).name
    if name not in DTYPES:
        raise UsageError(f"dtype={dtype!r}; accepted: {', '.join(DTYPES)}")
    return name


def is_float(name: str) -> bool:
    """Whether the type has gradients."""
    return name in FLOATS
