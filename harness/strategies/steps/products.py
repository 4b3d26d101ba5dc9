"""Steps that multiply a value by weights or by another value: matrix products, Einstein sums, convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from harness.lazy import tf
from harness.strategies.steps.step import Edge, Operand, Step, Types, Value


@dataclass(frozen=True, repr=False)
class Dense(Step):
    """The last features times a matrix ``w``: ``(…, i)`` by ``(i, j)``, or by ``(j, i)`` when ``transposed``."""

    x: Operand
    w: Operand
    transposed: bool = False

    def infer(self, types: Types) -> Value:
        x, w = types[self.x], types[self.w]
        self.require(len(w.shape) == 2 and not w.batched, f"w has shape {w.shape}", "a matrix without a batch axis")
        inner, outer = reversed(w.shape) if self.transposed else w.shape
        self.require(
            x.shape[-1:] == (inner,), f"x has features of shape {x.shape}", f"a last axis of {inner}, to match w"
        )
        return Value((*x.shape[:-1], outer), x.dtype, inner * x.bound * w.bound)

    def apply(self, values: Mapping[str, Any]) -> Any:
        return tf.matmul(values[self.x], values[self.w], transpose_b=self.transposed)

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, w = types[self.x], types[self.w]
        outer = w.shape[0 if self.transposed else 1]
        return Edge(self.x, outer, w.bound), Edge(self.w, prod(x.shape[:-1]), x.bound)


@dataclass(frozen=True, repr=False)
class Bias(Step):
    """Adds ``b``, whose shape is that of the last features; ``fused`` uses the op BiasAdd instead of a plain sum."""

    x: Operand
    b: Operand
    fused: bool = False

    def infer(self, types: Types) -> Value:
        x, b = types[self.x], types[self.b]
        _require_suffix(self, x, b, "b")
        self.require(not self.fused or len(b.shape) == 1, f"b has shape {b.shape}", "a vector, because fused=True")
        return Value(x.shape, x.dtype, x.bound + b.bound)

    def apply(self, values: Mapping[str, Any]) -> Any:
        x, b = values[self.x], values[self.b]
        return tf.nn.bias_add(x, b) if self.fused else x + b

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        return Edge(self.x, 1, 1), Edge(self.b, _repeats(types[self.x], types[self.b]), 1)


@dataclass(frozen=True, repr=False)
class Gain(Step):
    """Multiplies by ``g``, whose shape is that of the last features."""

    x: Operand
    g: Operand

    def infer(self, types: Types) -> Value:
        x, g = types[self.x], types[self.g]
        _require_suffix(self, x, g, "g")
        return Value(x.shape, x.dtype, x.bound * g.bound)

    def apply(self, values: Mapping[str, Any]) -> Any:
        return values[self.x] * values[self.g]

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, g = types[self.x], types[self.g]
        return Edge(self.x, 1, g.bound), Edge(self.g, _repeats(x, g), x.bound)


def _require_suffix(step: Step, x: Value, weight: Value, name: str) -> None:
    fits = not weight.batched and len(weight.shape) and x.shape[-len(weight.shape) :] == weight.shape
    step.require(
        bool(fits),
        f"{name} has shape {weight.shape} for features of shape {x.shape}",
        "a variable or broadcast argument with the shape of the last axes",
    )


def _repeats(x: Value, weight: Value) -> float:
    """How many elements of a row of ``x`` meet the same element of ``weight``."""
    return x.size / weight.size


_EQUATION = "two operands, and a result that begins with b, the batch axis, such as 'bi,ij->bj'"


@dataclass(frozen=True, repr=False)
class Einsum(Step):
    """``equation`` of two operands, in which ``b`` is the batch: ``"bi,ij->bj"``, or ``"bi,bj->bij"`` row by row."""

    equation: str
    x: Operand
    y: Operand

    def infer(self, types: Types) -> Value:
        sizes = self._sizes(types)
        result = self.equation.partition("->")[2]
        shape = tuple(sizes[letter] for letter in result[1:])
        terms = prod(sizes.values()) / prod(shape)
        return Value(shape, types[self.x].dtype, terms * types[self.x].bound * types[self.y].bound)

    def _sizes(self, types: Types) -> dict[str, int]:
        """Size of each letter but ``b``."""
        operands, _, result = self.equation.partition("->")
        texts = operands.split(",")
        self.require(len(texts) == 2 and result[:1] == "b", f"equation={self.equation!r}", _EQUATION)
        sizes: dict[str, int] = {}
        for text, name in zip(texts, self.reads, strict=True):
            value = types[name]
            letters = text.removeprefix("b")
            shape = f"{value.shape} after the batch axis" if value.batched else f"{value.shape}, without a batch axis,"
            fits = value.batched == text.startswith("b") and len(letters) == len(value.shape)
            self.require(
                fits, f"{name!r} has shape {shape} for {text!r}", "a letter for each axis, b for the batch axis only"
            )
            for letter, size in zip(letters, value.shape, strict=True):
                same = sizes.setdefault(letter, size) == size
                self.require(same, f"{letter!r} is both {sizes[letter]} and {size}", "one size for each letter")
        known = set(result[1:]) <= set(sizes)
        self.require(
            known, f"equation={self.equation!r}", "a result that begins with b and has only letters of the operands"
        )
        return sizes

    def apply(self, values: Mapping[str, Any]) -> Any:
        return tf.einsum(self.equation, values[self.x], values[self.y])

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, y = types[self.x], types[self.y]
        terms = prod(self._sizes(types).values())
        return Edge(self.x, terms / x.size, y.bound), Edge(self.y, terms / y.size, x.bound)


def convolved(lengths: Sequence[int], widths: Sequence[int], stride: int, padding: str) -> list[int]:
    """Return the lengths after a convolution."""
    if padding == "SAME":
        return [-(-length // stride) for length in lengths]
    return [(length - width) // stride + 1 for length, width in zip(lengths, widths, strict=True)]


@dataclass(frozen=True, repr=False)
class _Convolution(Step):
    x: Operand
    k: Operand
    stride: int = 1
    padding: str = "SAME"

    AXES: ClassVar[int]

    @property
    def needs_rows(self) -> bool:
        """Yes: oneDNN gives a convolution of 0 rows the channels of its input, and the next step fails."""
        return True

    def infer(self, types: Types) -> Value:
        x, k = types[self.x], types[self.k]
        axes = self.AXES
        fits = len(x.shape) == axes + 1 and len(k.shape) == axes + 2 and k.shape[axes] == x.shape[axes]
        self.require(
            not k.batched and fits,
            f"features of shape {x.shape} and kernel {k.shape}",
            f"features with {axes + 1} axes, and a kernel with {axes + 2} axes, no batch axis and matching channels",
        )
        self.require(self.padding in ("SAME", "VALID"), f"padding={self.padding!r}", "'SAME' or 'VALID'")
        inside = all(width <= length for length, width in zip(x.shape, k.shape[:axes], strict=False))
        self.require(
            inside and self.stride >= 1,
            f"kernel {k.shape} with stride {self.stride} over features of shape {x.shape}",
            "a kernel that fits into the features, and a stride of 1 or more",
        )
        lengths = convolved(x.shape[:axes], k.shape[:axes], self.stride, self.padding)
        return Value((*lengths, k.shape[-1]), x.dtype, prod(k.shape[:-1]) * x.bound * k.bound)

    # Without edges: libraries choose transforms (Winograd, FFT) whose inner values are no integers.


@dataclass(frozen=True, repr=False)
class Conv1d(_Convolution):
    """A convolution over ``(length, channels)`` with a kernel ``(width, channels, out)``."""

    AXES = 1

    def apply(self, values: Mapping[str, Any]) -> Any:
        return tf.nn.conv1d(values[self.x], values[self.k], self.stride, self.padding)


@dataclass(frozen=True, repr=False)
class Conv2d(_Convolution):
    """A convolution over ``(height, width, channels)`` with a kernel ``(height, width, channels, out)``."""

    AXES = 2

    def apply(self, values: Mapping[str, Any]) -> Any:
        return tf.nn.conv2d(values[self.x], values[self.k], self.stride, self.padding)


@dataclass(frozen=True, repr=False)
class Pool(Step):
    """The maximum or mean of two neighbours each along ``(length, channels)``; an odd one at the end is dropped."""

    x: Operand
    how: str = "max"

    @property
    def needs_rows(self) -> bool:
        """Maxima do: with oneDNN, their gradient on 0 rows aborts the process when it runs in a graph."""
        return self.how == "max"

    def infer(self, types: Types) -> Value:
        x = types[self.x]
        self.require(
            len(x.shape) == 2 and x.shape[0] >= 2,
            f"features of shape {x.shape}",
            "(length, channels) with a length of 2 or more",
        )
        self.require(self.how in ("max", "avg"), f"how={self.how!r}", "'max' or 'avg'")
        return Value((x.shape[0] // 2, x.shape[1]), x.dtype, x.bound)

    def apply(self, values: Mapping[str, Any]) -> Any:
        pool = tf.nn.max_pool1d if self.how == "max" else tf.nn.avg_pool1d
        return pool(values[self.x], 2, 2, "VALID")

    def edges(self, _types: Types) -> tuple[Edge, ...] | None:
        # The gradient of a maximum goes to one element whole; that of a mean in halves.
        return (Edge(self.x, 1, 1),) if self.how == "max" else None
