"""Data, small models and splitting that the planted programs share. All random numbers are seeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.lazy import tf


def sample(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Normally distributed numbers, float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> NDArray[np.int64]:
    """Numbers from 0 to ``high - 1``, int64."""
    return np.random.default_rng(seed).integers(0, high, size=shape)


def shares(rows: int, count: int) -> list[int]:
    """Sizes of ``count`` shards of ``rows`` rows that differ by at most one."""
    return [rows // count + (index < rows % count) for index in range(count)]


def uneven(count: int) -> int:
    """A number of rows that does not divide by ``count`` devices, at least two for each."""
    return 3 * count - 1


def on_each(names: Sequence[str | None], fn: Callable[..., Any], *shards: Sequence[Any]) -> list[Any]:
    """``fn`` of each device's shards, in its scope."""
    results = []
    for name, *parts in zip(names, *shards, strict=True):
        with tf.device(name):
            results.append(fn(*parts))
    return results


def in_shards(names: Sequence[str | None], fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A program: ``fn`` of a shard of ``x`` on each named device, the results concatenated."""

    def program(x: Any) -> Any:
        return tf.concat(on_each(names, fn, tf.split(x, shares(x.shape[0], len(names)))), axis=0)

    return program


def add_up(results: Sequence[Sequence[Any]]) -> list[Any]:
    """The sums over devices of what each returned, place by place."""
    return [tf.add_n(list(parts)) for parts in zip(*results, strict=True)]
