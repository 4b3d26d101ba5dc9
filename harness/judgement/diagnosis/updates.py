"""Variables that are updated too often, too rarely, by each shard, or read before or after their update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from harness.judgement.diagnosis.joins import WITHOUT, Join, PerShard, alone, shard_leaves
from harness.judgement.diagnosis.layout import Layout, partitions
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.scales import place_of
from harness.judgement.diagnosis.wording import listed
from harness.judgement.diagnosis.writing import applying, writes
from harness.judgement.runs import Result

_DENSE = (
    "the optimizer gets dense gradients; the reference's gets IndexedSlices with the same sums, and handles their rows "
    "one by one although some have the same index"
)
_ONCE = "average the shards' gradients first, and apply them once"


def repeated(question: Question) -> Iterator[Cause]:
    """The variables, or what is computed from them, are those of another number or order of updates."""
    states = [leaf for leaf in question.wrong if leaf.part == "state"]
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    if states:
        yield from _by_each_shard(question, states)
        yield from _more_often(question, states)
        yield from _some_more_often(question, states)
        yield from _applied_again(question, states)
        yield from _never(question, states)
        yield from _by_shares(question, states)
    elif outputs and len(outputs) == len(question.wrong) and question.seen_reference.writes:
        yield from _before_or_after(question)


def _by_each_shard(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The optimizer gets each shard's gradients in turn, or joins them in the wrong way."""
    for layout in partitions(question):
        gathered = _gathered(question, layout)
        if not gathered:
            continue
        count = len(layout.sizes)
        place = place_of(question, states[0]) or layout.place
        wrong = tuple(question.wrong)
        for factor, what in ((1.0, ""), (1 / count, f", to 1/{count} of each shard's gradients")):
            in_turn = _applied(question, [(each[0], _scaled(each[1], factor), each[2]) for each in gathered])
            if _state_explained(states, in_turn) and _outputs_follow(question, layout, in_turn):
                yield Cause(
                    f"the optimizer is applied {count} times, once for each shard{what}, instead of once for the batch",
                    place,
                    wrong,
                    _ONCE,
                )
                return
        for join, sentence in (
            ("sum", "the shards' gradients are added up although each is a mean"),
            (
                "mean",
                "the shards' gradients have equal weight although the shards differ in size"
                if len(set(layout.sizes)) > 1
                else "each shard's gradients are clipped, or changed in another way that is not linear, before they "
                "are averaged",
            ),
            *((f"only {number}", f"the update uses shard {number} alone") for number in range(count)),
            *(
                (f"{name} {number}", f"the part of shard {number} is missing from the update{alone(name)}")
                for name in WITHOUT
                for number in range(count)
            ),
        ):
            name, _, at = join.rpartition(" ")
            joined = _joined(gathered, Join(name, int(at)) if name else Join(join), layout.sizes)
            if joined is not None:
                result = _applied(question, [joined])
                if _state_explained(states, result) and _outputs_follow(question, layout, result):
                    own = _own_gradients(question)
                    if own and _equal(joined[1], own):
                        # Then nothing is wrong with the sum or the mean, but with what the optimizer makes of it.
                        if any(map(_sparse, own)):
                            yield Cause(_DENSE, place, wrong, "give both dense gradients, or both IndexedSlices")
                        return
                    yield Cause(sentence, place, wrong)
                    return


