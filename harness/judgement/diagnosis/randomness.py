"""Random numbers that are drawn for each shard, where the reference draws them once for the batch."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.joins import PerShard
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.observed import Observed
from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.wording import listed


def draws(seen: Observed) -> str:
    """The random ops that ran, with their layers and places; empty where none did."""
    return (
        listed(
            [
                f"{op}{f' in layer {layer}' if layer else ''}{f' ({place})' if place else ''}"
                for op, layer, place in list(seen.random)[:3]
            ]
        )
        if seen.random
        else ""
    )


def drawn_per_shard(question: Question) -> Iterator[Cause]:
    """The differences are those of random numbers drawn shard by shard, or without a seed."""
    if not question.seen.random:
        return
    place = next((place for _, _, place in question.seen.random if place), None)
    what = draws(question.seen)
    wrong = tuple(question.wrong)
    if question.unsteady:
        yield Cause(
            f"random numbers are drawn without a seed that is set before each call, so that two runs differ: {what}",
            None if place and place in what else place,
            wrong,
            "draw them once for the whole batch from a seeded generator, and split them",
        )
        return
    for layout in partitions(question):
        for fresh, how in ((True, "every shard draws the same random numbers"), (False, "each shard draws its own")):
            shards = PerShard.run(question, layout, fresh=fresh)
            if shards is None or not all(
                leaf.part == "gradients" or shards.join_that_gives(leaf, leaf) is not None for leaf in wrong
            ):
                continue
            yield Cause(
                f"random numbers are drawn once per shard instead of once for the batch ({how}): {what}",
                None,
                wrong,
                "draw them once for the whole batch, and split them",
            )
            return
