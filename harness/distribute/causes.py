"""Why a training under a strategy is not that of one device: the cause is named only where a test confirms it.

The usual causes are few: Keras divides what it adds up by the number of replicas, or does not, whatever it was; it
clips gradients, and normalises batches, before replicas have exchanged anything. Each is tested by making both runs
again without it: where they then agree, it is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from harness.distribute.batches import Data
from harness.distribute.course import Course
from harness.distribute.differences import Compared
from harness.distribute.facts import Facts
from harness.records import Finding

#: Runs both trainings again, changed in the ways that are named (``facts.CHANGES``; ``even`` leaves out the rows that
#: cannot be divided among the replicas), for so many steps; says whether they agree.
Again: TypeAlias = Callable[[tuple[str, ...], int], bool]


@dataclass(frozen=True)
class Case:
    """A training that differs: what it did, what it should have done, and what it is made of."""

    found: Course
    single: Course
    compared: Compared
    facts: Facts
    data: Data
    replicas: int
    #: Steps that a test takes: up to the first that differs.
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", self.compared.first + 1)


def causes(case: Case, again: Again | None) -> list[Finding]:
    """Findings that name the causes. ``again`` is ``None`` where no run can be made again: arithmetic must do then."""
    found = [*_from_metrics(case), *_from_sums(case)]
    if found or again is None:
        return found
    suspects = list(_suspects(case))
    for change, finding in suspects:
        if again((change,), case.steps):
            return [finding]
    if len(suspects) > 1 and again(tuple(change for change, _ in suspects), case.steps):
        return [finding for _, finding in suspects]
    return []


def drawn(facts: Facts) -> str:
    """Why values prove nothing where layers draw random numbers: each run, and each replica, draws others."""
    names = ", ".join(facts.random)
    return f"layer {names} draws random numbers, and each replica draws its own: no value can be compared"


def _from_metrics(case: Case) -> Iterator[Finding]:
    """What is reported differs, and nothing else: metrics keep what one replica wrote last, or the mean of all."""
    reported = {"metric", "loss"} if case.found.loop == "fit" else {"metric"}
    names = [each.name for each in case.compared.differences]
    if names and {each.quantity for each in case.compared.differences} <= reported:
        yield Finding(
            "value",
            f"metrics {', '.join(names)} ({case.found.loop})",
            None,
            "what all replicas have added up",
            "something else, where weights, slots and gradients are right",
            "Keras's metrics, and with them the loss that fit reports, are not added up over the replicas of this "
            "strategy: the training is right, and what is told of it is not",
        )


def _from_sums(case: Case) -> Iterator[Finding]:
    """Layers that add a sum over the rows to the loss: the loss then lacks all but one part in N of it."""
    loss, want = (float(course.values["loss"]["loss"][0, 0]) for course in (case.found, case.single))
    for added in case.facts.added:
        share = added.whole * (1 - 1 / case.replicas)
        if added.is_sum and np.isclose(want - loss, share, rtol=1e-3, atol=1e-6 * abs(want)):
            yield Finding(
                "value",
                f"layer {added.layer}, add_loss ({case.found.loop})",
                None,
                f"{added.whole:.6g} added to the loss of the first batch",
                f"{added.whole / case.replicas:.6g}, which is 1/{case.replicas} of it",
                f"layer {added.layer} adds a sum over the rows of the batch to the loss, and what layers add is "
                f"divided by the number of replicas ({case.replicas}); add a mean over the rows, or multiply by "
                "the number of replicas",
            )


def _suspects(case: Case) -> Iterator[tuple[str, Finding]]:
    facts, replicas, loop = case.facts, case.replicas, case.found.loop
    if facts.scalar_loss:
        yield (
            "scalar loss",
            Finding(
                "value",
                f"loss {facts.loss} ({loop})",
                None,
                "the mean over the rows of all replicas",
                f"{_ratio(case):.3g} times the step of one device, with {replicas} replicas",
                f"the loss {facts.loss} returns one number for all its rows, which cannot be divided by the rows of "
                "the whole batch: each replica's counts in full; return a value for each row",
            ),
        )
    if facts.clipping:
        yield (
            "clipping",
            Finding(
                "value",
                f"optimizer {facts.optimizer}, {facts.clipping} ({loop})",
                None,
                "gradients added up over the replicas, and then clipped",
                "each replica's gradients clipped, and then added up",
                f"{facts.clipping} clips the gradients of each replica before they are added up; without it the "
                "training is that of one device; clip what strategy.all_reduce gives, in a step of your own",
            ),
        )
    if facts.per_replica_statistics:
        names = ", ".join(facts.per_replica_statistics)
        yield (
            "statistics",
            Finding(
                "value",
                f"layer {names} ({loop})",
                None,
                "the mean and variance of the whole batch",
                "those of the rows of each replica",
                f"batch normalisation in {names} takes its statistics from the rows of one replica alone; with "
                "synchronized=True the training is that of one device",
            ),
        )
    if case.data.rows(case.compared.first) % replicas:
        rows = case.data.rows(case.compared.first)
        yield (
            "even",
            Finding(
                "value",
                f"loss {facts.loss}, step {case.compared.first} ({loop})",
                None,
                f"the mean over {rows} rows",
                f"the mean of the means of {replicas} replicas with different numbers of rows",
                f"a batch of {rows} rows does not divide among {replicas} replicas, and {loop} takes the mean of each "
                "replica's mean: the rows of the smaller ones count for more; leave out the remainder, or divide a sum "
                "by the rows of the whole batch in a loop of your own",
            ),
        )


def _ratio(case: Case) -> float:
    """How many times as large the first step is as on one device, by the loss."""
    loss, want = (float(course.values["loss"]["loss"][0, 0]) for course in (case.found, case.single))
    return loss / want if want else np.nan
