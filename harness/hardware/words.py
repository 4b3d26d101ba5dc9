"""The words of a pattern in the host's memory, and how two patterns differ without making either."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.hardware.machine import Mismatch, Pattern

if TYPE_CHECKING:
    import numpy.typing as npt

_MODULUS = 2**64


#: Longer patterns are made anew each time, so that memory that is tested is not kept.
_KEPT_WORDS = 2**21


def words(pattern: Pattern, count: int) -> npt.NDArray[np.int64]:
    """The first ``count`` words of ``pattern``: int64 ``[count]``, with the bits of the unsigned words. Read-only."""
    return _kept(pattern, count) if count <= _KEPT_WORDS else _made(pattern, count)


def _made(pattern: Pattern, count: int) -> npt.NDArray[np.int64]:
    made = np.arange(count, dtype=np.uint64)
    made *= np.uint64(pattern.step % _MODULUS)
    made += np.uint64(pattern.first % _MODULUS)
    made.flags.writeable = False
    return made.view(np.int64)


@lru_cache(maxsize=2)
def _kept(pattern: Pattern, count: int) -> npt.NDArray[np.int64]:
    return _made(pattern, count)


def word_at(pattern: Pattern, index: int) -> int:
    """Word ``index`` of ``pattern``, from 0 to 2**64 - 1."""
    return (pattern.first + index * pattern.step) % _MODULUS


def array_mismatch(array: npt.NDArray[Any], pattern: Pattern) -> Mismatch:
    """Where the words of ``array`` (any dtype, a multiple of 8 bytes) are not ``pattern``."""
    found = np.ascontiguousarray(array).reshape(-1).view(np.int64)
    differs = found != words(pattern, len(found))
    count = int(np.count_nonzero(differs))
    if not count:
        return Mismatch(0)
    first = int(np.argmax(differs))
    return Mismatch(count, first, int(found[first]) % _MODULUS)


def pattern_mismatch(there: Pattern, asked: Pattern, count: int) -> Mismatch:
    """Where ``count`` words of the pattern ``there`` are not those of ``asked``, found by arithmetic alone.

    Word ``i`` is the same where ``first + i * step`` is 0 modulo 2**64, of the differences of the two.
    """
    first, step = (there.first - asked.first) % _MODULUS, (there.step - asked.step) % _MODULUS
    if not step:
        return Mismatch(count, 0, word_at(there, 0)) if first and count else Mismatch(0)
    common = math.gcd(step, _MODULUS)
    same = 0
    equal_at = None
    if first % common == 0:
        period = _MODULUS // common
        equal_at = (-first // common) * pow(step // common, -1, period) % period
        same = 0 if equal_at >= count else 1 + (count - 1 - equal_at) // period
    if same == count:
        return Mismatch(0)
    at = 1 if equal_at == 0 else 0
    return Mismatch(count - same, at, word_at(there, at))
