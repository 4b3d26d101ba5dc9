"""Branches and loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.lazy import tf
from harness.strategies.steps.step import INDEX, Edge, Operand, Step, Types, Value

#: What a branch depends on: the sign of ``w``, whether the batch has rows, the number of axes.
CONDITIONS = ("variable", "rows", "static")


@dataclass(frozen=True, repr=False)
class Branch(Step):
    """``x * w`` or ``x + v``, as ``on`` says (see :data:`CONDITIONS`), never by the values of the batch.

    ``"variable"`` and ``"rows"`` are ``tf.cond``; ``"static"`` is an ``if`` of Python on the number of axes, which
    unlike their sizes is known while any graph is made.
    """

    on: str
    x: Operand
    w: Operand
    v: Operand

    def infer(self, types: Types) -> Value:
        x, w, v = (types[name] for name in self.reads)
        self.require(self.on in CONDITIONS, f"on={self.on!r}", ", ".join(CONDITIONS))
        fits = bool(x.shape) and x.shape[-1:] == w.shape == v.shape and not w.batched and not v.batched
        self.require(
            fits,
            f"w has shape {w.shape} and v {v.shape} for features of shape {x.shape}",
            "variables or broadcast arguments with the shape of the last axis",
        )
        return Value(x.shape, x.dtype, max(x.bound * w.bound, x.bound + v.bound))

    def apply(self, values: Mapping[str, Any]) -> Any:
        x, w, v = (values[name] for name in self.reads)
        if self.on == "static":
            return x * w if len(x.shape) == 2 else x + v
        chosen = tf.shape(x)[0] > 0 if self.on == "rows" else tf.convert_to_tensor(w)[0] > 0
        return tf.cond(chosen, lambda: x * w, lambda: x + v)

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        x, w = types[self.x], types[self.w]
        repeats = x.size / w.size
        return Edge(self.x, 1, max(w.bound, 1)), Edge(self.w, repeats, x.bound), Edge(self.v, repeats, 1)


#: A Python loop, ``tf.while_loop``, and ``tf.while_loop`` until no row goes on.
LOOPS = ("python", "while", "rows")
_TWO_MATRICES = "w (i, j), v (j, i), where i is the size of the last axis, from variables or broadcast arguments"


@dataclass(frozen=True, repr=False)
class Loop(Step):
    """``trips`` times ``h = h + w`` or, with a ``v``, ``h = h/2 + tanh(h·w)·v``; the first ``h`` is ``x``.

    With ``how="rows"`` each row takes as many trips as the largest of its ``ids``, at most ``trips``.
    """

    how: str
    x: Operand
    w: Operand
    trips: int
    v: Operand | None = None
    ids: Operand | None = None

    def infer(self, types: Types) -> Value:
        x, w = types[self.x], types[self.w]
        self.require(self.how in LOOPS, f"how={self.how!r}", ", ".join(LOOPS))
        self.require(1 <= self.trips <= 4, f"trips={self.trips}", "1 to 4")
        self.require(
            (self.how == "rows") == (self.ids is not None),
            f"ids={self.ids!r}",
            "an index with how='rows', otherwise None",
        )
        if self.ids is not None:
            ids = types[self.ids]
            self.require(
                ids.batched and ids.below is not None,
                f"ids={self.ids!r} is not an index with the batch axis",
                INDEX,
            )
        last = x.shape[-1:]
        if self.v is None:
            self.require(
                bool(last) and w.shape == last and not w.batched,
                f"w has shape {w.shape} for features of shape {x.shape}",
                "a variable or broadcast argument with the shape of the last axis",
            )
            return Value(x.shape, x.dtype, x.bound + self.trips * w.bound)
        v = types[self.v]
        fits = (
            len(w.shape) == 2 and w.shape[:1] == last and v.shape == w.shape[::-1] and not w.batched and not v.batched
        )
        self.require(fits, f"w has shape {w.shape} and v {v.shape} for features of shape {x.shape}", _TWO_MATRICES)
        return Value(x.shape, x.dtype, max(x.bound, 2 * w.shape[1] * v.bound))

    def apply(self, values: Mapping[str, Any]) -> Any:
        x, w = values[self.x], values[self.w]

        def body(h: Any) -> Any:
            return h + w if self.v is None else h * 0.5 + tf.matmul(tf.tanh(tf.matmul(h, w)), values[self.v])

        if self.how == "python":
            for _ in range(self.trips):
                x = body(x)
            return x
        if self.ids is None:
            return tf.while_loop(lambda i, _: i < self.trips, lambda i, h: (i + 1, body(h)), (tf.constant(0), x))[1]
        ids = values[self.ids]
        wanted = tf.minimum(tf.reduce_max(ids, axis=list(range(1, len(ids.shape)))), self.trips)

        def one_more(i: Any, h: Any) -> tuple[Any, Any]:
            goes_on = tf.reshape(i < wanted, tf.concat([tf.shape(h)[:1], [1] * (len(h.shape) - 1)], axis=0))
            return i + 1, tf.where(goes_on, body(h), h)

        first = tf.zeros([], ids.dtype)
        return tf.while_loop(lambda i, _: tf.reduce_any(i < wanted), one_more, (first, x))[1]

    def edges(self, types: Types) -> tuple[Edge, ...] | None:
        if self.v is not None:
            return None
        x, w = types[self.x], types[self.w]
        return Edge(self.x, 1, 1), Edge(self.w, self.trips * x.size / w.size, 1)
