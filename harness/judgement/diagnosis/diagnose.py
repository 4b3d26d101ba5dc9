"""Tries the hypotheses in turn. The first that reproduces the numbers is the cause."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

from harness.judgement.diagnosis import (
    divergence,
    gradients,
    misrouted,
    omitted,
    order,
    positions,
    randomness,
    rows,
    scales,
    scans,
    settings,
    shards,
    shares,
    slices,
    tables,
    terms,
    twice,
    updates,
)
from harness.judgement.diagnosis.question import Cause, Question

#: For so long, in seconds, hypotheses are tried. A program that takes long is then searched for the first op alone.
_MOST_S = 300.0

Hypothesis = Callable[[Question], Iterator[Cause]]

#: Name of what is ruled out where it does not explain the numbers, and the hypothesis, the most telling first.
HYPOTHESES: tuple[tuple[str, Hypothesis], ...] = (
    ("graph optimization", settings.in_a_graph),
    ("another dtype", scales.other_dtype),
    ("random numbers", randomness.drawn_per_shard),
    ("missing gradients", gradients.missing),
    ("a custom gradient that ignores its upstream gradient", gradients.ignored),
    ("rows numbered from 0 in each shard", positions.numbered_in_shard),
    ("an empty shard", rows.empty_shard),
    ("ids looked up in a split table by another rule", tables.looked_up_elsewhere),
    ("rows lost, doubled or moved", rows.moved),
    ("rows left out of a sum or mean", shards.rows_left_out),
    ("updates made too often, too rarely or by each shard", updates.repeated),
    ("updates in another order", order.of_updates),
    ("an op that one device computes wrongly", settings.on_a_device),
    ("one shard whose result is zero or scaled", rows.one_shard),
    ("a penalty on variables that counts once per shard, or is missing", terms.counted_per_shard),
    ("results of each shard alone, joined in some way", shards.per_shard),
    ("padding that counts in the results", rows.padded),
    ("results off by a factor", scales.one_factor),
    ("rows that count more or less than others", shares.of_rows),
    ("parts of the batch left out or counted twice", shares.of_parts),
    ("outputs swapped", scales.swapped),
    ("a variable with the update of another one", scales.of_another),
    ("another axis", scales.rearranged),
    ("a variable that is not read", terms.unused),
    ("an added bias that counts once per shard, or is left out", terms.added_in_each),
    ("IndexedSlices added up by position", slices.by_position),
    ("lower precision", terms.lower_precision),
    ("an output computed from another one", omitted.in_a_row),
    ("an addend left out", omitted.addend),
    ("a part added or joined twice, or left out", twice.part),
    ("the last steps left out", omitted.last_steps),
    ("a constant added", scales.off_by_a_constant),
    ("other signs", scales.other_signs),
    ("parts of a dataset read twice, or not at all", misrouted.parts_of_a_dataset),
    ("rows of an input that belong to another shard", misrouted.of_another_shard),
    ("a wrong carry of a scan", scans.wrong_carry),
    ("rows of a variable not written, or written to other rows", rows.written_elsewhere),
    ("results that differ in some shards only", rows.of_a_shard),
    ("an op that differs from the reference's", divergence.first_difference),
)

#: Hypotheses that accuse TensorFlow or a device, and not the program.
OF_THE_PLATFORM: tuple[Hypothesis, ...] = (settings.in_a_graph, settings.on_a_device)
#: Hypotheses that edit the reference and compare results, and do not look at the ops of the program under test.
BY_RESULTS: tuple[Hypothesis, ...] = (
    updates.repeated,
    terms.counted_per_shard,
    shards.per_shard,
    scales.one_factor,
    shares.of_parts,
    scales.of_another,
)


def diagnose(question: Question, of: Collection[Hypothesis] = ()) -> Cause | None:
    """The cause that the numbers confirm, or ``None``; what was ruled out is then in ``question.ruled_out``.

    ``of``: the hypotheses to try; by default all.

    Where a training step updates variables with wrong gradients, they follow: the results are explained without them.
    """
    question.began = time.monotonic()
    found = _first(question, of)
    if found is not None:
        return found
    upstream = [leaf for leaf in question.leaves if leaf.part != "state" or not leaf.wrong]
    if len(upstream) < len(question.leaves) and any(leaf.wrong for leaf in upstream):
        question.leaves, everything = upstream, question.leaves
        try:
            found = _first(question, of)
        finally:
            question.leaves = everything
        if found is not None and updates.follow(question):
            return found
    return None


def _first(question: Question, of: Collection[Hypothesis]) -> Cause | None:
    question.ruled_out, question.untried = [], []
    for name, hypothesis in HYPOTHESES:
        if of and hypothesis not in of:
            continue
        if time.monotonic() - question.began > _MOST_S and hypothesis is not divergence.first_difference:
            question.untried.append(name)
            continue
        try:
            cause = next(hypothesis(question), None)
        except Exception as error:  # noqa: BLE001 - that results differ is known, and must not be lost for want of a cause
            question.failed.append(f"{name}: {type(error).__name__}: {error}")
            continue
        finally:
            question.snapshot.restore()
        if cause is not None:
            return cause
        question.ruled_out.append(name)
    return None
