"""Compares the outputs of both sides, or of each device set: the speed of a wrong program means nothing."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import OutputsDiffer
from harness.judgement.fields import in_fields
from harness.judgement.runs import to_array
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import names_of, typical_magnitude, wide
from harness.lazy import tf
from harness.plural import plural

#: Larger outputs are not kept: they would fill the disk, and take longer than the measurement.
MOST_BYTES = 256 * 1024 * 1024
#: The leaves of a nest by path; ``None`` is a leaf too.
Arrays = Mapping[str, NDArray[Any] | None]


def arrays_of(outputs: Any) -> Arrays:
    """Convert the leaves of a nest to arrays, by path: ``output``, or ``output[0]['loss']`` in a nest."""
    outputs = in_fields(outputs)
    return {name: to_array(leaf) for name, leaf in zip(names_of(outputs), tf.nest.flatten(outputs), strict=True)}


def default_tolerance(dtype: Any) -> float:
    """Give the square root of a dtype's epsilon: 3.5e-4 in float32, 0.0 for exact dtypes.

    The conditioning of two opaque callables is unknown. ``harness.verify`` measures it, and judges more strictly; here
    the question is whether both do the same work.
    """
    return float(np.sqrt(epsilon_of(dtype)))


def same_nest(single: Any, parallel: Any) -> None:
    """Raise :class:`OutputsDiffer` if the two are different nests."""
    try:
        tf.nest.assert_same_structure(in_fields(single), in_fields(parallel))
    except (TypeError, ValueError) as error:
        why = f"`single` returns {_shape_of(single)}, `parallel` returns {_shape_of(parallel)}"
        raise OutputsDiffer("outputs", why) from error


def compare_outputs(single: Arrays, parallel: Arrays, tolerance: float | None = None) -> list[str]:
    """Compare leaf by leaf; returns a sentence for each output with NaN, which cannot be compared.

    An element may differ by ``tolerance`` (by default :func:`default_tolerance`) times the sum of its magnitude and the
    root mean square of its tensor. Integers, booleans and strings must be equal. Raise OutputsDiffer if a shape, dtype
    or value differs, or no element can be compared.
    """
    doubts = []
    compared = 0
    for name, want in single.items():
        have = parallel[name]
        if want is None or have is None:
            if want is not have:
                none, other = ("`parallel`", "`single`") if have is None else ("`single`", "`parallel`")
                raise OutputsDiffer(name, f"{none} returns None, and {other} does not")
            continue
        if want.shape != have.shape:
            raise OutputsDiffer(name, f"`single` has shape {want.shape}, `parallel` {have.shape}")
        if want.dtype != have.dtype:
            raise OutputsDiffer(name, f"`single` has dtype {want.dtype.name}, `parallel` {have.dtype.name}")
        numbers = _compare(name, want, have, default_tolerance(want.dtype) if tolerance is None else tolerance)
        compared += numbers
        if missing := want.size - numbers:
            doubts.append(f"{name} is NaN in {missing:,} of {want.size:,} elements, which cannot be compared")
    if not compared:
        why = "no element can be compared: all are None, NaN or empty; return the computed tensors"
        raise OutputsDiffer("outputs", why)
    return doubts


def _compare(name: str, want: NDArray[Any], have: NDArray[Any], tolerance: float) -> int:
    """Compare two arrays of one shape and dtype, and return how many elements could be compared."""
    unknown = 0
    if epsilon_of(want.dtype) == 0.0:
        rule, wrong = "but must be equal", np.asarray(want != have)
        error = wrong.astype(float)
    else:
        rule = f"by more than {tolerance:.2g} x (magnitude of the element + root mean square of the tensor)"
        expected, found = wide(want), wide(have)
        with np.errstate(invalid="ignore", over="ignore"):
            bound = tolerance * (np.abs(expected) + typical_magnitude(want))
            wrong = ~np.isclose(found, expected, rtol=0.0, atol=bound, equal_nan=True)
            error = np.nan_to_num(np.abs(found - expected), nan=np.inf)
        unknown = int((np.isnan(expected) & ~wrong).sum())
    if wrong.any():
        at = np.unravel_index(int(np.argmax(np.where(wrong, error, -1.0))), want.shape) if want.ndim else ()
        what = f"the values differ {rule}"
        if want.ndim:
            where = [int(part) for part in at]
            what = f"{int(wrong.sum()):,} of {plural(want.size, 'element')} differ {rule}; worst at {where}"
        raise OutputsDiffer(name, f"{what}: `single` {want[at]!s}, `parallel` {have[at]!s}")
    return int(want.size - unknown)


def _shape_of(nest: Any) -> str:
    if isinstance(nest, dict):
        return "{" + ", ".join(f"{key!r}: {_shape_of(value)}" for key, value in nest.items()) + "}"
    if isinstance(nest, (list, tuple)):
        return f"a {type(nest).__name__} of {len(nest)}"
    return f"a {type(nest).__name__}"


def save_outputs(arrays: Arrays, path: Path) -> bool:
    """Write the arrays for another process, also of TensorFlow's own dtypes; false if they are too large."""
    if sum(array.nbytes for array in arrays.values() if array is not None) > MOST_BYTES:
        return False
    path.write_bytes(pickle.dumps(dict(arrays)))
    return True


def load_outputs(path: Path) -> Arrays:
    """Read the arrays that a process of this run has written."""
    arrays: Arrays = pickle.loads(path.read_bytes())  # noqa: S301 - our own process wrote it
    return arrays


def difference(want: Arrays, have: Arrays) -> str | None:
    """Describe how two sets of outputs differ; ``None`` if they do not."""
    if want.keys() != have.keys():
        return f"`single` has {plural(len(want), 'output')}, `parallel` {len(have)}"
    try:
        compare_outputs(want, have)
    except OutputsDiffer as error:
        return f"{error.output}: {error.why}"
    return None
