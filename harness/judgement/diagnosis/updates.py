"""Variables that are updated too often, too rarely, by each shard, or read before or after their update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.applied import AVERAGED, applied_by, by_each_shard, scaled
from harness.judgement.diagnosis.joins import PerShard
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.leaves import explains, factor_of, handle_of, is_real, variables_text
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of, written
from harness.judgement.diagnosis.writing import applying, writes
from harness.judgement.tolerance import epsilon_of

_TIMES = {1: "once", 2: "twice"}


def repeated(question: Question) -> Iterator[Cause]:
    """The variables, or what is computed from them, are those of another number or order of updates."""
    states = [leaf for leaf in question.wrong if leaf.part == "state"]
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    if states:
        yield from _besides(question, states)
        # What only applies other gradients leaves other variables alone, too.
        yield from _never(question, states)
        yield from by_each_shard(question, states)
        yield from _more_often(question, states)
        yield from _some_more_often(question, states)
        yield from _applied_again(question, states)
        yield from _one_missing(question, states)
        yield from _decayed_otherwise(question, states)
        yield from _by_shares(question, states)
    elif outputs and len(outputs) == len(question.wrong) and question.seen_reference.writes:
        yield from _before_or_after(question)


def _besides(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The program writes to variables to which the reference does not; without these writes all results are right."""

    def handle(leaf: Leaf) -> int:
        return handle_of(question.watched[leaf.index])

    written_to, usual = question.seen.writes, question.seen_reference.writes
    more = [leaf for leaf in states if written_to[handle(leaf)] and not usual[handle(leaf)]]
    if not more:
        return
    known = {id(question.watched[leaf.index]) for leaf in more}

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        return variable if id(variable) in known else perform(value)

    def program(**inputs: Any) -> Any:
        with writes(write):
            return question.parallel.fn(**inputs)

    result = question.run(program) if len(more) < len(question.wrong) else None
    if len(more) == len(question.wrong) or (result is not None and question.right_in(result)):
        are, them = ("is", "it") if len(more) == 1 else ("are", "them")
        sentence = f"{variables_text(more)} {are} updated, but the reference does not update {them}"
        yield Cause(sentence, place_of(question, more[0]))


