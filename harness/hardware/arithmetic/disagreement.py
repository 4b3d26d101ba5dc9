"""How far results are from the true one, and which of several cards differ from most."""

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
    """``count`` elements (or rows) exceed the bound; ``share`` is the largest error as a share of what is allowed.

    ``index``, ``found`` and ``expected`` are of the worst one. ``inf`` is an error where none is allowed.
    """

    count: int
    share: float
    index: tuple[int, ...] = ()
    found: str = ""
    expected: str = ""


def deviation(result: NDArray[Any], reference: NDArray[Any], allowed: Allowed) -> Deviation:
    """Compare ``result`` with ``reference`` (float64, complex128 or integers, of the same shape).

    What is not finite and differs exceeds every bound, so NaN never passes.
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


def odd_ones(results: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """Return who differs from most, of names to digests of results, and whether they are surely wrong.

    If more than half agree, the others are the odd ones. Otherwise all are named.
    """
    if len(set(results.values())) < 2:
        return (), True
    digest, count = Counter(results.values()).most_common(1)[0]
    if 2 * count > len(results):
        return tuple(name for name, each in results.items() if each != digest), True
    return tuple(results), False
