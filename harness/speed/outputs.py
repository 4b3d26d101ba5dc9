"""Are the outputs of both sides the same? Of a program that is fast and wrong, the speed means nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import OutputsDiffer
from harness.judgement.runs import to_array
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import typical_magnitude


def arrays_of(outputs: Any) -> dict[str, NDArray[Any] | None]:
    """The leaves of a nest as arrays, by path: ``output`` for a single one, else such as ``output[0]['loss']``."""
    import tensorflow as tf

    leaves = tf.nest.flatten(outputs)
    if len(leaves) == 1 and not isinstance(outputs, (list, tuple, dict)):
        return {"output": to_array(leaves[0])}
    paths = tf.nest.flatten(_paths(outputs, "output"))
    return {str(path): to_array(leaf) for path, leaf in zip(paths, leaves, strict=True)}


def _paths(nest: Any, path: str) -> Any:
    """The same nest with the path of each leaf in the place of the leaf."""
    if isinstance(nest, dict):
        return {key: _paths(value, f"{path}[{key!r}]") for key, value in nest.items()}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*[_paths(value, f"{path}.{key}") for key, value in zip(nest._fields, nest, strict=True)])
    if isinstance(nest, (list, tuple)):
        return type(nest)(_paths(value, f"{path}[{index}]") for index, value in enumerate(nest))
    return path


def default_tolerance(dtype: Any) -> float:
    """Half of a dtype's digits: the square root of its epsilon, 3.5e-4 in float32; 0.0 of what is counted exactly.

    Of two opaque callables nobody knows how ill-conditioned they are. ``harness.verify`` measures that, and judges more
    strictly; here the question is whether both do the same work.
    """
    return float(np.sqrt(epsilon_of(dtype)))


def same_nest(single: Any, parallel: Any) -> None:
    """Raise :class:`OutputsDiffer` where the two are different nests."""
    import tensorflow as tf

    try:
        tf.nest.assert_same_structure(single, parallel)
    except (TypeError, ValueError) as error:
        raise OutputsDiffer(
            "outputs", f"single returns {_shape_of(single)}, parallel {_shape_of(parallel)}, which is another nest"
        ) from error


def compare_outputs(
    single: dict[str, NDArray[Any] | None], parallel: dict[str, NDArray[Any] | None], tolerance: float | None = None
) -> list[str]:
    """Compare leaf by leaf; returns a sentence for each output of which nothing can be said, because it is NaN.

    An element may differ by ``tolerance`` times the sum of its own magnitude and the root mean square of its tensor;
    :func:`default_tolerance` if ``None``. Integers, booleans and strings have to be equal.

    Raises:
        OutputsDiffer: another shape, dtype or value, or no element that could be compared.
    """
    doubts = []
    compared = 0
    for name, want in single.items():
        have = parallel[name]
        if want is None or have is None:
            if want is not have:
                raise OutputsDiffer(name, f"{'parallel' if have is None else 'single'} returns None there")
            continue
        if want.shape != have.shape:
            raise OutputsDiffer(name, f"shape {want.shape} of single, {have.shape} of parallel")
        if want.dtype != have.dtype:
            raise OutputsDiffer(name, f"dtype {want.dtype.name} of single, {have.dtype.name} of parallel")
        numbers = _compare(name, want, have, default_tolerance(want.dtype) if tolerance is None else tolerance)
        compared += numbers
        if numbers < want.size:
            doubts.append(f"{name} is NaN in {want.size - numbers} of {want.size} elements, which compare with nothing")
    if not compared:
        raise OutputsDiffer("outputs", "there is no element that could be compared; return what is computed")
    return doubts


def _compare(name: str, want: NDArray[Any], have: NDArray[Any], tolerance: float) -> int:
    """Compare two arrays of one shape and dtype. Returns in how many elements a fault would have been seen."""
    if epsilon_of(want.dtype) == 0.0:
        wrong = np.asarray(want != have)
        _refuse(name, want, have, wrong.astype(float), wrong, "equality")
        return int(want.size)
    wide = np.complex128 if np.iscomplexobj(want) else np.float64
    expected, found = want.astype(wide), have.astype(wide)
    unknown = np.isnan(expected) & np.isnan(found)
    same = unknown | (expected == found)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(same, 0.0, np.abs(found - expected))
    error = np.where(np.isfinite(error), error, np.inf)
    magnitude = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    bound = tolerance * (magnitude + typical_magnitude(want))
    _refuse(name, want, have, error, error > bound, f"{tolerance:.2g} of its magnitude and of the typical one")
    return int(want.size - unknown.sum())


def _refuse(
    name: str, want: NDArray[Any], have: NDArray[Any], error: NDArray[Any], wrong: NDArray[np.bool_], rule: str
) -> None:
    if not wrong.any():
        return
    at = np.unravel_index(int(np.argmax(np.where(wrong, error, -1.0))), want.shape) if want.ndim else ()
    index = tuple(int(part) for part in at)
    raise OutputsDiffer(
        name,
        f"{int(wrong.sum())} of {want.size} elements differ by more than {rule}, the worst at {list(index)}: "
        f"{want[index]!s} of single, {have[index]!s} of parallel",
    )


def _shape_of(nest: Any) -> str:
    if isinstance(nest, dict):
        return "{" + ", ".join(f"{key!r}: {_shape_of(value)}" for key, value in nest.items()) + "}"
    if isinstance(nest, (list, tuple)):
        return f"a {type(nest).__name__} of {len(nest)}"
    return f"a {type(nest).__name__}"
