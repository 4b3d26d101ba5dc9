"""How results differ: from the true one, from a second run, and from those of other cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.hardware.arithmetic.bounds import Allowed


@dataclass(frozen=True)
class Deviation:
    """``count`` elements (or rows) are beyond the bound; ``share`` is the largest error as a share of what is allowed.

    ``index``, ``found`` and ``expected`` are of the worst one. ``inf`` is an error where nothing is allowed.
    """

    count: int
    share: float
    index: tuple[int, ...] = ()
    found: str = ""
    expected: str = ""


def deviation(result: NDArray[Any], reference: NDArray[Any], allowed: Allowed) -> Deviation:
    """How ``result`` lies to ``reference`` (float64, complex128 or integers, of the same shape).

    What is not finite and differs is beyond every bound, so that NaN is never taken for right.
    """
    if result.shape != reference.shape:
        return Deviation(int(reference.size), np.inf, (), f"shape {result.shape}", f"shape {reference.shape}")
    same = result == reference
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(same, 0.0, np.abs(result - reference))
    error = np.where(np.isfinite(error), error, np.inf)
    if allowed.by_row:
        error = np.sqrt(np.sum(np.square(error), axis=-1))
    limit = np.broadcast_to(allowed.error, error.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(error == 0, 0.0, error / limit)
    worst = tuple(int(each) for each in np.unravel_index(int(np.argmax(shares)), shares.shape)) if shares.size else ()
    return Deviation(
        int(np.count_nonzero(shares > 1)),
        float(shares[worst]) if shares.size else 0.0,
        worst,
        _shown(result, worst, allowed),
        _shown(reference, worst, allowed),
    )


def _shown(array: NDArray[Any], index: tuple[int, ...], allowed: Allowed) -> str:
    if not array.size:
        return "nothing"
    return f"norm {float(np.linalg.norm(array[index])):.9g}" if allowed.by_row else f"{array[index]:.17g}"


@dataclass(frozen=True)
class Bits:
    """How two arrays of one dtype and shape differ: ``count`` elements, and the first of them with both values."""

    count: int
    index: tuple[int, ...] = ()
    first: str = ""
    second: str = ""


def bits(first: NDArray[Any], second: NDArray[Any]) -> Bits:
    """Compare bit by bit: NaN is the same as itself, and 0.0 is not -0.0."""
    if first.shape != second.shape or first.dtype != second.dtype:
        whats = [f"{each.dtype} {each.shape}" for each in (first, second)]
        return Bits(int(max(first.size, second.size)), (), *whats)
    one, other = _words(first), _words(second)
    if np.array_equal(one, other):
        return Bits(0)
    differ = np.any((one != other).reshape(first.size, -1), axis=1)
    at = tuple(int(each) for each in np.unravel_index(int(np.argmax(differ)), first.shape))
    return Bits(int(np.count_nonzero(differ)), at, f"{first[at]}", f"{second[at]}")


def _words(array: NDArray[Any]) -> NDArray[Any]:
    """The bits of the elements as whole numbers, one for each, or two where an element has 16 bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{min(array.dtype.itemsize, 8)}")


def odd_ones(results: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """Who differs from most: names to digests of their results. The names, and whether it is sure that they are wrong.

    Where more than half agree, the others are the odd ones. Else nobody can tell which are right, and all are named.
    """
    if len(set(results.values())) < 2:
        return (), True
    digest, count = Counter(results.values()).most_common(1)[0]
    if 2 * count > len(results):
        return tuple(name for name, each in results.items() if each != digest), True
    return tuple(results), False
