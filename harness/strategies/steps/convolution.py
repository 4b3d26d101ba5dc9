"""Convolution and pooling over features: ``(length, channels)`` or ``(height, width, channels)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from harness.strategies.steps.step import Edge, Step, Types
from harness.strategies.value import Value


def convolved(lengths: Sequence[int], widths: Sequence[int], stride: int, padding: str) -> list[int]:
    """Return the lengths after a convolution."""
    if padding == "SAME":
        return [-(-length // stride) for length in lengths]
    return [(length - width) // stride + 1 for length, width in zip(lengths, widths, strict=True)]


@dataclass(frozen=True, repr=False)
class _Convolution(Step):
    READS = ("x", "k")
    x: str
    k: str
    stride: int = 1
    padding: str = "SAME"

    AXES: ClassVar[int]

    @property
    def needs_rows(self) -> bool:
        """Yes: oneDNN gives a convolution of 0 rows the channels of its input, and the next step fails."""
        return True

    def _infer(self, types: Types) -> Value:
        x, k = types[self.x], types[self.k]
        axes = self.AXES
        fits = len(x.shape) == axes + 1 and len(k.shape) == axes + 2 and k.shape[axes] == x.shape[axes]
        self.require(x.batched and not k.batched and fits, f"features {x.shape}, kernel {k.shape}", "matching channels")
        self.require(self.padding in ("SAME", "VALID"), f"padding={self.padding!r}", "'SAME' or 'VALID'")
        inside = all(width <= length for length, width in zip(x.shape, k.shape[:axes], strict=False))
        self.require(inside and self.stride >= 1, f"kernel {k.shape} over {x.shape}", "a kernel no longer than that")
        lengths = convolved(x.shape[:axes], k.shape[:axes], self.stride, self.padding)
        return Value((*lengths, k.shape[-1]), x.dtype, prod(k.shape[:-1]) * x.bound * k.bound)

    # Without edges: libraries choose transforms (Winograd, FFT) whose inner values are no integers.


@dataclass(frozen=True, repr=False)
class Conv1d(_Convolution):
    """A convolution over ``(length, channels)`` with a kernel ``(width, channels, out)``."""

    KIND = "conv1d"
    AXES = 1

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        return tf.nn.conv1d(values[self.x], values[self.k], self.stride, self.padding)


@dataclass(frozen=True, repr=False)
class Conv2d(_Convolution):
    """A convolution over ``(height, width, channels)`` with a kernel ``(height, width, channels, out)``."""

    KIND = "conv2d"
    AXES = 2

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        return tf.nn.conv2d(values[self.x], values[self.k], self.stride, self.padding)


@dataclass(frozen=True, repr=False)
class Pool(Step):
    """The maximum or mean of two neighbours each along ``(length, channels)``; an odd one at the end is dropped."""

    KIND = "pool"
    READS = ("x",)
    x: str
    how: str = "max"

    @property
    def needs_rows(self) -> bool:
        """Maxima do: with oneDNN, their gradient on 0 rows aborts the process when it runs in a graph."""
        return self.how == "max"

    def _infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(len(x.shape) == 2 and x.shape[0] >= 2, f"features {x.shape}", "(length of 2 or more, channels)")
        self.require(self.how in ("max", "avg"), f"how={self.how!r}", "'max' or 'avg'")
        return Value((x.shape[0] // 2, x.shape[1]), x.dtype, x.bound)

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        pool = tf.nn.max_pool1d if self.how == "max" else tf.nn.avg_pool1d
        return pool(values[self.x], 2, 2, "VALID")

    def _edges(self, _types: Types) -> tuple[Edge, ...] | None:
        # The gradient of a maximum goes to one element whole; that of a mean in halves.
        return (Edge(self.x, 1, 1),) if self.how == "max" else None
