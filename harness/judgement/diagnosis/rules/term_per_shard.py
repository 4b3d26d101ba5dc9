"""A term of variables alone, such as a regulariser, counts once per shard, 1/N times, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from harness.judgement.diagnosis.leaves import explains, factor_of, place_of
from harness.judgement.diagnosis.observed import draws_numbers
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import applying

SUMS = frozenset({"Add", "AddV2", "AddN"})
ONCE = "add this term once, after the shards' results are joined"


def _claims(question: Question) -> Iterator[Cause]:
    count = len(question.devices)
    for term, *slopes in _terms_of(question):
        for factor, how, remedy in (
            (*once_per_shard(count), f"{ONCE}, or in each shard divide the term by the number of shards"),
            (1.0 / count, f"counted 1/{count} times instead of once", f"{ONCE}, not divided by the number of shards"),
            (0.0, "missing", ONCE),
        ):
            more = factor - 1.0
            rest = [leaf for leaf in question.wrong if not _is_off_by(leaf, more, term, slopes)]
            if not rest or _follow(question, rest, more, slopes):
                yield Cause(
                    f"a term that depends on variables alone, such as a regulariser, is {how}",
                    place_of(question, question.wrong[0]),
                    next_step=remedy,
                )
                return


def _follow(question: Question, leaves: Sequence[Leaf], more: float, slopes: Sequence[Array]) -> bool:
    """Whether these variables are those of an optimizer whose gradients are off by ``more`` times the slopes."""

    def off(grad: Any) -> Any:
        slope = next((slope for slope in slopes if slope.shape == getattr(grad, "shape", None) and np.any(slope)), None)
        return grad if slope is None else grad + more * slope

    def apply(original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> Any:
        return original(optimizer, [off(grad) for grad in grads], variables)

    if any(leaf.part != "state" for leaf in leaves):
        return False
    with applying(apply):
        return explains(question.run(gradients=False), leaves)


def _is_off_by(leaf: Leaf, more: float, term: Array, slopes: Sequence[Array]) -> bool:
    """Whether a result is off by ``more`` times the term or, for a gradient, times its slope (times a small weight)."""
    expected = leaf.expected
    if expected is None:
        return False
    # The gradients that verify takes are of a projection, whose weights are these.
    weights: tuple[float, ...] = (-2.0, -1.0, 1.0, 2.0) if leaf.part == "gradients" else (1.0,)
    changes = [term] if expected.ndim == 0 else []
    changes += [slope for slope in slopes if slope.shape == expected.shape]
    if leaf.part == "state" and leaf.found is not None and leaf.found.shape == expected.shape and expected.size > 1:
        # A step of gradient descent: some rate times the slope.
        error = leaf.found.astype(np.float64) - expected
        rates = [factor_of(error, change.astype(np.float64)) for change in changes]
        weights = tuple(rate / more for rate in rates if rate is not None)
    return any(
        leaf.explained_by((expected + more * weight * change).astype(expected.dtype))
        for change in changes
        for weight in weights
    )


def _terms_of(question: Question) -> list[list[Array]]:
    terms = Terms()

    def program(**inputs: Any) -> Any:
        question.reference.fn(**inputs)
        return terms.found

    raw = question.in_graph(program, terms.on_op)
    return [] if raw is None else [[np.asarray(tensor) for tensor in each] for each in raw[0]]


class Terms:
    """While a graph is built: scalars that are added to others, and depend on variables alone, with their gradients."""

    def __init__(self) -> None:
        #: Tensors that depend on variables alone, and those that were read from variables.
        self.free: set[int] = set()
        self.reads: list[Any] = []
        #: Of each term its value and its gradients for what was read.
        self.found: list[list[Any]] = []

    def on_op(self, kind: str, inputs: Any, _: Any, outputs: Any, graph: Any) -> None:
        """Note an op of the graph that is built."""
        if graph is None or not outputs:
            return
        if kind == "ReadVariableOp":
            self.reads.append(outputs[0])
        if kind == "ReadVariableOp" or (
            any(tensor._id in self.free for tensor in inputs)
            and all(tensor._id in self.free or tensor.op.type == "Const" for tensor in inputs)
            and not draws_numbers(kind)
        ):
            self.free |= {tensor._id for tensor in outputs}
            return
        own = [tensor for tensor in inputs if tensor._id in self.free]
        if kind in SUMS and own and outputs[0].shape.rank == 0 and outputs[0].dtype.is_floating:
            import tensorflow as tf

            term = tf.add_n(own)
            slopes = tf.gradients(term, self.reads, unconnected_gradients="zero")
            self.found.append([term, *map(tf.convert_to_tensor, slopes)])


def once_per_shard(count: int) -> tuple[float, str]:
    """By which factor a term is off that each of so many shards adds, and the words for it."""
    return float(count), f"counted {count} times, once for each shard, instead of once"


RULE = Rule(
    "C402", "term-per-shard", "a penalty on variables that counts once per shard, or is missing", _claims, by="results"
)
