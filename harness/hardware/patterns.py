"""The words of a pattern: by NumPy in the host's memory, and by TensorFlow's ops on a card.

A GPU has no kernels for some ops on int64 (``Range`` in older releases, ``Cumsum``, ``Sum``), so only these are used,
which every device has: Fill, AddV2 and Mul (both wrap modulo 2**64), ConcatV2, Slice, NotEqual, Any.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.hardware.machine import Mismatch, Pattern
from harness.lazy import tf

if TYPE_CHECKING:
    import numpy.typing as npt

#: What is made or compared at once: 16 MiB of 64-bit words, so comparing needs about 50 MiB besides the buffer. On a
#: GPU up to 256 MiB: starting an op there takes as long as filling 300 MB.
CHUNK_WORDS, GPU_CHUNK_WORDS = 2 * 1024 * 1024, 32 * 1024 * 1024
#: The tensors that a large buffer consists of have as many chunks: 64 MiB are large enough for copies at full speed.
PIECE_CHUNKS = 4
#: A small card has smaller chunks, so that what is made beside a buffer is at most a few hundredths of its memory.
CHUNKS_OF_CARD = 64
#: Odd, with about as many ones as zeros: as a step it makes each word unique, and most bits change from word to word.
STEP = 0x9E3779B97F4A7C15
#: Longer patterns are not cached, so that memory under test is not kept.
_CACHED_WORDS = 2**21
_MODULUS = 2**64


def next_first(first: int) -> int:
    """Return the first word of another pattern, so that what an earlier copy left behind cannot pass for it."""
    return (first * 6364136223846793005 + 1442695040888963407) % _MODULUS


def word_at(pattern: Pattern, index: int) -> int:
    """Return word ``index`` of ``pattern``, from 0 to 2**64 - 1."""
    return (pattern.first + index * pattern.step) % _MODULUS


def words(pattern: Pattern, count: int) -> npt.NDArray[np.int64]:
    """Return the first ``count`` words: int64 ``[count]`` with the bits of the unsigned words, read-only."""
    return _cached(pattern, count) if count <= _CACHED_WORDS else _made(pattern, count)


def _made(pattern: Pattern, count: int) -> npt.NDArray[np.int64]:
    made = np.arange(count, dtype=np.uint64)
    made *= np.uint64(pattern.step % _MODULUS)
    made += np.uint64(pattern.first % _MODULUS)
    made.flags.writeable = False
    return made.view(np.int64)


_cached = lru_cache(maxsize=2)(_made)


def array_mismatch(array: npt.NDArray[Any], pattern: Pattern) -> Mismatch:
    """Compare the words of ``array`` (any dtype, a multiple of 8 bytes) with ``pattern``."""
    found = np.ascontiguousarray(array).reshape(-1).view(np.int64)
    differs = found != words(pattern, len(found))
    count = int(np.count_nonzero(differs))
    if not count:
        return Mismatch(0)
    first = int(np.argmax(differs))
    return Mismatch(count, first, int(found[first]) % _MODULUS)


def count_up(length: int) -> Any:
    """Make ``[0, 1, …, length - 1]`` in int64 on the current device, by doubling."""
    made = tf.zeros([1], tf.int64)
    have = 1
    while have < length:
        made = tf.concat([made, made + tf.constant(have, tf.int64)], axis=0)
        have *= 2
    return made if have == length else tf.raw_ops.Slice(input=made, begin=[0], size=[length])


def make_piece(counting: Any, pattern: Pattern, start: int, length: int) -> Any:
    """Make words ``start`` to ``start + length`` on the current device, in chunks.

    ``counting`` is :func:`count_up` of as many as a chunk has.
    """
    most = int(counting.shape[0])
    chunks = [_chunk(counting, pattern, start + at, min(most, length - at)) for at in range(0, length, most)]
    return chunks[0] if len(chunks) == 1 else tf.concat(chunks, axis=0)


def compare(counting: Any, found: Any, pattern: Pattern, start: int) -> Mismatch:
    """Compare int64 words ``[n]`` with the pattern from word ``start`` on. ``first_word`` is the pattern's index."""
    total, most = int(found.shape[0]), int(counting.shape[0])
    count, first, word = 0, None, None
    for at in range(0, total, most):
        length = min(most, total - at)
        chunk = found if length == total else tf.raw_ops.Slice(input=found, begin=[at], size=[length])
        wrong = tf.not_equal(chunk, _chunk(counting, pattern, start + at, length))
        if not bool(tf.reduce_any(wrong)):
            continue
        # On the host: an op on a card with a broken cell may fail where it finds other places than it has counted.
        places = np.flatnonzero(wrong.numpy().view(np.uint8))
        count += len(places)
        if first is None and len(places):
            index = int(places[0])
            first = start + at + index
            word = int(tf.raw_ops.Slice(input=chunk, begin=[index], size=[1]).numpy()[0]) % _MODULUS
    return Mismatch(count, first, word)


def _chunk(counting: Any, pattern: Pattern, start: int, length: int) -> Any:
    if pattern.step % _MODULUS == 0:
        return tf.fill([length], tf.constant(_signed(pattern.first), tf.int64))
    if counting.shape[0] != length:
        counting = tf.raw_ops.Slice(input=counting, begin=[0], size=[length])
    base = tf.constant(_signed(pattern.first + start * pattern.step), tf.int64)
    return counting * tf.constant(_signed(pattern.step), tf.int64) + base


def _signed(word: int) -> int:
    """Return the signed number with the bits of a 64-bit word."""
    word %= _MODULUS
    return word - _MODULUS if word >= _MODULUS // 2 else word
