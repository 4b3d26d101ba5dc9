"""Explains why a training under a strategy diverged. A cause is named only where a test confirms it.

The usual causes are few: Keras divides what it adds up by the number of replicas, or does not, whatever it was; it
clips gradients, and normalises batches, before replicas exchange anything. Each is tested by repeating both runs
without it: if they then agree, it is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from harness.distribute.compare import Compared
from harness.distribute.facts import Facts
from harness.distribute.history import History
from harness.distribute.training import Data
from harness.records import Finding

#: Repeats both runs with the named changes (``facts.CHANGES``; ``even`` drops the rows that cannot be divided among the
#: replicas) for so many steps, and returns whether they agree.
Rerun: TypeAlias = Callable[[tuple[str, ...], int], bool]


@dataclass(frozen=True)
class Case:
    """A training that diverged, the single-device run, and what the training is made of."""

    found: History
    single: History
    compared: Compared
    facts: Facts
    data: Data


def find_causes(case: Case, rerun: Rerun | None) -> list[Finding]:
    """Findings that name the causes. ``rerun`` is ``None`` where runs cannot be repeated: then by arithmetic alone."""
    found = [*_from_metrics(case), *_from_sums(case)]
    if found or rerun is None:
        return found
    steps = case.compared.first_step + 1
    suspects = list(_suspects(case))
    for change, finding in suspects:
        if rerun((change,), steps):
            return [finding]
    if len(suspects) > 1 and rerun(tuple(change for change, _ in suspects), steps):
        return [finding for _, finding in suspects]
    return []


def _from_metrics(case: Case) -> Iterator[Finding]:
    """Only metrics differ: they keep what one replica wrote last, or the mean of all."""
    reported = {"metric", "loss"} if case.found.loop == "fit" else {"metric"}
    names = [each.name for each in case.compared.differences]
    if names and {each.quantity for each in case.compared.differences} <= reported:
        yield Finding(
            "value",
            f"metrics {', '.join(names)} ({case.found.loop})",
            None,
            "the totals of all replicas",
            "other values, with correct weights, slots and gradients",
            "Keras does not add up metrics, nor the loss that fit reports, over the replicas of this strategy: the "
            "training is correct, the reported numbers are not",
        )


def _from_sums(case: Case) -> Iterator[Finding]:
    """Layers that add a sum over the rows to the loss: only 1/N of it arrives there."""
    loss, want = _first_losses(case)
    replicas = case.found.replicas
    for added in case.facts.added:
        share = added.whole * (1 - 1 / replicas)
        if added.is_sum and np.isclose(want - loss, share, rtol=1e-3, atol=1e-6 * abs(want)):
            yield Finding(
                "value",
                f"layer {added.layer}, add_loss ({case.found.loop})",
                None,
                f"{added.whole:.6g} added to the loss of the first batch",
                f"{added.whole / replicas:.6g}, only 1/{replicas} of that",
                f"layer {added.layer} adds a sum over the rows of the batch to the loss, but the losses of layers are "
                f"divided by the number of replicas ({replicas}); add a mean over the rows, or multiply by the number "
                "of replicas",
            )


def _suspects(case: Case) -> Iterator[tuple[str, Finding]]:
    facts, replicas, loop = case.facts, case.found.replicas, case.found.loop
    loss, want = _first_losses(case)
    if facts.scalar_loss:
        yield (
            "scalar loss",
            Finding(
                "value",
                f"loss {facts.loss} ({loop})",
                None,
                "the mean over the rows of all replicas",
                f"{loss / want if want else np.nan:.3g} times the single-device loss, with {replicas} replicas",
                f"the loss {facts.loss} returns one number for all its rows instead of one per row, so each replica's "
                "loss counts in full, not in proportion to its share of the batch; return a value for each row",
            ),
        )
    if facts.clipping:
        yield (
            "clipping",
            Finding(
                "value",
                f"optimizer {facts.optimizer}, {facts.clipping} ({loop})",
                None,
                "gradients added up over the replicas, then clipped",
                "each replica's gradients clipped, then added up",
                f"{facts.clipping} clips the gradients of each replica before they are added up; without it the "
                "training matches the single-device run; clip the result of all_reduce in a custom step",
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
                "the mean and variance of each replica's rows",
                f"batch normalisation in {names} uses the statistics of one replica's rows; with synchronized=True the "
                "training matches the single-device run",
            ),
        )
    step = case.compared.first_step
    rows = case.data.rows(step)
    if rows % replicas:
        yield (
            "even",
            Finding(
                "value",
                f"loss {facts.loss}, step {step} ({loop})",
                None,
                f"the mean over {rows} rows",
                f"the mean of the means of {replicas} replicas with different numbers of rows",
                f"a batch of {rows} rows does not divide evenly among {replicas} replicas, and {loop} averages the "
                "replicas' means, so a row on a replica with fewer rows counts for more; drop the remainder, or "
                "write a custom loop that divides a sum by the number of rows in the whole batch",
            ),
        )


def _first_losses(case: Case) -> tuple[float, float]:
    """The losses of the first step, under the strategy and on one device."""
    return float(case.found.values["loss"]["loss"][0, 0]), float(case.single.values["loss"]["loss"][0, 0])
