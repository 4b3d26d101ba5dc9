"""Explains why a training under a strategy diverged. A cause is named only where a test confirms it.

The usual causes are few: Keras divides what it adds up by the number of replicas, or does not, whatever it was; it
clips gradients, and normalises batches, before replicas exchange anything. Each is tested by repeating both runs
without it: if they then agree, it is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from harness.distribute.compare import Compared
from harness.distribute.facts import Facts
from harness.distribute.history import Array, History
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
    return [replace(finding, mode=case.found.loop) for finding in _causes(case, rerun)]


def _causes(case: Case, rerun: Rerun | None) -> list[Finding]:
    found = [*_from_metrics(case), *_from_sums(case)]
    if found:
        return found
    if rerun is not None:
        steps = case.compared.first_step + 1
        suspects = list(_suspects(case))
        for change, finding in suspects:
            if rerun((change,), steps):
                return [finding]
        if len(suspects) > 1 and rerun(tuple(change for change, _ in suspects), steps):
            return [finding for _, finding in suspects]
    return list(_from_gradients(case))


def _from_gradients(case: Case) -> Iterator[Finding]:
    """The first step's gradients, or what it adds to the weights, are those of one device times N, or by N."""
    replicas, step, of_one = case.found.replicas, "step 0", "those of the single-device run"
    if replicas == 1:
        return
    loss, want = _first_losses(case)
    for factor, times in ((replicas, f"{replicas} times"), (1 / replicas, f"1/{replicas} times")):
        if _is_multiple(case, factor):
            alike = "and the loss are" if np.isclose(loss, factor * want, rtol=1e-4, atol=0) else "are"
            yield Finding(
                "gradient",
                f"gradients, {step}",
                None,
                of_one,
                f"{times} as large",
                f"the gradients {alike} {times} those of one device, with {replicas} replicas; in each replica, divide "
                "the summed loss by the number of rows in the whole batch, and add up the replicas' gradients",
            )
        elif _is_multiple(case, 1) and _is_updated_by(case, factor):
            yield Finding(
                "value",
                f"weights, {step}",
                None,
                "an update by the gradients",
                f"an update by {times} the gradients",
                f"the weights change {times} as much as on one device, although the gradients are the same; add up the "
                f"gradients of the {replicas} replicas only once, either by all_reduce or in the optimizer",
            )


def _is_multiple(case: Case, factor: float) -> bool:
    """Whether all gradients of the first step are ``factor`` times those of the single-device run."""
    found, single = case.found.values["gradient"], case.single.values["gradient"]
    pairs = [(found[name][0], want[0]) for name, want in single.items() if name in found and want.any()]
    return bool(pairs) and all(_close(got, factor * want) for got, want in pairs)


def _is_updated_by(case: Case, factor: float) -> bool:
    """Whether the first step changed each weight by ``factor`` times what the single-device run did, by plain SGD.

    From the same weight w, both runs give w - r g and w - factor r g for the rate r and the gradient g.
    """
    found, single = case.found.values["weight"], case.single.values["weight"]
    gradients = {name: array[0] for name, array in case.single.values["gradient"].items() if array[0].any()}
    return bool(gradients) and all(
        name in found
        and name in single
        and _close(single[name][0] - found[name][0], (factor - 1) * case.single.rates[0] * gradient, single[name][0])
        for name, gradient in gradients.items()
    )


def _close(found: Array, wanted: Array, *others: Array) -> bool:
    """Whether these are equal but for rounding in float32 of them and of ``others``, which they are computed from."""
    if found.shape != wanted.shape:
        return False
    largest = max(float(np.abs(each).max(initial=0.0)) for each in (wanted, *others))
    error = float(np.abs(found - wanted).max(initial=0.0))
    return error <= 1e-6 * largest + 1e-4 * float(np.abs(wanted).max(initial=0.0))


def _from_metrics(case: Case) -> Iterator[Finding]:
    """Only metrics differ: they keep what one replica wrote last, or the mean of all."""
    reported = {"metric", "loss"} if case.found.loop == "fit" else {"metric"}
    names = [each.name for each in case.compared.differences]
    if names and {each.quantity for each in case.compared.differences} <= reported:
        yield Finding(
            "value",
            f"metrics {', '.join(names)}",
            None,
            "the totals of all replicas",
            "other values, with correct weights, slots and gradients",
            "under this strategy, Keras does not combine the replicas' metrics, nor the loss that Keras's fit reports: "
            "the training is correct, but the reported numbers are not",
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
                f"layer {added.layer}, add_loss",
                None,
                f"{added.whole:.6g} added to the loss of the first batch",
                f"{added.whole / replicas:.6g}, only 1/{replicas} of that",
                f"layer {added.layer} adds a sum over the rows of the batch to the loss, but Keras divides layer "
                f"losses by the number of replicas ({replicas}); add a mean over the rows, or multiply the sum by the "
                "number of replicas",
            )


def _suspects(case: Case) -> Iterator[tuple[str, Finding]]:
    facts, replicas, loop = case.facts, case.found.replicas, case.found.loop
    loss, want = _first_losses(case)
    if facts.scalar_loss:
        yield (
            "scalar loss",
            Finding(
                "value",
                f"loss {facts.loss}",
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
                f"optimizer {facts.optimizer}, {facts.clipping}",
                None,
                "gradients added up over the replicas, then clipped",
                "each replica's gradients clipped, then added up",
                f"{facts.clipping} clips the gradients of each replica before they are added up; without clipping, the "
                "training matches the single-device run; clip the result of all_reduce in a custom step",
            ),
        )
    if facts.per_replica_statistics:
        names = ", ".join(facts.per_replica_statistics)
        yield (
            "statistics",
            Finding(
                "value",
                f"layer {names}",
                None,
                "the mean and variance of the whole batch",
                "the mean and variance of each replica's rows",
                f"batch normalisation in {names} uses the statistics of one replica's rows; with synchronized=True the "
                "training matches the single-device run",
            ),
        )
    step = case.compared.first_step
    rows = case.data.rows(step)
    averages = "Keras's fit averages" if loop == "fit" else f"the {loop} averages"
    if rows % replicas:
        yield (
            "even",
            Finding(
                "value",
                f"loss {facts.loss}, step {step}",
                None,
                f"the mean over {rows} rows",
                f"the mean of the means of {replicas} replicas with different numbers of rows",
                f"a batch of {rows} rows does not divide evenly among {replicas} replicas, and {averages} "
                "the replicas' means, so a row on a replica with fewer rows counts for more; drop the remainder, or "
                "write a custom loop that divides a sum by the number of rows in the whole batch",
            ),
        )


def _first_losses(case: Case) -> tuple[float, float]:
    """The losses of the first step, under the strategy and on one device."""
    return float(case.found.values["loss"]["loss"][0, 0]), float(case.single.values["loss"]["loss"][0, 0])
