"""Numbers that follow from a seed and a name alone, the same with every version of NumPy.

NumPy keeps the raw stream of PCG64 and of SeedSequence for ever, but not what its ``Generator`` makes of it. So the
numbers are made here from the raw stream, and a program that is printed today has the same arrays tomorrow.
"""

from __future__ import annotations

from math import prod
from zlib import crc32

import numpy as np
from numpy.typing import NDArray


def uniform(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Float64 numbers in [-1, 1) with 24 significant bits at most, so that float32 holds them as they are."""
    numbers: NDArray[np.float64] = (_raw(seed, name, shape) >> np.uint64(40)).astype(np.float64)
    return numbers * 2.0**-23 - 1.0


def integers(seed: int, name: str, shape: tuple[int, ...], low: int, high: int) -> NDArray[np.int64]:
    """Int64 numbers from ``low`` up to but not including ``high``."""
    numbers: NDArray[np.int64] = (_raw(seed, name, shape) >> np.uint64(33)).astype(np.int64)
    return numbers % (high - low) + low


def _raw(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    # The stream is read in order, so an array with more rows begins with the rows of the one with fewer.
    stream = np.random.PCG64(np.random.SeedSequence([seed, crc32(name.encode())]))
    return np.asarray(stream.random_raw(prod(shape)), dtype=np.uint64).reshape(shape)
