"""One of several inputs, such as lengths or labels, is given to shards that its rows do not belong to."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.layout import partitions, wrong_shards
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.recorded import MOVES
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import Search, searched
from harness.lazy import tf

#: So many ways to give an input to the wrong shard are tried.
_MOST_TRIES = 48


def _claims(question: Question) -> Iterator[Cause]:
    layout = next((each for each in partitions(question) if each.seen), None)
    outputs = [leaf for leaf in question.wrong if leaf.part != "gradients"]
    if layout is None or not outputs or sorted(layout.covered) != list(range(layout.rows)):
        return
    if not _may_read_others(searched(question)):
        return
    leaves = question.reference.leaves()
    cuts = {index: cut for index, cut in layout.cuts.items() if len({len(rows) for rows in cut[1]}) == 1}
    for index, whole in enumerate(question.input_arrays):
        if whole is not None and whole.shape[layout.axis : layout.axis + 1] == (layout.rows,):
            cuts.setdefault(index, layout.cuts[layout.main])
    tried = [
        (index, given) for ways in (_all_shards, _one_shard) for index in cuts for given in ways(len(layout.shards))
    ]
    wrong = wrong_shards(question, layout)
    if len(wrong) < len(layout.shards):  # where the rows of a shard are right, it was given its own
        tried = [(index, given) for index, given in tried if {to for to, of in given.items() if to != of} == wrong]
    for index, given in tried[:_MOST_TRIES]:
        axis, shards = cuts[index]
        rows = [row for shard in range(len(shards)) for row in shards[given.get(shard, shard)]]
        own = list(leaves)
        own[index] = tf.gather(leaves[index], rows, axis=axis)
        result = question.run(inputs=question.with_leaves(own), gradients=False)
        if result is not None and all(leaf.explained_by(leaf.of(result)) for leaf in outputs):
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


RULE = Rule("C116", "rows-of-another-shard", "rows of an input that belong to another shard", _claims)
