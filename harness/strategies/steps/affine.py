"""Steps with a weight: a matrix product, a bias, a gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from harness.strategies.steps.step import Edge, Step, Types
from harness.strategies.value import Value


@dataclass(frozen=True, repr=False)
class Dense(Step):
    """The last features times a matrix ``w``: ``(…, i)`` by ``(i, j)``, or by ``(j, i)`` when ``transposed``."""

    KIND = "dense"
    READS = ("x", "w")
    x: str
    w: str
    transposed: bool = False

    def _infer(self, types: Types) -> Value:
        x, w = types[self.x], types[self.w]
        self.require(len(w.shape) == 2 and not w.batched, f"w has shape {w.shape}", "a matrix")
        inner, outer = reversed(w.shape) if self.transposed else w.shape
        self.require(x.batched and x.shape[-1:] == (inner,), f"x has features {x.shape}", f"{inner} last features")
        return Value((*x.shape[:-1], outer), x.dtype, inner * x.bound * w.bound)

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        return tf.matmul(values[self.x], values[self.w], transpose_b=self.transposed)

    def _edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, w = types[self.x], types[self.w]
        outer = w.shape[0 if self.transposed else 1]
        return Edge(self.x, outer, w.bound), Edge(self.w, prod(x.shape[:-1]), x.bound)


@dataclass(frozen=True, repr=False)
class Bias(Step):
    """Adds ``b``, whose shape is that of the last features; ``fused`` uses the op BiasAdd instead of a plain sum."""

    KIND = "bias"
    READS = ("x", "b")
    x: str
    b: str
    fused: bool = False

    def _infer(self, types: Types) -> Value:
        x, b = types[self.x], types[self.b]
        _require_suffix(self, x, b, "b")
        self.require(not self.fused or len(b.shape) == 1, f"b has shape {b.shape}", "a vector, for a fused bias")
        return Value(x.shape, x.dtype, x.bound + b.bound)

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        x, b = values[self.x], values[self.b]
        return tf.nn.bias_add(x, b) if self.fused else x + b

    def _edges(self, types: Types) -> tuple[Edge, ...] | None:
        return Edge(self.x, 1, 1), Edge(self.b, _repeats(types[self.x], types[self.b]), 1)


@dataclass(frozen=True, repr=False)
class Gain(Step):
    """Multiplies by ``g``, whose shape is that of the last features."""

    KIND = "gain"
    READS = ("x", "g")
    x: str
    g: str

    def _infer(self, types: Types) -> Value:
        x, g = types[self.x], types[self.g]
        _require_suffix(self, x, g, "g")
        return Value(x.shape, x.dtype, x.bound * g.bound)

    def _apply(self, _tf: Any, values: Mapping[str, Any]) -> Any:
        return values[self.x] * values[self.g]

    def _edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, g = types[self.x], types[self.g]
        return Edge(self.x, 1, g.bound), Edge(self.g, _repeats(x, g), x.bound)


def _require_suffix(step: Step, x: Value, weight: Value, name: str) -> None:
    fits = x.batched and not weight.batched and len(weight.shape) and x.shape[-len(weight.shape) :] == weight.shape
    step.require(bool(fits), f"{name} has shape {weight.shape} for features {x.shape}", "the last features' shape")


def _repeats(x: Value, weight: Value) -> float:
    """How many elements of a row of ``x`` meet the same element of ``weight``."""
    return x.size / weight.size
