"""The strategy of batches: named arrays with a common number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.strategies import DrawFn, SearchStrategy
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.strategies.arrays import exact_arrays
from harness.strategies.dtypes import dtype_name, is_float, numpy_dtype

#: Sizes of features; an axis of size 1 would hide faults.
_SIZES = range(2, 10)
#: How often each class of batch sizes is in the list that a size is drawn from, rounded down.
_COPIES = 60


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
    the other arrays.

    Args:
        names: the names of the arrays.
        devices: the devices that the batch is for, or their number.
        axis: the batch axis; with 1 every array has at least one axis before it, -1 is the last one.
        dtypes: the types to draw each array's type from.
        exact: small integers, see :func:`exact_arrays`; otherwise floats up to 4, without subnormal numbers.
        max_features: the most axes besides the batch axis.
        min_rows: the smallest size of the batch.
        max_rows: the largest size of the batch; by default three for each device, plus two.

    Raises:
        UsageError: an argument is not accepted.
    """
    count = devices if isinstance(devices, int) else len(devices)
    most = 3 * count + 2 if max_rows is None else max_rows
    types = tuple(dtype_name(dtype) for dtype in dtypes)
    if not names or not types or count < 1:
        raise UsageError(f"names={names!r}, dtypes={dtypes!r}, devices={count}; accepted: at least one of each")
    if axis not in (0, 1, -1) or not max(axis, 0) <= max_features <= 3:
        raise UsageError(f"axis={axis}, max_features={max_features}; accepted: axis 0, 1 or -1, max_features up to 3")
    if not 0 <= min_rows <= most:
        raise UsageError(f"min_rows={min_rows}, max_rows={most}; accepted: 0 <= min_rows <= max_rows")
    return _batches(tuple(names), count, axis, types, exact, max_features, range(min_rows, most + 1))


@st.composite
def _batches(
    draw: DrawFn,
    names: tuple[str, ...],
    devices: int,
    axis: int,
    dtypes: tuple[str, ...],
    exact: bool,
    max_features: int,
    allowed: range,
) -> dict[str, NDArray[Any]]:
    classes = [
        [rows for rows in allowed if rows < min(devices, 2)],
        [rows for rows in allowed if 0 < rows < devices],
        [rows for rows in allowed if rows > devices and rows % devices],
        [rows for rows in allowed if rows and rows % devices == 0],
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
        batch[name] = draw(_elements(tuple(shape), draw(st.sampled_from(dtypes)), exact))
    return batch


def _elements(shape: tuple[int, ...], dtype: str, exact: bool) -> SearchStrategy[NDArray[Any]]:
    if exact or not is_float(dtype):
        return exact_arrays(shape, dtype)
    # Hypothesis has no bfloat16: it is rounded from float32. float64 is drawn with all its digits.
    wide = dtype == "float64"
    floats = st.floats(-4, 4, width=64 if wide else 32, allow_subnormal=False)
    drawn = hnp.arrays(np.float64 if wide else np.float32, shape, elements=floats, fill=st.nothing())
    return drawn.map(lambda array: array.astype(numpy_dtype(dtype)))
