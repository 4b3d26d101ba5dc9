"""One operation that the arithmetic checks run: for TensorFlow, and its reference for NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Operation:
    """``tensorflow`` gets tensors that lie on the card; ``reference`` gets float64 (or integer) arrays.

    ``dtype`` is that of the arguments, ``result_dtype`` that of the result, both by NumPy's or ml_dtypes' name.
    ``flop`` is how many floating-point operations one run is (of the least algorithm), ``traffic_bytes`` how many bytes
    it must read and write; ``None`` where the figure means nothing.
    """

    name: str
    dtype: str
    result_dtype: str
    tensorflow: Callable[..., Any]
    reference: Callable[..., Any]
    flop: float | None = None
    traffic_bytes: float | None = None
