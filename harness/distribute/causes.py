"""Explains why a training under a strategy diverged. A cause is named only where a test confirms it.

The usual causes are few: Keras divides what it adds up by the number of replicas, or does not, whatever it was; it
clips gradients, and normalises batches, before replicas exchange anything. Each is tested by repeating both runs
without it: if they then agree, it is the cause. What else can be wrong with a step is computed on one device
(``replay``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from harness.distribute.history import Array
from harness.distribute.replay import Case, Replay
from harness.records import Finding

#: Repeats both runs with the named changes (``facts.CHANGES``; ``even`` drops the rows that cannot be divided among the
#: replicas) for so many steps, and returns whether they agree.
Rerun: TypeAlias = Callable[[tuple[str, ...], int], bool]


def find_causes(case: Case, rerun: Rerun | None, replay: Replay | None = None) -> list[Finding]:
    """Findings that name the causes, each confirmed by the numbers.

    ``rerun`` and ``replay`` are ``None`` where runs cannot be repeated: then by arithmetic alone.
    """
    return [replace(finding, mode=case.found.loop) for finding in _causes(case, rerun, replay)]


def _causes(case: Case, rerun: Rerun | None, replay: Replay | None) -> list[Finding]:
    if found := [*_from_sums(case)] or (_computed(replay.metrics, case) if replay is not None else []):
        return found
    if rerun is not None and (suspects := dict(_suspects(case))):
        steps = case.compared.first_step + 1
        for change, finding in suspects.items():
            if rerun((change,), steps):
                return [finding]
        if len(suspects) > 1 and rerun(tuple(suspects), steps):
            return [suspects[change] for change in _needed(list(suspects), rerun, steps)]
    return [*_from_gradients(case)] or (_computed(replay.step, case) if replay is not None else [])


def _computed(causes: Callable[[Case], Iterator[Finding]], case: Case) -> list[Finding]:
    try:
        return [*causes(case)]
    except Exception:  # noqa: BLE001 - the user's code may refuse a part of the batch; that the runs differ must not be lost
        return []


def _needed(changes: list[str], rerun: Rerun, steps: int) -> list[str]:
    """Those of several changes without which the runs do not agree."""
    for change in tuple(changes):
        rest = [each for each in changes if each != change]
        if len(rest) > 1 and rerun(tuple(rest), steps):
            changes = rest
    return changes


def _from_gradients(case: Case) -> Iterator[Finding]:
    """The gradients of the first step that differs, or what it adds to the weights, are N times those of one device.

    Or 1/N times. Later steps start from other weights: what differs there may be a consequence.
    """
    replicas, at, of_one = case.found.replicas, case.compared.first_step, "those of the single-device run"
    if replicas == 1:
        return
    for factor, times in ((replicas, f"{replicas} times"), (1 / replicas, f"1/{replicas} times")):
        more = factor > 1
        if _is_multiple(case, factor):
            loss, want = (float(run.values["loss"]["loss"][at, 0]) for run in (case.found, case.single))
            alike = "and the loss are" if np.isclose(loss, factor * want, rtol=1e-4, atol=0) else "are"
            yield Finding(
                "gradient",
                f"gradients, step {at}",
                None,
                of_one,
                f"{times} as large",
                f"the gradients {alike} {times} those of one device, with {replicas} replicas; in each replica, divide "
                "the summed loss by the number of rows in the whole batch"
                + (", and add up the replicas' gradients" if more else ", and by nothing else: not by the replicas"),
            )
        elif (known := _is_multiple(case, 1) or not _gradients(case)) and _is_updated_by(case, factor):
            although = ", although the gradients are the same" if known and _gradients(case) else ""
            remedy = (
                f"add up the gradients of the {replicas} replicas only once, either by all_reduce or in the optimizer"
                if more
                else f"each of the {replicas} replicas has a share of the batch's gradient: add the shares up, and do "
                "not average them, or divide by the number of rows only once"
            )
            yield Finding(
                "value",
                f"weights, step {at}",
                None,
                "the update of the single-device run",
                f"{times} that update",
                f"the weights change {times} as much as on one device{although}; {remedy}",
            )


def _gradients(case: Case) -> list[tuple[Array, Array]]:
    """The gradients of the first step that differs, under the strategy and on one device, but those that are zero."""
    found, single, at = case.found.values["gradient"], case.single.values["gradient"], case.compared.first_step
    return [(found[name][at], want[at]) for name, want in single.items() if name in found and want[at].any()]


def _is_multiple(case: Case, factor: float) -> bool:
    """Whether all gradients of the first step that differs are ``factor`` times those of the single-device run."""
    pairs = _gradients(case)
    return bool(pairs) and all(_close(got, factor * want) for got, want in pairs)


def _is_updated_by(case: Case, factor: float) -> bool:
    """Whether the first step that differs changes each weight by ``factor`` times what the single-device run does.

    By how much it does on one device is the difference of two of its steps; the step that differs starts from the same
    weights. For step 0 these are not in the history: then the change is that of plain SGD, if the gradients are known.
    """
    found, single, at = case.found.values["weight"], case.single.values["weight"], case.compared.first_step
    gradients = {name: array[0] for name, array in case.single.values["gradient"].items() if array[0].any()}
    if at == 0:
        return bool(gradients) and all(
            name in found
            and name in single
            and _close(
                single[name][0] - found[name][0], (factor - 1) * case.single.rates[0] * gradient, single[name][0]
            )
            for name, gradient in gradients.items()
        )
    changes = [
        (found[name][at] - single[name][at - 1], single[name][at] - single[name][at - 1], single[name][at])
        for name in single
        if name in found and found[name].shape == single[name].shape
    ]
    moved = [each for each in changes if each[1].any()]
    return bool(moved) and all(_close(have, factor * want, weight) for have, want, weight in moved)


def _close(found: Array, wanted: Array, *others: Array) -> bool:
    """Whether these are equal but for rounding in float32 of them and of ``others``, which they are computed from."""
    if found.shape != wanted.shape:
        return False
    largest = max(float(np.abs(each).max(initial=0.0)) for each in (wanted, *others))
    error = float(np.abs(found - wanted).max(initial=0.0))
    return error <= 1e-6 * largest + 1e-4 * float(np.abs(wanted).max(initial=0.0))


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
