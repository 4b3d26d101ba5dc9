"""All results that differ are the reference's times one factor."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from harness.judgement.diagnosis.chance import are_counts
from harness.judgement.diagnosis.leaves import (
    changes_of,
    explained_by_change,
    factor_of,
    place_of,
    variables_text,
    written,
)
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.search import searched
from harness.judgement.diagnosis.wording import factor_text, listed

#: How far a number may be from a whole one.
_NEAR = 1e-3


def ratio_of(leaf: Leaf, rows: int | None, count: int) -> float | None:
    """The factor by which a result, or the change of a variable, exceeds the reference's; ``None`` if by none."""
    if (changes := changes_of(leaf, whole=True)) is None or not all(np.all(np.isfinite(each)) for each in changes):
        return None
    have, want = changes
    if (ratio := factor_of(have, want)) is None:
        return None
    predicted = ratio * want
    if leaf.found is not None and leaf.found.dtype.kind in "iu":
        # Of small whole numbers, many are near to a multiple of others.
        if np.any(np.abs(predicted - np.round(predicted)) > _NEAR):
            return None
        predicted = np.round(predicted)
    if not explained_by_change(leaf, predicted):
        return None
    if have.size == 1:
        # One number is some factor of any other: only a factor that means something counts.
        clear = not rows or not are_counts(leaf, rows)
        simple = _simple(ratio) and (clear or not ratio or count in (round(ratio), round(1.0 / ratio)))
        return ratio if simple or (clear and rows and _whole(rows / ratio)) else None
    return ratio


def _whole(size: float) -> bool:
    return 1 <= size < 1e6 and abs(size - round(size)) < min(3e-4, 1e-5 * size)


def _simple(ratio: float) -> bool:
    near = Fraction(ratio).limit_denominator(64)
    return 1 in (near.numerator, near.denominator) and abs(ratio - float(near)) <= 1e-5 * abs(ratio) + 1e-12


def _claims(question: Question) -> Iterator[Cause]:
    count = len(question.devices)
    wrong, rows = question.wrong, _rows(question)
    known = [ratio for leaf in wrong if (ratio := ratio_of(leaf, rows, count)) is not None]
    if not known or len(known) < len(wrong) or any(abs(each - known[0]) > 1e-4 * abs(known[0]) for each in known):
        return
    ratio = known[0]
    states = all(leaf.part == "state" for leaf in wrong)
    what = variables_text(wrong) if states else listed([leaf.name for leaf in wrong])
    what = what if len(wrong) < 4 else f"{len(wrong)} {'variables' if states else 'results'}"
    verb = "is" if len(wrong) == 1 else "are"
    place = place_of(question, wrong[0])
    if abs(ratio) < 1e-12:
        why = "the gradient is stopped" if wrong[0].part == "gradients" else "the devices' results do not arrive"
        yield Cause(f"{what} {verb} zero: {why}", place)
    elif abs(ratio - count) < 1e-3 * count and count > 1:
        if states:
            why = (
                f"the {count} shards' means were added up instead of averaged, or a learning rate was multiplied by "
                f"{count}"
                if 0 < written(question, wrong[0]) < count
                else f"the update was made once for each of the {count} shards, not once for the batch"
            )
            yield Cause(f"{what} changed {count} times as much as in the single-device run: {why}", place)
        else:
            yield Cause(
                f"{what} {verb} {count} times too large, as if the results of {count} shards were added up although "
                "each is already a mean, or covers the whole batch",
                place,
                next_step="divide the sum by the number of shards, or weight each shard's result by its share of the "
                "rows",
            )
    elif abs(ratio * count - 1.0) < 1e-3 and count > 1:
        why = (
            f"{what} changed 1/{count} times as much as in the single-device run: a mean over the {count} shards was "
            f"divided by {count} again, or a learning rate was divided by {count}"
            if states
            else f"{what} {verb} {count} times too small, as if a sum over {count} shards were divided by {count} "
            "although the parts add up to the whole"
        )
        yield Cause(why, place)
    elif (
        ratio > 0
        and not _simple(ratio)
        and rows
        and _whole(size := rows / ratio)
        and _has_number(question, round(size))
    ):
        yield Cause(
            f"{f'the update of {what} is' if states else f'{what} {verb}'} divided by {round(size)} instead of by the "
            f"{rows} rows of the batch",
            place,
            next_step="divide by the number of rows of the whole batch",
        )
    elif any(leaf.found is not None and leaf.found.size > 1 for leaf in wrong) or _simple(ratio):
        text = f"{verb} {factor_text(ratio)} times the single-device result, in every element"
        if states:
            text = f"changed {factor_text(ratio)} times as much as in the single-device run"
            if abs(ratio - round(ratio)) < 1e-3 and 1 < round(ratio) <= written(question, wrong[0]):
                text = f"{verb} updated {round(ratio)} times instead of once"
        yield Cause(f"{what} {text}", place)


def _has_number(question: Question, number: int) -> bool:
    """Whether the program computes with this number: by chance, many factors are those of some number of rows."""
    steps = searched(question).steps
    arrays = (each for step in steps for each in (*step.results, *step.constants.values()) if each is not None)
    return any(each.size == 1 and each.dtype.kind in "iuf" and abs(each.item() - number) < _NEAR for each in arrays)


def _rows(question: Question) -> int | None:
    sizes = [array.shape[0] for array in question.input_arrays if array is not None and array.ndim]
    return max(sizes, default=None)


RULE = Rule("C403", "one-factor", "results off by a factor", _claims, by="results")
