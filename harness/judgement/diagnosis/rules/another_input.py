"""The results are the reference's for another value of one input: an output, or the rows of another shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.judgement.diagnosis.layout import partitions, wrong_shards
from harness.judgement.diagnosis.leaves import explains, outputs_alone, place_of
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.recorded import MOVES
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import Search, searched
from harness.judgement.runs import Result
from harness.lazy import tf

#: So many outputs are given to the reference, and so many ways to give an input to the wrong shard are tried.
_MOST, _MOST_TRIES = 8, 48


def _claims(question: Question) -> Iterator[Cause]:
    yield from _in_a_row(question)
    yield from _of_another_shard(question)


def _with(question: Question, index: int, value: Any) -> Result | None:
    """The reference's results with another value of one input."""
    leaves = question.reference.leaves()
    leaves[index] = value
    return question.run(inputs=question.with_leaves(leaves), gradients=False)


def _in_a_row(question: Question) -> Iterator[Cause]:
    """An output that is computed from another output: what belongs side by side runs in sequence."""
    wrong = outputs_alone(question)
    outputs = [leaf for leaf in question.leaves if leaf.part == "outputs" and leaf.found is not None]
    from_others: dict[str, tuple[str, str]] = {}
    for index, array in enumerate(question.input_arrays) if wrong and 1 < len(outputs) <= _MOST else ():
        for source in outputs:
            assert source.found is not None
            if array is None or (array.shape, array.dtype) != (source.found.shape, source.found.dtype):
                continue
            result = _with(question, index, tf.constant(source.found, question.reference.leaves()[index].dtype))
            for leaf in wrong:
                if result is not None and leaf is not source and leaf.explained_by(leaf.of(result)):
                    from_others.setdefault(leaf.name, (source.name, question.input_names[index]))
    if wrong and len(from_others) == len(wrong):
        source_name, name = from_others[wrong[0].name]
        yield Cause(
            f"{wrong[0].name} is computed from {source_name} instead of from {name}: parts that should run side by "
            "side run in sequence",
            place_of(question, wrong[0]),
            next_step=f"compute each output from {name}",
        )


def _of_another_shard(question: Question) -> Iterator[Cause]:
    """One of several inputs, such as lengths or labels, is given to shards that its rows do not belong to."""
    layout = next((each for each in partitions(question) if each.seen), None)
    wrong = [leaf for leaf in question.wrong if leaf.part != "gradients"]
    if layout is None or not wrong or sorted(layout.covered) != list(range(layout.rows)):
        return
    if not _may_read_others(searched(question)):
        return
    cuts = {index: cut for index, cut in layout.cuts.items() if len({len(rows) for rows in cut[1]}) == 1}
    for index, whole in enumerate(question.input_arrays):
        if whole is not None and whole.shape[layout.axis : layout.axis + 1] == (layout.rows,):
            cuts.setdefault(index, layout.cuts[layout.main])
    tried = [
        (index, given) for ways in (_all_shards, _one_shard) for index in cuts for given in ways(len(layout.shards))
    ]
    shards_wrong = wrong_shards(question, layout)
    if len(shards_wrong) < len(layout.shards):  # where the rows of a shard are right, it was given its own
        tried = [
            (index, given) for index, given in tried if {to for to, of in given.items() if to != of} == shards_wrong
        ]
    for index, given in tried[:_MOST_TRIES]:
        axis, shards = cuts[index]
        rows = [row for shard in range(len(shards)) for row in shards[given.get(shard, shard)]]
        if explains(_with(question, index, tf.gather(question.reference.leaves()[index], rows, axis=axis)), wrong):
            name, source = question.input_names[index], next(iter(given.values()))
            who = "every shard is" if len(given) > 1 else f"shard {next(iter(given))} is"
            whose = f"to shard {source}" if len(set(given.values())) == 1 else "to another shard"
            place = next((piece.place for piece in question.seen.pieces if piece.leaf == index), layout.place)
            yield Cause(
                f"{who} given the rows of {name} that belong {whose}",
                place,
                f"give each shard its own rows of {name}",
            )
            return


def _may_read_others(search: Search) -> bool:
    """Whether a device works on rows of an input that belong on another one, as far as that was seen."""
    direct = set(search.inputs)
    for step in search.steps:
        own = set(search.rows_of_device(step))
        # What has a device's own rows is right there, whatever is done to it.
        read = [
            name
            for name in direct.intersection(step.inputs)
            if name not in search.rows or not own.issuperset(search.rows[name].numbers)
        ]
        if read and step.kind not in MOVES:
            if any(name in search.rows for name in read):
                return True
        elif read:
            direct.update(step.outputs)
            for name, array in zip(step.outputs, step.results, strict=True):
                # What is neither all of a tensor nor known rows of one may be any rows.
                if array is None or (array.size > 1 and name not in search.rows and search.status[name] != "same"):
                    return True
    return False


def _all_shards(count: int) -> list[dict[int, int]]:
    """Ways to give each shard the rows of a wrong one: of the same one, of the next ones, or in reverse order."""
    numbers = range(count)
    return [
        *(dict.fromkeys(numbers, source) for source in numbers),
        *({shard: (shard + step) % count for shard in numbers} for step in range(1, count)),
        {shard: count - 1 - shard for shard in numbers},
    ]


def _one_shard(count: int) -> list[dict[int, int]]:
    return [{shard: source} for shard in range(count) for source in range(count) if shard != source]


RULE = Rule("C409", "another-input", "an output as an input, or rows of an input that belong to another shard", _claims)
