"""Writes patterns on a card and compares them there, by TensorFlow's ops.

A GPU has no kernels for some ops on int64 (``Range`` in older releases, ``Cumsum``, ``Sum``), so that only these are
used, which have one on every device: Fill, AddV2 and Mul (both wrap modulo 2**64), ConcatV2, Slice, NotEqual, Any,
Where.
"""

from __future__ import annotations

from typing import Any

from harness.hardware.machine import Mismatch, Pattern

#: What is made or compared at once: 16 MiB of 64-bit words, so that comparing needs about 50 MiB besides the buffer.
CHUNK_WORDS = 2 * 1024 * 1024
#: Size of the tensors that a large buffer is made of: 64 MiB, large enough for copies to run at full speed.
PIECE_WORDS = 4 * CHUNK_WORDS

_WRAP = 1 << 64


def signed(word: int) -> int:
    """A 64-bit word as the signed number that has its bits."""
    word %= _WRAP
    return word - _WRAP if word >= _WRAP // 2 else word


def count_up(words: int) -> Any:
    """``[0, 1, …, words - 1]`` in int64, made on the present device by doubling."""
    import tensorflow as tf

    made = tf.zeros([1], tf.int64)
    length = 1
    while length < words:
        made = tf.concat([made, made + tf.constant(length, tf.int64)], axis=0)
        length *= 2
    return made if length == words else tf.raw_ops.Slice(input=made, begin=[0], size=[words])


def make(counting: Any, pattern: Pattern, start: int, words: int) -> Any:
    """Words ``start`` to ``start + words`` of the pattern, on the present device.

    ``counting`` is :func:`count_up` of at least ``words``.
    """
    import tensorflow as tf

    if pattern.step % _WRAP == 0:
        return tf.fill([words], tf.constant(signed(pattern.first), tf.int64))
    if counting.shape[0] != words:
        counting = tf.raw_ops.Slice(input=counting, begin=[0], size=[words])
    base = tf.constant(signed(pattern.first + start * pattern.step), tf.int64)
    return counting * tf.constant(signed(pattern.step), tf.int64) + base


def make_piece(counting: Any, pattern: Pattern, start: int, words: int) -> Any:
    """The same for more words than ``counting`` has, joined from chunks."""
    import tensorflow as tf

    chunks = [make(counting, pattern, start + at, min(CHUNK_WORDS, words - at)) for at in range(0, words, CHUNK_WORDS)]
    return chunks[0] if len(chunks) == 1 else tf.concat(chunks, axis=0)


def compare(counting: Any, found: Any, pattern: Pattern, start: int) -> Mismatch:
    """How int64 words, ``[n]``, differ from the pattern's from word ``start`` on. ``first_word`` is the pattern's."""
    import tensorflow as tf

    total = int(found.shape[0])
    count, first, word = 0, None, None
    for at in range(0, total, CHUNK_WORDS):
        words = min(CHUNK_WORDS, total - at)
        chunk = found if words == total else tf.raw_ops.Slice(input=found, begin=[at], size=[words])
        wrong = tf.not_equal(chunk, make(counting, pattern, start + at, words))
        if not bool(tf.reduce_any(wrong)):
            continue
        places = tf.where(wrong)
        count += int(places.shape[0])
        if first is None:
            index = int(tf.raw_ops.Slice(input=places, begin=[0, 0], size=[1, 1]).numpy()[0, 0])
            first = start + at + index
            word = int(tf.raw_ops.Slice(input=chunk, begin=[index], size=[1]).numpy()[0]) % _WRAP
    return Mismatch(count, first, word)
