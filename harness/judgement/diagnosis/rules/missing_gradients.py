"""Some gradients are None: the variable is not read, or its gradient is stopped on the way."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.leaves import handle_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import listed


def _claims(question: Question) -> Iterator[Cause]:
    lost = [leaf for leaf in question.wrong if leaf.part == "gradients" and leaf.found is None]
    if not lost or any(leaf.part != "gradients" for leaf in question.wrong):
        return
    names = [leaf.name.removeprefix("gradient for ") for leaf in lost]
    count = len(question.parallel.source_names()) - len(question.parallel.variables)
    unread = [
        leaf.name.removeprefix("gradient for ")
        for leaf in lost
        if leaf.index >= count and handle_of(question.parallel.variables[leaf.index - count]) not in question.seen.read
    ]
    seen, reference = question.seen, question.seen_reference
    stops = len(seen.stopped) > len(reference.stopped)
    if unread and len(unread) == len(lost) and not stops:
        yield Cause(
            f"{listed(unread)} {'gets' if len(unread) == 1 else 'get'} no gradient: the program never reads "
            f"{'it' if len(unread) == 1 else 'them'}, only a copy that was made outside of the tape",
            next_step="read the variable inside the program, in each shard's scope",
        )
        return
    what = f"the gradient for {names[0]} is" if len(names) == 1 else f"the gradients for {listed(names)} are"
    if stops:
        yield Cause(f"{what} stopped by tf.stop_gradient", seen.stopped[-1])
    elif len(seen.host_calls) > len(reference.host_calls):
        yield Cause(f"{what} lost in a Python callback, which has no gradient", seen.host_calls[-1])
    else:
        yield Cause(
            f"{what} lost: the results are computed outside of the tape, or through something that has no gradient, "
            "such as .numpy(), a cast to an integer or a variable's assign()"
        )


RULE = Rule("C301", "missing-gradients", "missing gradients", _claims)