def _by_shares(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The step runs for each shard in turn, from where the last one left the variables, and each counts 1/N."""
    import tensorflow as tf

    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    for layout in partitions(question):
        share = 1 / len(layout.sizes)

        def apply(
            original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None, share: float = share
        ) -> Any:
            return original(optimizer, _scaled(grads, share), variables)

        def write(variable: Any, _: Any, perform: Callable[[], Any], share: float = share) -> Any:
            before = variable.read_value()
            done = perform()
            if variable.dtype.is_floating:
                value = before + (variable.read_value() - before) * tf.cast(share, variable.dtype)
                tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
            return done

        with applying(apply) if _optimizers_used(question) else writes(write):
            running = PerShard._run(question, layout, False)
        if (
            running is not None
            and _state_explained(states, running.results[-1])
            and all(running.join_that_gives(leaf, leaf) for leaf in outputs)
        ):
            yield Cause(
                f"the training step ran once for each of the {len(layout.sizes)} shards, one after the other and with "
                f"1/{len(layout.sizes)} of the gradient, instead of once for the batch",
                place_of(question, states[0]) or layout.place,
                tuple(question.wrong),
                _ONCE,
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
    question.snapshot.restore()
    try:
        for times in range(2, max(3, len(question.devices) + 1)):
            if times == 2 and question.run(gradients=False, fresh=False) is None:
                return
            result = question.run(gradients=False, fresh=False)
            if result is None:
                return
            if _state_explained(states, result) and len(states) == len(question.wrong):
                often = "twice" if times == 2 else f"{times} times"
                names = listed([leaf.name.removesuffix(" after the call") for leaf in states[:4]])
                yield Cause(
                    f"{names} {'is' if len(states) == 1 else 'are'} updated {often} instead of once",
                    place_of(question, states[0]),
                    tuple(question.wrong),
                )
                return
    finally:
        question.snapshot.restore()


def _some_more_often(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The same update of some variables is made several times, and what else differs is computed from them."""
    often: dict[int, int] = {}
    for leaf in states if len(question.wrong) > 1 else ():
        handle = _handle(question, leaf)
        usual, seen = question.seen_reference.writes[handle], question.seen.writes[handle]
        if usual and seen > usual and not seen % usual:
            often[leaf.index] = seen // usual
    if not often:
        return
    times = {id(question.watched[index]): number for index, number in often.items()}

    def write(variable: Any, _: Any, perform: Callable[[], Any]) -> Any:
        return [perform() for _ in range(times.get(id(variable), 1))][-1]

    def program(**inputs: Any) -> Any:
        with writes(write):
            return question.reference.fn(**inputs)

    result = question.run(program)
    if result is not None and question.all_explained(lambda leaf: leaf.of(result)):
        again = [leaf for leaf in states if leaf.index in often]
        usual = question.seen_reference.writes[_handle(question, again[0])]
        names = listed([leaf.name.removesuffix(" after the call") for leaf in again[:4]])
        are, them = ("is", "it") if len(again) == 1 else ("are", "them")
        yield Cause(
            f"{names} {are} updated {often[again[0].index] * usual} times instead of "
            f"{usual if usual > 1 else 'once'}; what else differs is computed from {them}",
            place_of(question, again[0]),
            tuple(question.wrong),
        )


def _handle(question: Question, leaf: Leaf) -> int:
    return getattr(getattr(question.watched[leaf.index], "handle", None), "_id", 0)


def _applied_again(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    """The optimizer gets the right gradients, but several times."""
    if len(states) < len(question.wrong) or not _optimizers_used(question):
        return
    for times in range(2, max(3, len(question.devices) + 1)):

        def again(original: Callable[..., Any], optimizer: Any, *given: Any, often: int = times) -> Any:
            return [original(optimizer, *given) for _ in range(often)][-1]

        with applying(again):
            result = question.run(gradients=False)
        if _state_explained(states, result):
            yield Cause(
                f"the optimizer applies the same gradients {times} times instead of once",
                place_of(question, states[0]),
                tuple(question.wrong),
            )
            return


def _never(question: Question, states: list[Leaf]) -> Iterator[Cause]:
    if len(states) == len(question.wrong) and all(leaf.explained_by(leaf.start) for leaf in states):
        names = listed([leaf.name.removesuffix(" after the call") for leaf in states[:4]])
        handle = getattr(getattr(question.watched[states[0].index], "handle", None), "_id", None)
        one = len(states) == 1
        never = f"the program never writes to {'it' if one else 'them'}"
        if question.seen.writes[handle or 0]:
            never = "it keeps its value" if one else "they keep their values"
        verb = "is" if one else "are"
        yield Cause(f"{names} {verb} not updated: {never}", place_of(question, states[0]), tuple(question.wrong))


def _before_or_after(question: Question) -> Iterator[Cause]:
    """The results are computed from the variables before their update, or after it."""
    wrong = tuple(question.wrong)
    with writes(lambda variable, *_: variable):
        stale = question.run(gradients=False)
    if stale is not None and question.all_explained(lambda leaf: leaf.of(stale)):
        sentence = f"{wrong[0].name} is computed with the variables' values from before their update"
        yield Cause(sentence, place_of(question, wrong[0]), wrong)
        return
    question.snapshot.restore()
    try:
        question.run(gradients=False, fresh=False)
        late = question.run(gradients=False, fresh=False)
    finally:
        question.snapshot.restore()
    if late is not None and question.all_explained(lambda leaf: leaf.of(late)):
        sentence = f"{wrong[0].name} is computed with the variables' values from after their update"
        yield Cause(sentence, place_of(question, wrong[0]), wrong)


def follow(question: Question, found: Cause) -> bool:
    """Whether wrong variables follow from wrong gradients among the results: the update is replayed with those."""
    pairs = [
        (leaf.expected, leaf.found)
        for leaf in found.explains
        if leaf.expected is not None and leaf.found is not None and leaf.found.shape == leaf.expected.shape
    ]

    def replaced(value: Any) -> Any:
        import tensorflow as tf

        if not hasattr(value, "numpy") or isinstance(value, tf.IndexedSlices):
            return value
        array = np.asarray(value.numpy())
        for expected, own in pairs:
            square = float(np.sum(np.square(expected.astype(np.float64)))) if expected.shape == array.shape else 0.0
            if square:
                factor = float(np.sum(array.astype(np.float64) * expected)) / square
                if np.allclose(array, factor * expected, rtol=1e-4, atol=1e-6 * float(np.max(np.abs(array)) or 1.0)):
                    return tf.constant((factor * own).astype(array.dtype))
        return value

    def apply(original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> Any:
        return original(optimizer, [replaced(grad) for grad in grads], variables)

    with ExitStack() as stack:
        if _optimizers_used(question):
            stack.enter_context(applying(apply))
        else:
            stack.enter_context(writes(None, replaced))
        result = question.run(gradients=False)
    return _state_explained([leaf for leaf in question.wrong if leaf.part == "state"], result)


def _optimizers_used(question: Question) -> bool:
    used = []

    def note(original: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> Any:
        used.append(optimizer)
        return original(optimizer, grads, variables)

    with applying(note):
        question.run(gradients=False)
    return bool(used)


def _gathered(question: Question, layout: Layout) -> list[tuple[Any, list[Any], Any]]:
    """What the reference would give its optimizer for each shard; empty where it uses none, or more than one step."""
    calls: list[tuple[Any, list[Any], Any]] = []

    def gather(_: Callable[..., Any], optimizer: Any, grads: Any, variables: Any = None) -> None:
        calls.append((optimizer, list(grads), variables))

    leaves = question.reference.leaves()
    with applying(gather):
        for number in range(len(layout.sizes)):
            inputs = question.with_leaves(shard_leaves(leaves, layout, number))
            if question.run(inputs=inputs, gradients=False) is None or len(calls) != number + 1:
                return []
    return calls


def _own_gradients(question: Question) -> list[Any]:
    """What the reference gives its optimizer for the whole batch."""
    calls: list[list[Any]] = []
    with applying(lambda _, __, grads, variables=None: calls.append(list(grads))):  # noqa: ARG005
        question.run(gradients=False)
    return calls[0] if len(calls) == 1 else []


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether gradients are the same but for their rounding errors."""
    import tensorflow as tf

    pairs = [[tf.convert_to_tensor(each).numpy() for each in pair] for pair in zip(one, other, strict=True)]
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.max(np.abs(b), initial=0.0))) for a, b in pairs)


def _sparse(gradient: Any) -> bool:
    import tensorflow as tf

    return isinstance(gradient, tf.IndexedSlices)


def _joined(
    gathered: Sequence[tuple[Any, list[Any], Any]], join: Join, sizes: Sequence[int]
) -> tuple[Any, list[Any], Any] | None:
    import tensorflow as tf

    optimizer, _, variables = gathered[0]
    grads = []
    for parts in zip(*(grads for _, grads, _ in gathered), strict=True):
        value = join.of([tf.convert_to_tensor(part).numpy() for part in parts], sizes)
        if value is None:
            return None
        grads.append(tf.constant(value))
    return optimizer, grads, variables


def _applied(question: Question, calls: Sequence[tuple[Any, list[Any], Any]]) -> Result | None:
    """The state after the optimizer got these gradients in turn."""

    def run(**_: Any) -> Any:
        for optimizer, grads, variables in calls:
            optimizer.apply(grads, variables)
        return ()

    return question.run(run, gradients=False)


def _state_explained(states: Sequence[Leaf], result: Result | None) -> bool:
    return result is not None and bool(states) and all(leaf.explained_by(leaf.of(result)) for leaf in states)


def _outputs_follow(question: Question, layout: Layout, result: Result | None) -> bool:
    outputs = [leaf for leaf in question.wrong if leaf.part == "outputs"]
    if not outputs:
        return result is not None
    shards = PerShard.run(question, layout)
    return shards is not None and all(shards.join_that_gives(leaf, leaf) for leaf in outputs)
