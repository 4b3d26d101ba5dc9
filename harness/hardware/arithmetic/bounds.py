"""Bounds of the rounding error of one op, derived from the op, its operands and its dtype.

``harness.judgement.tolerance`` measures it for whole programs; here the op is known, and its bound is a formula.
With ``u`` half the distance from 1 to the next number of a dtype (N. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed. 2002):

- A sum of ``n`` products is off by at most ``g / (1 - g) * sum |a||b|`` with ``g = n u`` in any order (eq. 3.5). The
  errors behave like a random walk, and with ``g = 10 sqrt(n) u`` the bound fails with a probability below
  ``2 n exp(-50)`` for each element (N. Higham and T. Mary, A New Approach to Probabilistic Rounding Error Analysis,
  SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1). The smaller ``g`` is taken.
- Products of float16 and bfloat16 are added up in float32, as cuBLAS, cuDNN, oneDNN and Eigen do, and rounded at the
  end; a kernel that splits the sum rounds the parts as well. A part is about as large as the result.
- TF32 first rounds each operand to 11 bits: ``2**-11`` for either factor.
- ``k`` roundings one after the other, of positive numbers without a difference: ``g = k u`` (lemma 3.1).
- A fast Fourier transform of ``n`` points, as a whole: ``log2(n) * 7 u`` of the norm (theorem 24.2, weights with an
  error of ``u``), hence the norm of each row is judged.
- Integers, and what is only moved: exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.judgement.tolerance import epsilon_of_name

#: Standard deviations of a random walk that are allowed.
_DEVIATIONS = 10.0
#: Parts of a split sum that are rounded to a short dtype.
_PARTS = 4
#: Half of the distance from 1 to the next number of TF32, which has 10 bits behind the point.
_TF32 = 2.0**-11
#: Dtypes whose products are added up in float32.
SHORT = ("float16", "bfloat16")


@dataclass(frozen=True)
class Allowed:
    """Allowed error of each element, of a shape that broadcasts to the result.

    ``by_row``: of the norm of the errors along the last axis instead.
    """

    error: NDArray[np.float64]
    by_row: bool = False


def summed(
    reference: NDArray[np.float64], magnitude: NDArray[np.float64], terms: int, dtype: str, *, tf32: bool = False
) -> Allowed:
    """Bound sums of ``terms`` products. ``magnitude`` is the same sum of absolute values."""
    unit = epsilon_of_name(dtype) / 2
    adding = 2.0**-24 if dtype in SHORT else unit
    growth = min(float(terms), _DEVIATIONS * float(np.sqrt(terms))) * adding
    error = growth / (1 - growth) * magnitude + unit * np.abs(reference)
    if dtype in SHORT:
        error = error + _PARTS * unit * (np.abs(reference) + np.sqrt(np.mean(np.square(reference))))
    if tf32:
        error = error + (2 * _TF32 + _TF32**2) * magnitude
    return Allowed(error)


def rounded(reference: NDArray[np.float64], roundings: int, dtype: str) -> Allowed:
    """Bound ``roundings`` ops one after the other on positive numbers."""
    growth = roundings * epsilon_of_name(dtype) / 2
    return Allowed(growth / (1 - growth) * np.abs(reference))


def transformed(reference: NDArray[np.complex128], dtype: str) -> Allowed:
    """Bound a Fourier transform along the last axis, whose length is a power of two."""
    growth = float(np.log2(reference.shape[-1])) * 7 * epsilon_of_name(dtype) / 2
    return Allowed(growth * np.linalg.norm(reference, axis=-1), by_row=True)


def exact() -> Allowed:
    """Allow no error."""
    return Allowed(np.zeros(()))


def coarse_as_tf32(result: NDArray[np.float64], reference: NDArray[np.float64]) -> bool:
    """Return whether float32 sums of products were computed with TF32, judging by their errors.

    Beside the size of a typical result, a typical error is below ``2**-24 sqrt(n)`` in float32, and near ``2**-12``
    with TF32 whatever the number of terms, because it grows like a random walk as the result does. ``2**-17`` is
    between for up to 4,096 terms. The median is taken, so that some wrong elements do not look like TF32.
    """
    size = float(np.sqrt(np.mean(np.square(reference))))
    typical = float(np.median(np.abs(result - reference)))
    return bool(size > 0 and typical > 2.0**-17 * size)
