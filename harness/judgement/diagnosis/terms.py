"""A term without rows, such as a regulariser, that is counted once per shard; and shards of a lower precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from harness.judgement.diagnosis.leaves import explains, factor_of, handle_of
from harness.judgement.diagnosis.observed import draws_numbers
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of
from harness.judgement.diagnosis.wording import factor_text
from harness.judgement.diagnosis.writing import applying
from harness.judgement.runs import Result
from harness.judgement.state import named_variables
from harness.judgement.tolerance import epsilon_of, epsilon_of_name
from harness.judgement.values import wide

_SUMS = frozenset({"Add", "AddV2", "AddN"})
_ADDENDS = _SUMS | {"BiasAdd"}
#: So many sums are tried.
_MOST_SUMS = 8
_ONCE = "add this term once, after the shards' results are joined"


class _Terms:
    """While a graph is built: scalars that are added to others, and depend on variables alone, with their gradients."""

    def __init__(self) -> None:
        #: Tensors that depend on variables alone, and those that were read from variables.
        self.free: set[int] = set()
        self.reads: list[Any] = []
        #: Of each term its value and its gradients for what was read.
        self.found: list[list[Any]] = []

    def on_op(self, kind: str, inputs: Any, _: Any, outputs: Any, graph: Any) -> None:
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
        if kind in _SUMS and own and outputs[0].shape.rank == 0 and outputs[0].dtype.is_floating:
            import tensorflow as tf

            term = tf.add_n(own)
            slopes = tf.gradients(term, self.reads, unconnected_gradients="zero")
            self.found.append([term, *map(tf.convert_to_tensor, slopes)])


def once_per_shard(count: int) -> tuple[float, str]:
    """By which factor a term is off that each of so many shards adds, and the words for it."""
    return float(count), f"counted {count} times, once for each shard, instead of once"


def counted_per_shard(question: Question) -> Iterator[Cause]:
    """What differs is off by a multiple of such a term, and its gradients by the same multiple of the term's."""
    count = len(question.devices)
    for term, *slopes in _terms_of(question):
        for factor, how, remedy in (
            (*once_per_shard(count), f"{_ONCE}, or in each shard divide the term by the number of shards"),
            (1.0 / count, f"counted 1/{count} times instead of once", f"{_ONCE}, not divided by the number of shards"),
            (0.0, "missing", _ONCE),
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


def added_in_each(question: Question) -> Iterator[Cause]:
    """The outputs are the reference's with one addend, which depends on variables alone, counted once per shard."""
    count = len(question.devices)
    outputs, gradients = ([leaf for leaf in question.wrong if leaf.part == part] for part in ("outputs", "gradients"))
    if not outputs or len(outputs) + len(gradients) < len(question.wrong):
        return
    for number in range(_MOST_SUMS):
        for factor, how in (once_per_shard(count), (0.0, "left out")):
            addends = _Addends(number, factor)
            result = question.result_in_graph(question.reference.fn, addends.on_op, gradients=bool(gradients))
            if result is None or addends.seen <= number:
                return
            if explains(result, outputs) and all(_is_followed(leaf, result, factor) for leaf in gradients):
                yield Cause(
                    f"an addend that depends on variables alone, such as a bias, is {how}",
                    place_of(question, question.wrong[0]),
                    next_step=_ONCE,
                )
                return


def _is_followed(leaf: Leaf, result: Result, factor: float) -> bool:
    """Whether a gradient is that of the replaced outputs; that for the addend itself has its factor too.

    A tape does not see that a result was replaced, and gives the addend's gradient for a factor of 1.
    """
    array = leaf.of(result)
    if array is None:
        return not factor or leaf.found is None
    return any(leaf.explained_by((array * times).astype(array.dtype)) for times in (1.0, factor))


class _Addends(_Terms):
    """While a graph is built: one sum of a tensor that depends on variables alone, which then counts several times."""

    def __init__(self, number: int, factor: float) -> None:
        super().__init__()
        self.number, self.factor = number, factor
        self.seen = 0

    def on_op(self, kind: str, inputs: Any, attributes: Any, outputs: Any, graph: Any) -> Any:
        super().on_op(kind, inputs, attributes, outputs, graph)
        if graph is None or not outputs or outputs[0]._id in self.free or outputs[0].shape.rank == 0:
            return None
        own = [tensor for tensor in inputs if tensor._id in self.free]
        if kind not in _ADDENDS or not own or not outputs[0].dtype.is_floating:
            return None
        self.seen += 1
        return [outputs[0] + sum(own[1:], own[0]) * (self.factor - 1.0)] if self.seen == self.number + 1 else None


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


def unused(question: Question) -> Iterator[Cause]:
    """The results are the reference's with a variable that the program never reads set to 0, or to 1."""
    read = question.seen_reference.read - question.seen.read
    for variable, name in named_variables(question.reference.variables, question.snapshot.variables):
        if handle_of(variable) not in read:
            continue
        for value in (0, 1):
            rest = [leaf for leaf in question.wrong if leaf.part == "outputs"]
            if explains(question.run(_with(variable, value, question.reference.fn), gradients=False), rest):
                sentence = f"{rest[0].name} has the value that it would have if the variable were {value}"
                yield Cause(f"{name} is never read: {sentence}", place_of(question, rest[0]))
                return


def _with(variable: Any, value: int, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` where all elements of a variable are ``value``."""

    def program(**inputs: Any) -> Any:
        variable.assign(np.full(variable.shape, value, variable.dtype.as_numpy_dtype))
        return fn(**inputs)

    return program


def _terms_of(question: Question) -> list[list[Array]]:
    terms = _Terms()

    def program(**inputs: Any) -> Any:
        question.reference.fn(**inputs)
        return terms.found

    raw = question.in_graph(program, terms.on_op)
    return [] if raw is None else [[np.asarray(tensor) for tensor in each] for each in raw[0]]


def lower_precision(question: Question) -> Iterator[Cause]:
    """The errors are those of a coarser dtype that the program casts to, and the reference does not."""
    for (before, after), place in question.seen.coarser.items():
        if (before, after) in question.seen_reference.coarser:
            continue
        shares = [_of_rounding(leaf, epsilon_of_name(after)) for leaf in question.wrong]
        known = [share for share in shares if share is not None]
        if known and len(known) == len(shares):
            largest = max(known)
            yield Cause(
                f"part of the program computes in {after} instead of {before}: the errors, up to "
                f"{factor_text(largest)} times the largest element, are rounding errors of {after}",
                place,
            )
            return


def _of_rounding(leaf: Leaf, coarse: float) -> float | None:
    """The error as a share of the largest element, where rounding to ``coarse`` explains it."""
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or found.shape != expected.shape or not epsilon_of(found.dtype):
        return None
    want, fine = wide(expected), epsilon_of(found.dtype)
    error = np.abs(wide(found) - want)
    if not np.all(np.isfinite(error)) or np.any(error > leaf.sensitivity().bound(want, fine) * (coarse / fine)):
        return None
    scale = float(np.max(np.abs(want), initial=0.0))
    return float(np.max(error)) / scale if scale else None
