"""A penalty on variables, such as a regulariser or a weight decay, counts once per shard, 1/N times, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from harness.judgement.diagnosis.leaves import explains, factor_of, place_of
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.terms import ONCE, Terms, once_per_shard
from harness.judgement.diagnosis.writing import applying


def _claims(question: Question) -> Iterator[Cause]:
    if question.wrong_states:
        yield from _of_decay(question)
    yield from _of_terms(question)


def _of_decay(question: Question) -> Iterator[Cause]:
    """What an optimizer takes from the weights itself."""
    count = len(question.devices)
    decays: set[float] = set()
    for factor, in_gradient, how in (
        (0.0, True, "is added to the gradients (L2) instead of being taken from the weights"),
        (0.0, False, "is missing"),
        (float(count), False, f"counts {count} times, once per shard"),
    ):

        def apply(
            original: Callable[..., Any],
            optimizer: Any,
            grads: Any,
            variables: Any = None,
            factor: float = factor,
            in_gradient: bool = in_gradient,
        ) -> Any:
            decay = getattr(optimizer, "weight_decay", None)
            if not isinstance(decay, float) or not decay or variables is None:
                return original(optimizer, grads, variables)
            decays.add(decay)
            if in_gradient:
                pairs = zip(grads, variables, strict=True)
                grads = [grad if grad is None else grad + decay * variable for grad, variable in pairs]
            optimizer.weight_decay = decay * factor or None
            try:
                return original(optimizer, grads, variables)
            finally:
                optimizer.weight_decay = decay

        with applying(apply):
            result = question.run(gradients=False)
        if not decays or result is None:
            return
        if explains(result, question.wrong):
            sentence = f"the optimizer's weight decay of {min(decays):g} {how}"
            yield Cause(sentence, place_of(question, question.wrong_states[0]))
            return


def _of_terms(question: Question) -> Iterator[Cause]:
    """A scalar that the reference adds to others."""
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


RULE = Rule(
    "C402", "penalty-counts", "a penalty on variables that counts once per shard, or is missing", _claims, by="results"
)
