"""Two outputs, or two variables, have each other's values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.judgement.diagnosis.leaves import explains, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import listed
from harness.judgement.fields import in_fields


def _claims(question: Question) -> Iterator[Cause]:
    by_part = [leaf for leaf in question.wrong if leaf.found is not None and leaf.expected is not None]
    if any(leaf.part == "outputs" for leaf in by_part):
        # Gradients of swapped outputs may be swapped too.
        by_part = [leaf for leaf in by_part if leaf.part != "gradients"]
    partner: dict[str, str] = {}
    for leaf in by_part:
        for other in by_part:
            if other is not leaf and other.part == leaf.part and leaf.explained_by(other.expected):
                partner[leaf.name] = other.name
    if len(partner) > 1 and (len(partner) == len(question.wrong) or _gradients_follow(question, partner)):
        names = sorted(partner)
        yield Cause(
            f"{listed(names)} are in the wrong order: {names[0]} has the value of {partner[names[0]]}",
            place_of(question, question.wrong[0]),
            at_join=True,
        )


def _gradients_follow(question: Question, partner: dict[str, str]) -> bool:
    """Whether all that differs besides these outputs are the gradients that the reference has with them swapped."""
    import tensorflow as tf

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


RULE = Rule("C404", "outputs-swapped", "outputs swapped", _claims)
