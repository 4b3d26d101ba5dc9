"""Steps over the features of a row: normalisation, reductions, reshapes, transposes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, prod, sqrt
from typing import Any

from harness.strategies.steps.step import Edge, Step, Types
from harness.strategies.value import Value

#: Less the mean and over the deviation, over the root mean square, over the Euclidean length.
NORMALISATIONS = ("layer", "rms", "length")


@dataclass(frozen=True, repr=False)
class Normalise(Step):
    """The last features, normalised (see :data:`NORMALISATIONS`); ``eps`` is added to what is divided by, squared."""

    KIND = "normalise"
    READS = ("x",)
    x: str
    how: str = "layer"
    eps: float = 0.01

    def _infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(self.how in NORMALISATIONS, f"how={self.how!r}", ", ".join(NORMALISATIONS))
        self.require(x.batched and bool(x.shape), f"features {x.shape}", "features to normalise over")
        self.require(self.eps > 0, f"eps={self.eps}", "a positive number")
        bound = 1.0 if self.how == "length" else sqrt(x.shape[-1])
        return Value(x.shape, x.dtype, bound, levelled=self.how == "layer")

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        x = values[self.x]
        if self.how == "layer":
            mean, variance = tf.nn.moments(x, axes=-1, keepdims=True)
            return tf.nn.batch_normalization(x, mean, variance, None, None, self.eps)
        total = tf.reduce_mean if self.how == "rms" else tf.reduce_sum
        return x * tf.math.rsqrt(total(x * x, axis=-1, keepdims=True) + tf.cast(self.eps, x.dtype))


REDUCTIONS = ("sum", "mean", "max", "logsumexp")


@dataclass(frozen=True, repr=False)
class Reduce(Step):
    """One axis of the features reduced, ``axis`` counted without the batch axis."""

    KIND = "reduce"
    READS = ("x",)
    x: str
    how: str
    axis: int = 0

    def _infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(self.how in REDUCTIONS, f"how={self.how!r}", ", ".join(REDUCTIONS))
        self.require(x.batched and 0 <= self.axis < len(x.shape), f"axis={self.axis}", f"an axis of {x.shape}")
        length = x.shape[self.axis]
        bound = {"sum": x.bound * length, "logsumexp": x.bound + log(length)}.get(self.how, x.bound)
        return Value(x.shape[: self.axis] + x.shape[self.axis + 1 :], x.dtype, bound)

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        return getattr(tf, f"reduce_{self.how}")(values[self.x], axis=self.axis + 1)

    def _edges(self, types: Types) -> tuple[Edge, ...] | None:
        # The gradient of a maximum is shared out among those that are equal, in thirds for example.
        whole = self.how == "sum" or (self.how == "max" and types[self.x].dtype.startswith("int"))
        return (Edge(self.x, 1, 1),) if whole else None


@dataclass(frozen=True, repr=False)
class Reshape(Step):
    """The same features in another shape."""

    KIND = "reshape"
    READS = ("x",)
    COMPUTES = False
    x: str
    shape: tuple[int, ...]

    def _infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(x.batched and prod(self.shape) == x.size, f"shape={self.shape}", f"{x.size} features a row")
        return Value(self.shape, x.dtype, x.bound, below=x.below, levelled=x.levelled)

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        x = values[self.x]
        # The rows are asked for, since -1 cannot be worked out where a batch of 0 rows meets features of size 0.
        return tf.reshape(x, tf.concat([tf.shape(x)[:1], tf.constant(self.shape, tf.int32)], axis=0))

    def _edges(self, _types: Types) -> tuple[Edge, ...] | None:
        return (Edge(self.x, 1, 1),)


@dataclass(frozen=True, repr=False)
class Transpose(Step):
    """The axes of the features in another order, counted without the batch axis."""

    KIND = "transpose"
    READS = ("x",)
    COMPUTES = False
    x: str
    order: tuple[int, ...]

    def _infer(self, types: Types) -> Value:
        x = types[self.x]
        fits = sorted(self.order) == list(range(len(x.shape)))
        self.require(x.batched and fits, f"order={self.order}", f"each axis of {x.shape} once")
        return Value(tuple(x.shape[axis] for axis in self.order), x.dtype, x.bound, below=x.below, levelled=x.levelled)

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        return tf.transpose(values[self.x], [0, *(axis + 1 for axis in self.order)])

    def _edges(self, _types: Types) -> tuple[Edge, ...] | None:
        return (Edge(self.x, 1, 1),)
