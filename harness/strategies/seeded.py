"""Numbers from a seed and a name, the same with every version of NumPy.

NumPy guarantees the raw streams of PCG64 and SeedSequence, but not those of ``Generator``. So the numbers are made here
from the raw stream, and a printed program keeps its arrays.
"""

from __future__ import annotations

from math import prod
from zlib import crc32

import numpy as np
from numpy.typing import NDArray


def uniform(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Float64 numbers in [-1, 1) with at most 24 significant bits, so that float32 holds them exactly."""
    numbers: NDArray[np.float64] = (_raw(seed, name, shape) >> np.uint64(40)).astype(np.float64)
    return numbers * 2.0**-23 - 1.0


def integers(seed: int, name: str, shape: tuple[int, ...], low: int, high: int) -> NDArray[np.int64]:
    """Int64 numbers from ``low`` to ``high - 1``."""
    numbers: NDArray[np.int64] = (_raw(seed, name, shape) >> np.uint64(33)).astype(np.int64)
    return numbers % (high - low) + low


def _raw(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    # The stream is read in order, so a longer array begins with the rows of a shorter one.
    stream = np.random.PCG64(np.random.SeedSequence([seed, crc32(name.encode())]))
    return np.asarray(stream.random_raw(prod(shape)), dtype=np.uint64).reshape(shape)
