"""A product of two values as an Einstein sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from harness.strategies.steps.step import Edge, Step, Types
from harness.strategies.value import Value


@dataclass(frozen=True, repr=False)
class Einsum(Step):
    """``equation`` of two operands, in which ``b`` is the batch: ``"bi,ij->bj"``, or ``"bi,bj->bij"`` row by row."""

    KIND = "einsum"
    READS = ("x", "y")
    equation: str
    x: str
    y: str

    def _infer(self, types: Types) -> Value:
        sizes = self._sizes(types)
        result = self.equation.partition("->")[2]
        shape = tuple(sizes[letter] for letter in result[1:])
        terms = prod(sizes.values()) / prod(shape)
        return Value(shape, types[self.x].dtype, terms * types[self.x].bound * types[self.y].bound)

    def _sizes(self, types: Types) -> dict[str, int]:
        """Size of each letter but ``b``."""
        operands, _, result = self.equation.partition("->")
        texts = operands.split(",")
        self.require(len(texts) == 2 and result[:1] == "b", f"equation={self.equation!r}", "'b…,…->b…'")
        sizes: dict[str, int] = {}
        for text, name in zip(texts, self.reads, strict=True):
            value = types[name]
            letters = text.removeprefix("b")
            fits = value.batched == text.startswith("b") and len(letters) == len(value.shape)
            self.require(
                fits, f"{name} has shape {value.shape} for {text!r}", "a letter for each axis, b for the batch"
            )
            for letter, size in zip(letters, value.shape, strict=True):
                same = sizes.setdefault(letter, size) == size
                self.require(same, f"{letter!r} is both {sizes[letter]} and {size}", "one size for each letter")
        known = types[self.x].batched and set(result[1:]) <= set(sizes)
        self.require(known, f"equation={self.equation!r}", "a batch first, and a result of its operands' letters")
        return sizes

    def _apply(self, tf: Any, values: Mapping[str, Any]) -> Any:
        return tf.einsum(self.equation, values[self.x], values[self.y])

    def _edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, y = types[self.x], types[self.y]
        terms = prod(self._sizes(types).values())
        return Edge(self.x, terms / x.size, y.bound), Edge(self.y, terms / y.size, x.bound)
