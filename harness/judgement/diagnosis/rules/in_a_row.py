"""An output is computed from another output instead of from the input: what belongs side by side runs in sequence."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.leaves import outputs_alone, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule

#: So many addends are left out, and so many outputs fed to the reference, one after the other.
_MOST = 8


def _claims(question: Question) -> Iterator[Cause]:
    wrong = outputs_alone(question)
    outputs = [leaf for leaf in question.leaves if leaf.part == "outputs" and leaf.found is not None]
    if not wrong or not 1 < len(outputs) <= _MOST:
        return
    from_others: dict[str, tuple[str, str]] = {}
    for index, (given, array) in enumerate(zip(question.reference.leaves(), question.input_arrays, strict=True)):
        for source in outputs:
            assert source.found is not None
            if array is None or (array.shape, array.dtype) != (source.found.shape, source.found.dtype):
                continue
            import tensorflow as tf

            leaves = question.reference.leaves()
            leaves[index] = tf.constant(source.found, given.dtype)
            result = question.run(inputs=question.with_leaves(leaves), gradients=False)
            for leaf in wrong:
                if result is not None and leaf is not source and leaf.explained_by(leaf.of(result)):
                    from_others.setdefault(leaf.name, (source.name, question.input_names[index]))
    if len(from_others) == len(wrong):
        source_name, name = from_others[wrong[0].name]
        yield Cause(
            f"{wrong[0].name} is computed from {source_name} instead of from {name}: parts that should run side by "
            "side run in sequence",
            place_of(question, wrong[0]),
            next_step=f"compute each output from {name}",
        )


RULE = Rule("C409", "in-a-row", "an output computed from another one", _claims)
