"""Steps on the features of each row: element-wise functions, normalisation, reductions, reshapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log, prod, sqrt
from typing import Any

from harness.lazy import tf
from harness.strategies.steps.step import Edge, Operand, Step, Types, Value

#: Activations whose values and gradients stay integers.
EXACT_ACTIVATIONS = ("relu", "abs")
#: Activations without a kink, by the largest magnitude of their result for arguments up to ``b`` and ``n`` features.
_SMOOTH: dict[str, Callable[[float, int], float]] = {
    "tanh": lambda _b, _n: 1.0,
    "sigmoid": lambda _b, _n: 1.0,
    "softplus": lambda b, _n: b + log(2),
    "elu": lambda b, _n: max(b, 1.0),
    "gelu": lambda b, _n: b,
    "silu": lambda b, _n: b,
    "softsign": lambda _b, _n: 1.0,
    "sin": lambda _b, _n: 1.0,
    "softmax": lambda _b, _n: 1.0,
    "log_softmax": lambda b, n: 2 * b + log(n),
}
SMOOTH_ACTIVATIONS = tuple(_SMOOTH)


@dataclass(frozen=True, repr=False)
class Activation(Step):
    """A function of each element, or over the last features for ``softmax`` and ``log_softmax``."""

    x: Operand
    fn: str

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        known = (*SMOOTH_ACTIVATIONS, *EXACT_ACTIVATIONS)
        self.require(self.fn in known, f"fn={self.fn!r}", ", ".join(known))
        self.require(
            bool(x.shape) or "softmax" not in self.fn, f"x={self.x!r} has no features", "a value with features"
        )
        bound = x.bound if self.fn in EXACT_ACTIVATIONS else _SMOOTH[self.fn](x.bound, x.shape[-1] if x.shape else 1)
        return Value(x.shape, x.dtype, bound, levelled="softmax" in self.fn)

    def apply(self, values: Mapping[str, Any]) -> Any:
        home = tf if self.fn in ("tanh", "sigmoid", "sin", "abs") else tf.nn
        return getattr(home, self.fn)(values[self.x])

    def edges(self, _types: Types) -> tuple[Edge, ...] | None:
        return (Edge(self.x, 1, 1),) if self.fn in EXACT_ACTIVATIONS else None


#: Ways to combine two values of a batch. The last two make a longer last axis, and a new first one.
COMBINATIONS = ("add", "sub", "mul", "maximum", "concat", "stack")
_MATCHING = "two values with the batch axis and matching features"


@dataclass(frozen=True, repr=False)
class Combine(Step):
    """Two values of the batch combined, see :data:`COMBINATIONS`."""

    how: str
    x: Operand
    y: Operand

    def infer(self, types: Types) -> Value:
        x, y = types[self.x], types[self.y]
        self.require(self.how in COMBINATIONS, f"how={self.how!r}", ", ".join(COMBINATIONS))
        joined = self.how == "concat"
        fits = bool(x.shape) and x.shape[:-1] == y.shape[:-1] if joined else x.shape == y.shape
        self.require(y.batched and fits, f"features of shapes {x.shape} and {y.shape}", _MATCHING)
        self.require(x.dtype == y.dtype, f"types {x.dtype} and {y.dtype}", "the same type")
        shape = {"concat": (*x.shape[:-1], sum(v.shape[-1] for v in (x, y) if v.shape)), "stack": (2, *x.shape)}
        bound = {"add": x.bound + y.bound, "sub": x.bound + y.bound, "mul": x.bound * y.bound}
        return Value(
            shape.get(self.how, x.shape),
            x.dtype,
            bound.get(self.how, max(x.bound, y.bound)),
            levelled=x.levelled or y.levelled,
        )

    def apply(self, values: Mapping[str, Any]) -> Any:
        x, y = values[self.x], values[self.y]
        if self.how == "concat":
            return tf.concat([x, y], axis=-1)
        if self.how == "stack":
            return tf.stack([x, y], axis=1)
        op = {"add": tf.add, "sub": tf.subtract, "mul": tf.multiply, "maximum": tf.maximum}[self.how]
        return op(x, y)

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, y = types[self.x].bound, types[self.y].bound
        gains = (y, x) if self.how == "mul" else (1, 1)
        return Edge(self.x, 1, gains[0]), Edge(self.y, 1, gains[1])


@dataclass(frozen=True, repr=False)
class Select(Step):
    """``x`` where ``on`` is true (or positive), elsewhere ``y``, or 0 without ``y``.

    The features of ``on`` are the first features of ``x``. Its values must be stable: one that differs by an ulp could
    select the other.
    """

    on: Operand
    x: Operand
    y: Operand | None = None

    def infer(self, types: Types) -> Value:
        on, x = types[self.on], types[self.x]
        self.require(on.stable, f"on={self.on!r} depends on rounding", "an argument or integers")
        self.require(
            x.shape[: len(on.shape)] == on.shape,
            f"on={self.on!r} has features of shape {on.shape}",
            f"the start of {x.shape}, the features of x={self.x!r}",
        )
        self.require(x.batched, f"x={self.x!r} has no batch axis", "an argument or a step with the batch axis")
        y = x if self.y is None else types[self.y]
        self.require(
            (y.shape, y.dtype) == (x.shape, x.dtype),
            f"y={self.y!r} has features of shape {y.shape} and type {y.dtype}",
            f"the shape and type of x={self.x!r}, {x.shape} and {x.dtype}",
        )
        return Value(x.shape, x.dtype, max(x.bound, y.bound), levelled=x.levelled or y.levelled)

    def apply(self, values: Mapping[str, Any]) -> Any:
        on, x = values[self.on], values[self.x]
        which = on if on.dtype == tf.bool else on > 0
        for _ in range(len(x.shape) - len(on.shape)):
            which = tf.expand_dims(which, -1)
        return tf.where(which, x, tf.zeros_like(x) if self.y is None else values[self.y])

    def edges(self, _types: Types) -> tuple[Edge, ...] | None:
        return tuple(Edge(name, 1, 1) for name in self.reads[1:])


#: Less the mean and over the deviation, over the root mean square, over the Euclidean length.
NORMALISATIONS = ("layer", "rms", "length")


@dataclass(frozen=True, repr=False)
class Normalise(Step):
    """The last features, normalised (see :data:`NORMALISATIONS`); ``eps`` is added to what is divided by, squared."""

    x: Operand
    how: str = "layer"
    eps: float = 0.01

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(self.how in NORMALISATIONS, f"how={self.how!r}", ", ".join(NORMALISATIONS))
        self.require(bool(x.shape), f"x={self.x!r} has no features", "a value with features")
        self.require(self.eps > 0, f"eps={self.eps}", "a positive number")
        bound = 1.0 if self.how == "length" else sqrt(x.shape[-1])
        return Value(x.shape, x.dtype, bound, levelled=self.how == "layer")

    def apply(self, values: Mapping[str, Any]) -> Any:
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

    x: Operand
    how: str
    axis: int = 0

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(self.how in REDUCTIONS, f"how={self.how!r}", ", ".join(REDUCTIONS))
        self.require(
            0 <= self.axis < len(x.shape),
            f"axis={self.axis}",
            f"an axis of the features of shape {x.shape}, counted from 0",
        )
        length = x.shape[self.axis]
        bound = {"sum": x.bound * length, "logsumexp": x.bound + log(length)}.get(self.how, x.bound)
        return Value(x.shape[: self.axis] + x.shape[self.axis + 1 :], x.dtype, bound)

    def apply(self, values: Mapping[str, Any]) -> Any:
        return getattr(tf, f"reduce_{self.how}")(values[self.x], axis=self.axis + 1)

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        # The gradient of a maximum is shared out among those that are equal, in thirds for example.
        whole = self.how == "sum" or (self.how == "max" and types[self.x].dtype.startswith("int"))
        return (Edge(self.x, 1, 1),) if whole else None


@dataclass(frozen=True, repr=False)
class Reshape(Step):
    """The same features in another shape."""

    COMPUTES = False
    x: Operand
    shape: tuple[int, ...]

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(prod(self.shape) == x.size, f"shape={self.shape}", f"a shape of {x.size} features per row")
        return Value(self.shape, x.dtype, x.bound, below=x.below, levelled=x.levelled)

    def apply(self, values: Mapping[str, Any]) -> Any:
        x = values[self.x]
        # With -1 for the rows, TensorFlow could not derive them if both they and a feature size are 0.
        return tf.reshape(x, tf.concat([tf.shape(x)[:1], tf.constant(self.shape, tf.int32)], axis=0))


@dataclass(frozen=True, repr=False)
class Transpose(Step):
    """The axes of the features in another order, counted without the batch axis."""

    COMPUTES = False
    x: Operand
    order: tuple[int, ...]

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        fits = sorted(self.order) == list(range(len(x.shape)))
        self.require(fits, f"order={self.order}", f"a permutation of the axes {tuple(range(len(x.shape)))}")
        return Value(tuple(x.shape[axis] for axis in self.order), x.dtype, x.bound, below=x.below, levelled=x.levelled)

    def apply(self, values: Mapping[str, Any]) -> Any:
        return tf.transpose(values[self.x], [0, *(axis + 1 for axis in self.order)])
