"""Programs with an exact result, whatever the order of summation, and a digest of it computed on the card."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.hardware.machine import Operation
from harness.hardware.operations import convolution, itemsize, matmul, numpy_dtype
from harness.lazy import tf

if TYPE_CHECKING:
    import numpy.typing as npt

#: Rows and columns of the matrices.
SIDE = 64
#: The largest integer in the matrices: SIDE * value**2 is at most 2**24, 2**53, 2**11 and 2**8, up to which float32,
#: float64, float16 and bfloat16 have every integer; 511 has 9 bits, so TF32, with 11, multiplies it exactly too.
LARGEST = {"float32": 511, "float64": 2**23 - 1, "float16": 5, "bfloat16": 2, "int32": 5_000}
IMAGES_AND_WINDOWS = (1, 17, 17, 7), (3, 3, 7, 7)


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """An operation, its arguments and its exact result. ``arrays`` are matrices ``[SIDE, SIDE]`` or vectors."""

    operation: Operation
    arrays: tuple[npt.NDArray[Any], ...]
    expected: npt.NDArray[Any]


def known_answers(seed: int, index: int, *, on_cpu: bool = False) -> tuple[KnownAnswer, ...]:
    """Return the programs with data for shard ``index``.

    TensorFlow multiplies int32 matrices only on CPUs, and a GPU has other units for 16 bits than for 32.
    """
    random = np.random.default_rng([seed, index])
    dtypes = ("float32", "float64", "int32") if on_cpu else ("float32", "float64", "float16", "bfloat16")
    square = (SIDE, SIDE)
    return (
        *(_exact(random, product(dtype), square, square) for dtype in dtypes),
        _exact(random, convolved(), *IMAGES_AND_WINDOWS),
        _permutation(random),
    )


def many_answers(seed: int, index: int, count: int, *, on_cpu: bool = False) -> tuple[KnownAnswer, ...]:
    """Return for each of the programs one that runs it on ``count`` sets of data, with data for shard ``index``.

    The result says of each set in how many runs it was wrong, and should be 0: int64 ``[count]``.
    """
    sets = [known_answers(seed + 1 + number, index, on_cpu=on_cpu) for number in range(count)]
    made, none = [], np.zeros(count, np.int64)
    for answers in zip(*sets, strict=True):
        arguments = [np.stack(arrays) for arrays in zip(*(each.arrays for each in answers), strict=True)]
        exact = np.stack([each.expected for each in answers])
        made.append(KnownAnswer(many(answers[0].operation, count), (*arguments, exact, none), none))
    return tuple(made)


def _exact(random: np.random.Generator, operation: Operation, *shapes: tuple[int, ...]) -> KnownAnswer:
    top = LARGEST[operation.dtype]
    whole = [random.integers(-top, top + 1, shape) for shape in shapes]
    # In int64, where nothing is rounded: the reference does not use the arithmetic under test.
    dtype = numpy_dtype(operation.dtype)
    return KnownAnswer(
        operation, tuple(array.astype(dtype) for array in whole), operation.reference(*whole).astype(dtype)
    )


def _permutation(random: np.random.Generator) -> KnownAnswer:
    values = random.integers(-(2**40), 2**40, SIDE * SIDE)
    order = random.permutation(SIDE * SIDE).astype(np.int64)
    return KnownAnswer(permutation(), (values, order), _permuted(values, order))


# One operation for all data: a machine builds it once for each card.
@cache
def product(dtype: str) -> Operation:
    """Multiply two matrices ``[SIDE, SIDE]``. The reference adds integers up."""
    return replace(matmul(SIDE, dtype), reference=np.matmul)


@cache
def many(operation: Operation, count: int) -> Operation:
    """Run an operation on ``count`` sets of data, an op for each, and count the runs in which each result was wrong.

    The arguments are those of the operation and the exact results, each ``[count, ...]``, and the counts so far.
    """

    def on_card(*arrays: Any) -> Any:
        *given, before = arrays
        wrong = []
        for *arguments, known in zip(*(tf.unstack(each, count) for each in given), strict=True):
            wrong.append(tf.reduce_any(tf.not_equal(operation.tensorflow(*arguments), known)))
        return before + tf.stack([tf.cast(each, tf.int64) for each in wrong])

    def reference(*arrays: Any) -> Any:
        *given, before = arrays
        wrong = [np.any(operation.reference(*arguments) != known) for *arguments, known in zip(*given, strict=True)]
        return before + np.array(wrong, np.int64)

    return Operation(operation.name, operation.dtype, "int64", on_card, reference, chained=True)


@cache
def convolved() -> Operation:
    """Convolve ``[1, 17, 17, 7]`` with ``[3, 3, 7, 7]``: 63 products for each element, fewer than ``SIDE``."""
    (images, size, _, channels), _ = IMAGES_AND_WINDOWS
    return convolution(images, size, channels, "float32")


@cache
def permutation() -> Operation:
    """Permute words and append the sums of both halves, which wrap: int64 ``[SIDE * SIDE * 3 / 2]``."""

    def permute(a: Any, b: Any) -> Any:
        moved = tf.gather(a, b)
        return tf.concat([moved, tf.reduce_sum(tf.reshape(moved, [2, -1]), axis=0)], axis=0)

    return Operation("permutation and sums int64", "int64", "int64", permute, _permuted)


def _permuted(values: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    moved = values[order]
    return np.concatenate([moved, moved[: moved.size // 2] + moved[moved.size // 2 :]])


def digest_weights(count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return odd weights for :func:`digest`, one for each element: int64 ``[count]``."""
    made: npt.NDArray[np.int64] = np.random.default_rng([seed, count]).integers(-(2**62), 2**62, count)
    # An odd weight times any change of less than 2**64 is never 0 modulo 2**64: no single change is lost.
    made |= 1
    return made


@cache
def digest(dtype: str) -> Operation:
    """Sum an array's elements, their bits read as integers, times weights, modulo 2**64: int64 ``[1]``.

    The arguments are the array, of ``dtype`` and any shape, and as many weights.
    """
    whole = f"int{itemsize(dtype) * 8}"

    def on_card(array: Any, weights: Any) -> Any:
        flat = tf.reshape(array, [-1])
        bits = tf.cast(tf.bitcast(flat, whole) if flat.dtype.name != whole else flat, tf.int64)
        # GPUs have kernels of Bitcast, Cast, Mul and Sum for these dtypes (registered in TensorFlow 2.21).
        return tf.reduce_sum(bits * weights, keepdims=True)

    def reference(array: Any, weights: Any) -> Any:
        return np.reshape(digest_of(array.astype(numpy_dtype(dtype)), weights), [1])

    return Operation(f"digest {dtype}", dtype, "int64", on_card, reference)


def digest_of(array: npt.NDArray[Any], weights: npt.NDArray[np.int64]) -> np.int64:
    """Return the digest of an array of the host."""
    whole = np.dtype(f"int{array.dtype.itemsize * 8}")
    bits = np.ascontiguousarray(array).reshape(-1).view(whole).astype(np.int64)
    with np.errstate(over="ignore"):
        total: np.int64 = (bits * weights).sum(dtype=np.int64)
        return total
