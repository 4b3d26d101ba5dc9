"""Steps that look up: features by number, rows of a table by the numbers of each row of the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.lazy import tf
from harness.strategies.steps.step import INDEX, Edge, Operand, Step, Types, Value


@dataclass(frozen=True, repr=False)
class Gather(Step):
    """The last features with the numbers ``indices``, in that order, possibly repeated."""

    x: Operand
    indices: tuple[int, ...]

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        fits = bool(x.shape and self.indices) and all(0 <= index < x.shape[-1] for index in self.indices)
        self.require(
            fits,
            f"indices={self.indices}",
            f"one or more indices into the last axis of the features of shape {x.shape}",
        )
        return Value((*x.shape[:-1], len(self.indices)), x.dtype, x.bound, below=x.below, levelled=x.levelled)

    def apply(self, values: Mapping[str, Any]) -> Any:
        return tf.gather(values[self.x], tf.constant(self.indices, tf.int32), axis=-1)

    def edges(self, _types: Types) -> tuple[Edge, ...] | None:
        return (Edge(self.x, max(Counter(self.indices).values()), 1),)


@dataclass(frozen=True, repr=False)
class Slice(Step):
    """The last features from ``start`` on, ``size`` of them."""

    COMPUTES = False
    x: Operand
    start: int
    size: int

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        fits = bool(x.shape) and self.start >= 0 and 1 <= self.size <= x.shape[-1] - self.start
        self.require(
            fits,
            f"start={self.start}, size={self.size}",
            f"a range within the last axis of the features of shape {x.shape}",
        )
        return Value((*x.shape[:-1], self.size), x.dtype, x.bound, below=x.below, levelled=x.levelled)

    def apply(self, values: Mapping[str, Any]) -> Any:
        return values[self.x][..., self.start : self.start + self.size]


@dataclass(frozen=True, repr=False)
class Pick(Step):
    """Each row's own choice along the first axis of its features: those with its numbers ``ids``."""

    x: Operand
    ids: Operand

    def infer(self, types: Types) -> Value:
        x, ids = types[self.x], types[self.ids]
        self.require(bool(x.shape), f"x={self.x!r} has no features", "a value with features")
        _require_ids(self, self.ids, ids, x.shape[0])
        return Value((*ids.shape, *x.shape[1:]), x.dtype, x.bound, below=x.below, levelled=x.levelled)

    def apply(self, values: Mapping[str, Any]) -> Any:
        return tf.gather(values[self.x], values[self.ids], axis=1, batch_dims=1)

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        return (Edge(self.x, types[self.ids].size, 1),)


@dataclass(frozen=True, repr=False)
class Embed(Step):
    """Rows of ``table`` by number. The table's gradient is IndexedSlices.

    The table is read on the device of the step; with ``at_variable`` the lookup runs where the table is.
    """

    ids: Operand
    table: Operand
    at_variable: bool = False

    def infer(self, types: Types) -> Value:
        ids, table = types[self.ids], types[self.table]
        self.require(
            not table.batched and len(table.shape) >= 2,
            f"table={self.table!r} has shape {table.shape}",
            "a variable or broadcast argument with 2 or more axes",
        )
        _require_ids(self, self.ids, ids, table.shape[0])
        return Value((*ids.shape, *table.shape[1:]), table.dtype, table.bound)

    def apply(self, values: Mapping[str, Any]) -> Any:
        table = values[self.table] if self.at_variable else tf.convert_to_tensor(values[self.table])
        return tf.gather(table, values[self.ids])

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        return (Edge(self.table, types[self.ids].size, 1),)


@dataclass(frozen=True, repr=False)
class Remap(Step):
    """Integer arithmetic on numbers that count from 0: ``(ids * times + plus) % below``."""

    COMPUTES = False
    ids: Operand
    times: int
    plus: int
    below: int

    def infer(self, types: Types) -> Value:
        ids = types[self.ids]
        self.require(ids.below is not None, f"ids={self.ids!r} is not an index", INDEX)
        self.require(
            min(self.times, self.plus) >= 0 < self.below,
            f"times={self.times}, plus={self.plus}, below={self.below}",
            "times >= 0, plus >= 0 and below >= 1",
        )
        return Value(ids.shape, ids.dtype, self.below - 1, below=self.below)

    def apply(self, values: Mapping[str, Any]) -> Any:
        return (values[self.ids] * self.times + self.plus) % self.below


@dataclass(frozen=True, repr=False)
class Argmax(Step):
    """The number of the largest of the last features, int32, only of stable values."""

    COMPUTES = False
    x: Operand

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(
            bool(x.shape) and x.dtype != "bool",
            f"x={self.x!r} has features of shape {x.shape} and type {x.dtype}",
            "numeric features",
        )
        self.require(x.stable, f"x={self.x!r} depends on rounding", "an argument, integers or exact values")
        return Value(x.shape[:-1], "int32", x.shape[-1] - 1, below=x.shape[-1])

    def apply(self, values: Mapping[str, Any]) -> Any:
        return tf.argmax(values[self.x], axis=-1, output_type=tf.int32)


def _require_ids(step: Step, name: str, ids: Value, rows: int) -> None:
    if not ids.batched or ids.below is None:
        step.fault(f"ids={name!r} is not an index with the batch axis", INDEX)
    step.require(ids.below <= rows, f"ids={name!r} goes up to {ids.below - 1}", f"integers from 0 to {rows - 1}")
