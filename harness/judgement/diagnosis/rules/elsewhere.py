"""The values are the reference's, elsewhere: those of another output or variable, or elements in another order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from harness.judgement.diagnosis.leaves import changes_of, explained_by_change, explains, place_of, variables_text
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import searched
from harness.judgement.diagnosis.wording import listed
from harness.judgement.fields import in_fields
from harness.lazy import tf


def _claims(question: Question) -> Iterator[Cause]:
    if not (wrong := question.wrong):
        return
    place = place_of(question, wrong[0])
    partner = _partners(wrong)
    updates = [_update_of(question, leaf) for leaf in wrong] if len(question.wrong_states) == len(wrong) else [None]
    orders = (_rearrangement(question, leaf) for leaf in wrong)
    if len(partner) > 1 and (len(partner) == len(wrong) or _gradients_follow(question, partner)):
        names = sorted(partner)
        sentence = f"{listed(names)} are in the wrong order: {names[0]} has the value of {partner[names[0]]}"
        yield Cause(sentence, place, at_join=True)
    elif updates[0] is not None and all(updates):
        yield Cause(
            f"{variables_text(wrong[:1])} gets the update of {variables_text([updates[0]])}: the gradients of another "
            "member, or another layer, are applied to it",
            place,
            next_step="pair each variable with its own gradient",
        )
    elif (first := next(orders)) is not None and all(orders):
        yield Cause(f"{wrong[0].name} {first}", place)


def _partners(wrong: Sequence[Leaf]) -> dict[str, str]:
    """Which output has the value of which other one, or which variable."""
    known = [leaf for leaf in wrong if leaf.found is not None and leaf.expected is not None]
    if any(leaf.part == "outputs" for leaf in known):
        # Gradients of swapped outputs may be swapped too.
        known = [leaf for leaf in known if leaf.part != "gradients"]
    return {
        leaf.name: other.name
        for leaf in known
        for other in known
        if other is not leaf and other.part == leaf.part and leaf.explained_by(other.expected)
    }


def _update_of(question: Question, leaf: Leaf) -> Leaf | None:
    """The variable that the reference changes as this one was changed."""
    if leaf.part != "state" or leaf.start is None or changes_of(leaf) is None:
        return None
    others = [each for each in question.leaves if each is not leaf and each.start is not None]
    for other in others:
        start, expected = other.start, other.expected
        if start is None or expected is None or start.shape != leaf.start.shape or np.array_equal(expected, start):
            continue
        if explained_by_change(leaf, expected.astype(np.float64) - start):
            return other
    return None


def _gradients_follow(question: Question, partner: Mapping[str, str]) -> bool:
    """Whether all that differs besides these outputs are the gradients that the reference has with them swapped."""
    rest = [leaf for leaf in question.wrong if leaf.name not in partner]
    number = {leaf.name: leaf.index for leaf in question.leaves if leaf.part == "outputs"}
    if any(leaf.part != "gradients" for leaf in rest) or not set(partner) <= set(number):
        return False

    def exchanged(**inputs: Any) -> Any:
        outputs = in_fields(question.reference.fn(**inputs))
        flat = tf.nest.flatten(outputs)
        other = {number[name]: number[theirs] for name, theirs in partner.items()}
        return tf.nest.pack_sequence_as(outputs, [flat[other.get(at, at)] for at in range(len(flat))])

    return explains(question.run(exchanged), rest)


def _rearrangement(question: Question, leaf: Leaf) -> str | None:
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or leaf.part != "outputs" or found.size != expected.size:
        return None
    for one in range(expected.ndim):
        for other in range(one + 1, expected.ndim):
            if leaf.explained_by(np.swapaxes(expected, one, other)):
                stacks = (step for step in searched(question).steps if step.kind == "Pack")
                if any(step.result is not None and leaf.explained_by(step.result) for step in stacks):
                    return f"is transposed: the results of the shards are stacked along axis {other} instead of {one}"
                return f"is transposed: its axes {one} and {other} are exchanged"
    count = len(question.devices)
    for parts in sorted({count, *(size for size in found.shape if size > 1), *range(2, 9)}, key=lambda n: n != count):
        for axis in range(expected.ndim):
            if expected.shape[axis] % parts:
                continue
            pieces = np.split(expected, parts, axis=axis)
            for join in range(expected.ndim):
                if join != axis and leaf.explained_by(np.concatenate(pieces, axis=join)):
                    return f"is joined along axis {join}, but it was split along axis {axis}"
            for join in range(expected.ndim + 1):
                if leaf.explained_by(np.stack(pieces, axis=join)):
                    return f"is stacked along a new axis {join}; the shards' rows have to be concatenated"
    if found.shape != expected.shape and leaf.explained_by(expected.reshape(found.shape)):
        return (
            f"has the shape {list(found.shape)} instead of {list(expected.shape)}, with the elements in the same order"
        )
    return None


RULE = Rule("C404", "elsewhere", "outputs or variables swapped, or elements in another order", _claims, by="results")
