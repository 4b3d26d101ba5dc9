"""The strategy of arrays whose sums and products are exact in any order of summation."""

from __future__ import annotations

from math import frexp
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.strategies import DrawFn, SearchStrategy
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.strategies.dtypes import dtype_name, exact_limit, is_float, numpy_dtype

#: Exponents of powers of two that leave every float type room for products (float16 ends at 2**15).
_SCALES = range(-4, 4)


def exact_magnitude(dtype: Any, *, terms: int = 16, factors: int = 2) -> int:
    """Return the largest integer with exact sums of ``terms`` products of ``factors`` such integers in ``dtype``.

    Raises:
        UsageError: the type cannot hold such sums, or is not supported.
    """
    name = dtype_name(dtype)
    if terms < 1 or factors < 1:
        raise UsageError(f"terms={terms}, factors={factors}; accepted: 1 or more")
    room = exact_limit(name) // terms
    magnitude = int(room ** (1 / factors)) + 1
    while magnitude**factors > room:
        magnitude -= 1
    if magnitude < 1:
        raise UsageError(
            f"terms={terms}: too many for exact sums in {name}; accepted: up to {exact_limit(name):,} terms, or a "
            "type with more bits"
        )
    # Larger integers gain nothing, and make examples harder to read.
    return min(magnitude, 2**20)


def exact_arrays(
    shape: int | tuple[int, ...] | SearchStrategy[tuple[int, ...]],
    dtype: Any = "float32",
    *,
    terms: int = 16,
    factors: int = 2,
    scale: float = 1.0,
    nonzero: bool = False,
) -> SearchStrategy[NDArray[Any]]:
    """Generate arrays of small integers, or of small integers times ``scale``, a power of two.

    Every sum of up to ``terms`` products of up to ``factors`` of their elements is exact in ``dtype``, with all its
    partial sums in any order. Sums of products with different numbers of factors are exact for scale 1.

    Args:
        shape: of the arrays, or a strategy of shapes.
        dtype: float64, float32, float16, bfloat16, int32 or int64, as a name or as a type of NumPy or TensorFlow.
        terms: the most products in a sum.
        factors: the most elements in a product.
        scale: a power of two from 2**-4 to 2**3; 1 for integer types.
        nonzero: whether to leave out 0, which hides its factors.

    Raises:
        UsageError: an argument is not accepted, or the type has too few bits.
    """
    name = dtype_name(dtype)
    most = exact_magnitude(name, terms=terms, factors=factors)
    mantissa, exponent = frexp(scale)
    if mantissa != 0.5 or exponent - 1 not in _SCALES or (scale != 1 and not is_float(name)):
        raise UsageError(f"scale={scale!r} for {name}; accepted: a power of two from 2**-4 to 2**3, 1 for integers")
    shapes = st.just((shape,) if isinstance(shape, int) else shape) if isinstance(shape, (int, tuple)) else shape
    elements = st.integers(-most, most)
    if nonzero:
        elements = elements.map(lambda number: number or 1)

    @st.composite
    def arrays(draw: DrawFn) -> NDArray[Any]:
        # No fill, which would make most elements equal and so hide permutations.
        drawn = draw(hnp.arrays(np.int64, draw(shapes), elements=elements, fill=st.nothing()))
        return (drawn * scale).astype(numpy_dtype(name)) if is_float(name) else drawn.astype(numpy_dtype(name))

    return arrays()