def _decayed_otherwise(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The weight decay of an optimizer is a part of its gradients, is missing, or counts once per shard."""
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
            yield Cause(sentence, place_of(question, states[0]))
            return


def _by_shares(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The step runs for each shard in turn, from where the last one left the variables, and each counts 1/N."""
    import tensorflow as tf

    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    floating = any(leaf.found is not None and epsilon_of(leaf.found.dtype) for leaf in states)
    for layout in partitions(question) if floating else ():
        share = 1 / len(layout.sizes)

        def apply(
            original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None, share: float = share
        ) -> Any:
            return original(optimizer, scaled(grads, share), variables)

        def write(variable: Any, value: Any, perform: Callable[[Any], Any], share: float = share) -> Any:
            before = variable.read_value()
            done = perform(value)
            if variable.dtype.is_floating:
                value = before + (variable.read_value() - before) * tf.cast(share, variable.dtype)
                tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
            return done

        with applying(apply) if applied_by(question) else writes(write):
            running = PerShard._run(question, layout, False)
        if (
            running is not None
            and explains(running.results[-1], states)
            and all(running.join_that_gives(leaf) for leaf in outputs)
        ):
            yield Cause(
                f"the training step ran once for each of the {len(layout.sizes)} shards, one after the other and with "
                f"1/{len(layout.sizes)} of the gradient, instead of once for the batch",
                place_of(question, states[0]) or layout.place,
                next_step=AVERAGED,
            )
            return


def _more_often(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The whole step runs twice, or once per device, on the whole batch."""
    if len(states) < len(question.wrong):
        return
    question.snapshot.restore()
    try:
        for times in range(2, max(3, len(question.devices) + 1)):
            if times == 2 and question.run(gradients=False, fresh=False) is None:
                return
            result = question.run(gradients=False, fresh=False)
            if result is None:
                return
            if explains(result, question.wrong):
                are, often = "is" if len(states) == 1 else "are", "twice" if times == 2 else f"{times} times"
                sentence = f"{variables_text(states)} {are} updated {often} instead of once"
                yield Cause(sentence, place_of(question, states[0]))
                return
    finally:
        question.snapshot.restore()


def _some_more_often(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The same update of some variables is made several times, and what else differs is computed from them."""
    often: dict[int, int] = {}
    for leaf in states if len(question.wrong) > 1 else ():
        handle = handle_of(question.watched[leaf.index])
        usual, seen = question.seen_reference.writes[handle], question.seen.writes[handle]
        if usual and seen > usual and not seen % usual:
            often[leaf.index] = seen // usual
    if not often:
        return
    times = {id(question.watched[index]): number for index, number in often.items()}

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        return [perform(value) for _ in range(times.get(id(variable), 1))][-1]

    def program(**inputs: Any) -> Any:
        with writes(write):
            return question.reference.fn(**inputs)

    if explains(question.run(program), question.wrong):
        again = [leaf for leaf in states if leaf.index in often]
        usual = question.seen_reference.writes[handle_of(question.watched[again[0].index])]
        are, them = ("is", "this") if len(again) == 1 else ("are", "these")
        yield Cause(
            f"{variables_text(again)} {are} updated {often[again[0].index] * usual} times instead of "
            f"{usual if usual > 1 else 'once'}; the other differences follow from {them}",
            place_of(question, again[0]),
        )


def _applied_again(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The optimizer gets the right gradients, but several times."""
    if len(states) < len(question.wrong) or not applied_by(question):
        return
    for times in range(2, max(3, len(question.devices) + 1)):

        def again(original: Callable[..., Any], optimizer: Any, *given: Any, often: int = times) -> Any:
            return [original(optimizer, *given) for _ in range(often)][-1]

        with applying(again):
            result = question.run(gradients=False)
        if explains(result, states):
            sentence = f"the optimizer applies the same gradients {times} times instead of once"
            yield Cause(sentence, place_of(question, states[0]))
            return


def _never(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    if len(states) == len(question.wrong) and all(leaf.explained_by(leaf.start) for leaf in states):
        one = len(states) == 1
        never = f"the program never writes to {'it' if one else 'them'}"
        if written(question, states[0]):
            never = "the value stays the same" if one else "the values stay the same"
        sentence = f"{variables_text(states)} {'is' if one else 'are'} not updated: {never}"
        yield Cause(sentence, place_of(question, states[0]))


def _one_missing(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """One of several writes to a variable is not made."""
    for leaf in states:
        variable = question.watched[leaf.index]
        handle = handle_of(variable)
        made, wanted = question.seen.writes[handle], question.seen_reference.writes[handle]
        for number in range(wanted if 0 < made < wanted else 0):
            without = _Without(variable, number)
            with writes(without.write):
                result = question.run(gradients=False)
            if explains(result, question.wrong):
                often, instead = (_TIMES.get(count, f"{count} times") for count in (made, wanted))
                yield Cause(
                    f"{variables_text([leaf])} is updated {often} instead of {instead}: the reference's update "
                    f"{number + 1} of {wanted}{f' ({without.place})' if without.place else ''} is missing",
                    place_of(question, leaf),
                )
                return


class _Without:
    """Leaves out one write to a variable."""

    def __init__(self, variable: Any, number: int) -> None:
        self.variable, self.left, self.place = variable, number, ""

    def write(self, variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        if variable is self.variable:
            self.left -= 1
            if self.left == -1:
                self.place = place_of_call() or ""
                return variable
        return perform(value)


def _before_or_after(question: Question) -> Iterator[Cause]:
    """The results are computed from the variables before their update, or after it."""
    first = question.wrong[0]
    sentence, place = f"{first.name} is computed with the variables' values from", place_of(question, first)
    with writes(lambda variable, *_: variable):
        stale = question.run(gradients=False)
    if explains(stale, question.wrong):
        yield Cause(f"{sentence} before their update", place)
        return
    question.snapshot.restore()
    try:
        question.run(gradients=False, fresh=False)
        late = question.run(gradients=False, fresh=False)
    finally:
        question.snapshot.restore()
    if explains(late, question.wrong):
        yield Cause(f"{sentence} after their update", place)


def follow(question: Question) -> bool:
    """Whether wrong variables follow from wrong gradients among the results: the update is replayed with those."""
    pairs = [
        (leaf.expected, leaf.found)
        for leaf in question.wrong
        if leaf.part != "state"
        and leaf.expected is not None
        and leaf.found is not None
        and leaf.found.shape == leaf.expected.shape
    ]

    def replaced(value: Any) -> Any:
        import tensorflow as tf

        if not hasattr(value, "numpy") or isinstance(value, tf.IndexedSlices):
            return value
        array = np.asarray(value.numpy())
        if not is_real(array):
            return value
        have = array.astype(np.float64)
        for expected, own in pairs:
            factor = factor_of(have, expected.astype(np.float64)) if expected.shape == array.shape else None
            if factor is not None and np.allclose(
                array, factor * expected, rtol=1e-4, atol=1e-6 * float(np.max(np.abs(array)) or 1.0)
            ):
                return tf.constant((factor * own).astype(array.dtype))
        return value

    def apply(original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> Any:
        return original(optimizer, [replaced(grad) for grad in grads], variables)

    def write(_: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        return perform(replaced(value))

    with applying(apply) if applied_by(question) else writes(write):
        result = question.run(gradients=False)
    return explains(result, [leaf for leaf in question.wrong if leaf.part == "state"])
