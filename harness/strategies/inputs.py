"""Strategies of the inputs of a test: device sets, arrays with exact arithmetic, and batches."""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.strategies import DrawFn, SearchStrategy
from numpy.typing import NDArray

from harness.devices.device import Devices
from harness.errors import UsageError
from harness.plural import plural
from harness.strategies.dtypes import EXACT_LIMIT, dtype_name, is_float, numpy_dtype

#: Exponents of powers of two that leave every float type room for products (float16 ends at 2**15).
_SCALES = range(-4, 4)
#: Sizes of features; an axis of size 1 would hide faults.
_SIZES = range(2, 10)
#: How often each class of batch sizes is in the list that a size is drawn from, rounded down.
_COPIES = 60


def device_sets(devices: Devices, *, min_size: int = 1, max_size: int | None = None) -> SearchStrategy[Devices]:
    """Generate non-empty subsets of ``devices`` in any order, which shrink to the first device.

    Each keeps the spec, the reason and the host of ``devices``. Raise UsageError if the sizes are not between 1 and the
    number of devices, or if these are no devices.
    """
    devices = Devices.given(devices, UsageError)
    most = len(devices) if max_size is None else max_size
    if not 1 <= min_size <= most <= len(devices):
        given = f"min_size={min_size}, max_size={max_size} for {plural(len(devices), 'device')}"
        raise UsageError(f"{given}; accepted: 1 <= min_size <= max_size <= the number of devices")

    def chosen(order: list[int]) -> Devices:
        picked = [devices[index] for index in order]
        return Devices(picked, spec=devices.spec, reason=devices.reason, host=devices.host)

    # The size is drawn first: a list of any length would hardly ever hold all devices.
    sizes = st.integers(min_size, most)
    index = st.sampled_from(range(len(devices)))
    return sizes.flatmap(lambda size: st.lists(index, min_size=size, max_size=size, unique=True)).map(chosen)


def exact_magnitude(dtype: Any, *, terms: int = 16, factors: int = 2) -> int:
    """Return the largest integer with exact sums of ``terms`` products of ``factors`` such integers in ``dtype``.

    Raise UsageError if the type cannot hold such sums, or is not supported.
    """
    name = dtype_name(dtype)
    if terms < 1 or factors < 1:
        raise UsageError(f"terms={terms}, factors={factors}; accepted: 1 or more")
    room = EXACT_LIMIT[name] // terms
    magnitude = int(room ** (1 / factors)) + 1
    while magnitude**factors > room:
        magnitude -= 1
    if magnitude < 1:
        raise UsageError(
            f"terms={terms}: too many for exact sums in {name}; accepted: up to {EXACT_LIMIT[name]:,} terms, or a "
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
    partial sums in any order. Sums of products with different numbers of factors are exact for scale 1. Raise
    UsageError if an argument is not accepted, or the type has too few bits.

    Args:
        shape: of the arrays, or a strategy of shapes.
        dtype: float64, float32, float16, bfloat16, int32 or int64, as a name or as a type of NumPy or TensorFlow.
        terms: the most products in a sum.
        factors: the most elements in a product.
        scale: a power of two from 2**-4 to 2**3; 1 for integer types.
        nonzero: whether to leave out 0, which hides its factors.
    """
    name = dtype_name(dtype)
    most = exact_magnitude(name, terms=terms, factors=factors)
    mantissa, exponent = frexp(scale)
    if mantissa != 0.5 or exponent - 1 not in _SCALES or (scale != 1 and not is_float(name)):
        raise UsageError(f"scale={scale!r} for {name}; accepted: a power of two from 2**-4 to 2**3; for integers, 1")
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


def batches(
    names: Sequence[str] = ("x", "y"),
    *,
    devices: int | Sequence[Any] = 4,
    axis: int = 0,
    dtypes: Sequence[Any] = ("float32",),
    exact: bool = False,
    max_features: int = 2,
    min_rows: int = 0,
    max_rows: int | None = None,
) -> SearchStrategy[dict[str, NDArray[Any]]]:
    """Generate dicts of one array for each name, all of the same size along ``axis``.

    That size is sometimes 0, 1, smaller than the number of ``devices`` or a multiple of it, and mostly not a multiple.
    No array is square: feature sizes differ from the batch size, from one another and, where possible, from those of
    the other arrays. Raise UsageError if an argument is not accepted.

    Args:
        names: the names of the arrays.
        devices: the devices that the batch is for, or their number.
        axis: the batch axis; with 1 every array has at least one axis before it, -1 is the last one.
        dtypes: the types to draw each array's type from.
        exact: small integers, see :func:`exact_arrays`; otherwise floats up to 4, without subnormal numbers.
        max_features: the most axes besides the batch axis.
        min_rows: the smallest size of the batch.
        max_rows: the largest size of the batch; by default three for each device, plus two.
    """
    count = devices if isinstance(devices, int) else len(devices)
    most = 3 * count + 2 if max_rows is None else max_rows
    types = tuple(dtype_name(dtype) for dtype in dtypes)
    if not names or not types or count < 1:
        raise UsageError(f"names={names!r}, dtypes={dtypes!r}, devices={count}; accepted: at least one of each")
    if axis not in (0, 1, -1) or not max(axis, 0) <= max_features <= 3:
        raise UsageError(
            f"axis={axis}, max_features={max_features}; accepted: axis=0, 1 or -1; max_features=0 to 3 "
            "(1 to 3 with axis=1)"
        )
    if not 0 <= min_rows <= most:
        raise UsageError(f"min_rows={min_rows}, max_rows={most}; accepted: 0 <= min_rows <= max_rows")
    allowed = range(min_rows, most + 1)

    @st.composite
    def drawn(draw: DrawFn) -> dict[str, NDArray[Any]]:
        classes = [
            [rows for rows in allowed if rows < min(count, 2)],
            [rows for rows in allowed if 0 < rows < count],
            [rows for rows in allowed if rows > count and rows % count],
            [rows for rows in allowed if rows and rows % count == 0],
        ]
        # One draw from a sorted list with an equal share for each class, so that examples shrink to the fewest rows.
        weighted = [rows for group in classes if group for rows in group * max(_COPIES // len(group), 1)]
        rows = draw(st.sampled_from(sorted(weighted)))
        used: set[int] = set()
        batch = {}
        for name in names:
            sizes: list[int] = []
            for _ in range(draw(st.integers(max(axis, 0), max_features))):
                free = [size for size in _SIZES if size != rows and size not in sizes]
                sizes.append(draw(st.sampled_from([size for size in free if size not in used] or free)))
            used.update(sizes)
            shape = list(sizes)
            shape.insert(axis % (len(sizes) + 1), rows)
            batch[name] = draw(_elements(tuple(shape), draw(st.sampled_from(types)), exact))
        return batch

    return drawn()


def _elements(shape: tuple[int, ...], dtype: str, exact: bool) -> SearchStrategy[NDArray[Any]]:
    if exact or not is_float(dtype):
        return exact_arrays(shape, dtype)
    # Hypothesis has no bfloat16: it is rounded from float32. float64 is drawn with all its digits.
    wide = dtype == "float64"
    floats = st.floats(-4, 4, width=64 if wide else 32, allow_subnormal=False)
    drawn = hnp.arrays(np.float64 if wide else np.float32, shape, elements=floats, fill=st.nothing())
    return drawn.map(lambda array: array.astype(numpy_dtype(dtype)))
