"""Variables that are updated too often, too rarely, by each shard, or read before or after their update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from harness.judgement.diagnosis.joins import WITHOUT, Join, PerShard, alone, shard_leaves
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.leaves import explains, factor_of, handle_of, variables_text
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of, written
from harness.judgement.diagnosis.writing import applying, writes
from harness.judgement.runs import Result
from harness.judgement.tolerance import epsilon_of

_DENSE = (
    "the optimizer gets dense gradients; the reference's optimizer gets IndexedSlices with the same sums, and applies "
    "rows with the same index one by one"
)
_ALIKE = "make both programs pass dense gradients to the optimizer, or both IndexedSlices"
_ONCE = "average the shards' gradients first, and apply them once"


def repeated(question: Question) -> Iterator[Cause]:
    """The variables, or what is computed from them, are those of another number or order of updates."""
    states = [leaf for leaf in question.wrong if leaf.part == "state"]
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    if states:
        yield from _besides(question, states)
        yield from _by_each_shard(question, states)
        yield from _more_often(question, states)
        yield from _some_more_often(question, states)
        yield from _applied_again(question, states)
        yield from _never(question, states)
        yield from _by_shares(question, states)
    elif outputs and len(outputs) == len(question.wrong) and question.seen_reference.writes:
        yield from _before_or_after(question)


def _besides(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The program writes to variables that the reference only reads; without these writes all results are right."""

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
        yield Cause(
            f"{variables_text(more)} {are} updated, but the reference only reads {them}", place_of(question, more[0])
        )


def _by_each_shard(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The optimizer gets each shard's gradients in turn, or joins them in the wrong way."""
    import tensorflow as tf

    for layout in partitions(question):
        gathered = _gathered(question, layout)
        if not gathered:
            continue
        count = len(layout.sizes)
        place = place_of(question, states[0]) or layout.place
        for factor, how in (
            (1.0, "for each shard"),
            (1 / count, f"with each shard's gradients multiplied by 1/{count}"),
        ):
            in_turn = _applied(question, [(each[0], _scaled(each[1], factor), each[2]) for each in gathered])
            if explains(in_turn, states) and _outputs_follow(question, layout):
                yield Cause(
                    f"the optimizer is applied {count} times, once {how}, instead of once for the batch",
                    place,
                    next_step=_ONCE,
                )
                return
        for join, sentence in (
            (Join("sum"), "the shards' gradients are added up although each is a mean"),
            (
                Join("mean"),
                "the shards' gradients have equal weight although the shards differ in size"
                if len(set(layout.sizes)) > 1
                else "each shard's gradients are clipped or changed in another nonlinear way before they are averaged",
            ),
            *((Join("only", number), f"the update uses shard {number} alone") for number in range(count)),
            *(
                (Join(name, number), f"the part of shard {number} is missing from the update{alone(name)}")
                for name in WITHOUT
                for number in range(count)
            ),
        ):
            joined = _joined(gathered, join, layout.sizes)
            if joined is not None:
                result = _applied(question, [joined])
                if explains(result, states) and _outputs_follow(question, layout):
                    own = _applied_by(question)
                    if len(own) == 1 and _equal(joined[1], own[0][1]):
                        # Then nothing is wrong with the sum or the mean, but with what the optimizer makes of it.
                        if any(isinstance(grad, tf.IndexedSlices) for grad in own[0][1]):
                            yield Cause(_DENSE, place, next_step=_ALIKE)
                        return
                    yield Cause(sentence, place)
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
            return original(optimizer, _scaled(grads, share), variables)

        def write(variable: Any, value: Any, perform: Callable[[Any], Any], share: float = share) -> Any:
            before = variable.read_value()
            done = perform(value)
            if variable.dtype.is_floating:
                value = before + (variable.read_value() - before) * tf.cast(share, variable.dtype)
                tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
            return done

        with applying(apply) if _applied_by(question) else writes(write):
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
                next_step=_ONCE,
            )
            return


def _scaled(grads: Sequence[Any], factor: float) -> list[Any]:
    """Gradients times a factor."""
    import tensorflow as tf

    def scaled(grad: Any) -> Any:
        if isinstance(grad, tf.IndexedSlices):
            return tf.IndexedSlices(scaled(grad.values), grad.indices, grad.dense_shape)
        return grad * tf.cast(factor, grad.dtype)

    return list(grads) if factor == 1 else [None if grad is None else scaled(grad) for grad in grads]


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
    if len(states) < len(question.wrong) or not _applied_by(question):
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

    with applying(apply) if _applied_by(question) else writes(write):
        result = question.run(gradients=False)
    return explains(result, [leaf for leaf in question.wrong if leaf.part == "state"])


#: An optimizer, and the gradients and variables that it is given.
_Applied = tuple[Any, list[Any], Any]


def _applied_by(question: Question, inputs: Mapping[str, Any] | None = None) -> list[_Applied]:
    """What the reference gives its optimizers, for the whole batch or for other inputs. None of it is applied."""
    calls: list[_Applied] = []

    def gather(_: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> None:
        calls.append((optimizer, list(grads), variables))

    with applying(gather):
        return calls if question.run(inputs=inputs, gradients=False) is not None else []


def _gathered(question: Question, layout: Layout) -> list[_Applied]:
    """What the reference would give its optimizer for each shard; empty where it uses none, or more than one step."""
    leaves = question.reference.leaves()
    calls = []
    for number in range(len(layout.sizes)):
        calls += _applied_by(question, question.with_leaves(shard_leaves(leaves, layout, number)))
        if len(calls) != number + 1:
            return []
    return calls


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether gradients are the same but for their rounding errors."""
    import tensorflow as tf

    pairs = [[tf.convert_to_tensor(each).numpy() for each in pair] for pair in zip(one, other, strict=True)]
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.max(np.abs(b), initial=0.0))) for a, b in pairs)


def _joined(gathered: Sequence[_Applied], join: Join, sizes: Sequence[int]) -> _Applied | None:
    import tensorflow as tf

    optimizer, _, variables = gathered[0]
    grads = []
    for parts in zip(*(grads for _, grads, _ in gathered), strict=True):
        value = join.of([tf.convert_to_tensor(part).numpy() for part in parts], sizes)
        if value is None:
            return None
        grads.append(tf.constant(value))
    return optimizer, grads, variables


def _applied(question: Question, calls: Sequence[_Applied]) -> Result | None:
    """The state after the optimizer got these gradients in turn."""

    def run(**_: Any) -> Any:
        for optimizer, grads, variables in calls:
            optimizer.apply(grads, variables)
        return ()

    return question.run(run, gradients=False)


def _outputs_follow(question: Question, layout: Layout) -> bool:
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    shards = PerShard.run(question, layout) if outputs else None
    return not outputs or (shards is not None and all(map(shards.join_that_gives, outputs)))
