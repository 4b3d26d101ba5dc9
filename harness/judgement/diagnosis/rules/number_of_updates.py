"""Variables are updated more or fewer times than in the reference: again, besides, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.leaves import explains, handle_of, place_of, variables_text, written
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.writing import applied_by, applying, writes
from harness.judgement.runs import Result

_OFTEN = {1: "once", 2: "twice"}


def _claims(question: Question) -> Iterator[Cause]:
    states = question.wrong_states
    claims = [_besides, _never, _again, _left_out] if states else []
    if states and len(states) == len(question.wrong):
        claims[2:2] = [_step_again, _applied_again]
    for claim in claims:
        if (found := claim(question, states)) is not None:
            sentence, leaf = found
            yield Cause(sentence, place_of(question, leaf))


def _besides(question: Question, states: Sequence[Leaf]) -> tuple[str, Leaf] | None:
    """Writes that the reference does not make: without them, the program's results are right."""
    more = [leaf for leaf in states if written(question, leaf) and not _usual(question, leaf)]
    if not more:
        return None
    if len(more) < len(question.wrong):
        result = _with_writes(question, _without(question, more), question.parallel.fn)
        if result is None or not question.right_in(result):
            return None
    them = "it" if len(more) == 1 else "them"
    return f"{_are(more)} updated, but the reference does not update {them}", more[0]


def _never(question: Question, states: Sequence[Leaf]) -> tuple[str, Leaf] | None:
    """Values from before the call, from which what else differs is computed."""
    kept = [leaf for leaf in states if leaf.explained_by(leaf.start)]
    if not kept or (
        len(kept) < len(question.wrong)
        and not explains(_with_writes(question, _without(question, kept)), question.wrong)
    ):
        return None
    one = len(kept) == 1
    never = f"the program never writes to {'it' if one else 'them'}"
    if written(question, kept[0]):
        never = "the value stays the same" if one else "the values stay the same"
    return f"{_are(kept)} not updated: {never}", kept[0]


def _again(question: Question, states: Sequence[Leaf]) -> tuple[str, Leaf] | None:
    """The same writes several times, from which what else differs is computed."""
    often: dict[int, tuple[Leaf, int]] = {}
    for leaf in states if len(question.wrong) > 1 else ():
        usual, made = _usual(question, leaf), written(question, leaf)
        if usual and made > usual and not made % usual:
            often[id(question.watched[leaf.index])] = leaf, made // usual

    def times(variable: Any, _: int) -> int:
        return often[id(variable)][1] if id(variable) in often else 1

    if not often or not explains(_with_writes(question, times), question.wrong):
        return None
    leaves = [leaf for leaf, _ in often.values()]
    usual = _usual(question, leaves[0])
    them = "this" if len(leaves) == 1 else "these"
    follows = f"; the other differences follow from {them}" if len(leaves) < len(question.wrong) else ""
    made = next(iter(often.values()))[1] * usual
    return f"{_are(leaves)} updated {_text(made)} instead of {_text(usual)}{follows}", leaves[0]


def _step_again(question: Question, states: Sequence[Leaf]) -> tuple[str, Leaf] | None:
    """The whole step several times, each time from the state that it has left."""
    with question.from_start():
        result = question.run(gradients=False, fresh=False)
        for times in _numbers(question) if result is not None else ():
            if (result := question.run(gradients=False, fresh=False)) is None:
                return None
            if explains(result, states):
                return f"{_are(states)} updated {_text(times)} instead of once", states[0]
    return None


def _applied_again(question: Question, states: Sequence[Leaf]) -> tuple[str, Leaf] | None:
    """All of the right gradients given to the optimizer several times: what else it updates is explained too."""
    every = [leaf for leaf in question.leaves if leaf.part == "state"]
    for times in _numbers(question) if applied_by(question) else ():

        def again(original: Callable[..., Any], optimizer: Any, *given: Any, often: int = times) -> Any:
            return [original(optimizer, *given) for _ in range(often)][-1]

        with applying(again):
            result = question.run(gradients=False)
        if explains(result, every):
            return f"the optimizer applies the same gradients {times} times instead of once", states[0]
    return None


def _left_out(question: Question, states: Sequence[Leaf]) -> tuple[str, Leaf] | None:
    """One of several writes to a variable that is not made."""
    for leaf in states:
        variable, made, wanted = question.watched[leaf.index], written(question, leaf), _usual(question, leaf)
        for left in range(wanted if 0 < made < wanted else 0):
            places: list[str] = []

            def times(each: Any, number: int, at: int = left, of: Any = variable, found: list[str] = places) -> int:
                if each is not of or number != at:
                    return 1
                found.append(place_of_call() or "")
                return 0

            if explains(_with_writes(question, times), question.wrong):
                place = f" ({places[0]})" if places[0] else ""
                update = f"the reference's update {left + 1} of {wanted}{place} is missing"
                return f"{_are([leaf])} updated {_text(made)} instead of {_text(wanted)}: {update}", leaf
    return None


def _with_writes(
    question: Question, times: Callable[[Any, int], int], fn: Callable[..., Any] | None = None
) -> Result | None:
    """The reference, or ``fn``, each of whose writes is made ``times`` of its variable and its number there."""
    seen: Counter[int] = Counter()

    def write(variable: Any, value: Any, perform: Callable[[Any], Any]) -> Any:
        seen[id(variable)] += 1
        made = [perform(value) for _ in range(times(variable, seen[id(variable)] - 1))]
        return made[-1] if made else variable

    def program(**inputs: Any) -> Any:
        with writes(write):
            return (fn or question.reference.fn)(**inputs)

    return question.run(program)


def _without(question: Question, leaves: Sequence[Leaf]) -> Callable[[Any, int], int]:
    """To make no writes to some variables."""
    known = {id(question.watched[leaf.index]) for leaf in leaves}
    return lambda variable, _: int(id(variable) not in known)


def _numbers(question: Question) -> range:
    """As many times may be one for each device."""
    return range(2, max(3, len(question.devices) + 1))


def _usual(question: Question, leaf: Leaf) -> int:
    return question.seen_reference.writes[handle_of(question.watched[leaf.index])]


def _are(leaves: Sequence[Leaf]) -> str:
    return f"{variables_text(leaves)} {'is' if len(leaves) == 1 else 'are'}"


def _text(often: int) -> str:
    return _OFTEN.get(often, f"{often} times")


RULE = Rule("C204", "number-of-updates", "updates made too often, too rarely or by each shard", _claims, by="results")
