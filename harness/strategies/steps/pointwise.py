"""Element-wise steps: activations, combinations of two values, a choice between two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from harness.strategies.steps.step import Edge, Step, Types
from harness.strategies.value import Value

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

    KIND = "activation"
    READS = ("x",)
    x: str
    fn: str

    def _infer(self, types: Types) -> Value:
        x = types[self.x]
        known = (*SMOOTH_ACTIVATIONS, *EXACT_ACTIVATIONS)
        self.require(self.fn in known, f"fn={self.fn!r}", ", ".join(known))
        self.require(bool(x.shape) or "softmax" not in self.fn, "x has no features", "features to take it over")
        bound = x.bound if self.fn in EXACT_ACTIVATIONS else _SMOOTH[self.fn](x.bound, x.shape[-1] if x.shape else 1)
        return Value(x.shape, x.dtype, bound, levelled="softmax" in self.fn)

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        home = tf if self.fn in ("tanh", "sigmoid", "sin", "abs") else tf.nn
        return getattr(home, self.fn)(values[self.x])

    def _edges(self, _types: Types) -> tuple[Edge, ...] | None:
        return (Edge(self.x, 1, 1),) if self.fn in EXACT_ACTIVATIONS else None


#: Ways to combine two values of a batch. The last two make a longer last axis, and a new first one.
COMBINATIONS = ("add", "sub", "mul", "maximum", "concat", "stack")


@dataclass(frozen=True, repr=False)
class Combine(Step):
    """Two values of the batch combined, see :data:`COMBINATIONS`."""

    KIND = "combine"
    READS = ("x", "y")
    how: str
    x: str
    y: str

    def _infer(self, types: Types) -> Value:
        x, y = types[self.x], types[self.y]
        self.require(self.how in COMBINATIONS, f"how={self.how!r}", ", ".join(COMBINATIONS))
        joined = self.how == "concat"
        fits = bool(x.shape) and x.shape[:-1] == y.shape[:-1] if joined else x.shape == y.shape
        self.require(x.batched and y.batched and fits, f"features {x.shape} and {y.shape}", "features that fit")
        self.require(x.dtype == y.dtype, f"types {x.dtype} and {y.dtype}", "the same type")
        shape = {"concat": (*x.shape[:-1], sum(v.shape[-1] for v in (x, y) if v.shape)), "stack": (2, *x.shape)}
        bound = {"add": x.bound + y.bound, "sub": x.bound + y.bound, "mul": x.bound * y.bound}
        return Value(
            shape.get(self.how, x.shape),
            x.dtype,
            bound.get(self.how, max(x.bound, y.bound)),
            levelled=x.levelled or y.levelled,
        )

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        x, y = values[self.x], values[self.y]
        if self.how == "concat":
            return tf.concat([x, y], axis=-1)
        if self.how == "stack":
            return tf.stack([x, y], axis=1)
        op = {"add": tf.add, "sub": tf.subtract, "mul": tf.multiply, "maximum": tf.maximum}[self.how]
        return op(x, y)

    def _edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, y = types[self.x].bound, types[self.y].bound
        gains = (y, x) if self.how == "mul" else (1, 1)
        return Edge(self.x, 1, gains[0]), Edge(self.y, 1, gains[1])


@dataclass(frozen=True, repr=False)
class Select(Step):
    """``x`` where ``on`` is true (or positive), elsewhere ``y``, or 0 without ``y``.

    The features of ``on`` are the first features of ``x``. Its values must be stable: one that differs by an ulp could
    select the other.
    """

    KIND = "select"
    READS = ("on", "x", "y")
    on: str
    x: str
    y: str | None = None

    def _infer(self, types: Types) -> Value:
        on, x = types[self.on], types[self.x]
        self.require(on.batched and on.stable, f"on={self.on!r} may differ by an ulp", "an argument or integers")
        self.require(x.shape[: len(on.shape)] == on.shape, f"on has features {on.shape}", f"the first of {x.shape}")
        y = x if self.y is None else types[self.y]
        self.require(x.batched and (y.shape, y.dtype) == (x.shape, x.dtype), f"y is {y.shape} {y.dtype}", "as x is")
        return Value(x.shape, x.dtype, max(x.bound, y.bound), levelled=x.levelled or y.levelled)

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        on, x = values[self.on], values[self.x]
        which = on if on.dtype == tf.bool else on > 0
        for _ in range(len(x.shape) - len(on.shape)):
            which = tf.expand_dims(which, -1)
        return tf.where(which, x, tf.zeros_like(x) if self.y is None else values[self.y])

    def _edges(self, _types: Types) -> tuple[Edge, ...] | None:
        return tuple(Edge(name, 1, 1) for name in self.reads[1:])
