"""Results that are the reference's, changed as a whole: N times, 1/N, shifted, swapped, transposed, or zero."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from harness.judgement.diagnosis.chance import are_counts
from harness.judgement.diagnosis.leaves import (
    changes_of,
    explained_by_change,
    explains,
    factor_of,
    handle_of,
    variables_text,
)
from harness.judgement.diagnosis.question import Cause, Leaf, Question
from harness.judgement.diagnosis.search import searched
from harness.judgement.diagnosis.wording import factor_text, listed
from harness.judgement.fields import in_fields
from harness.judgement.tolerance import epsilon_of

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


def one_factor(question: Question) -> Iterator[Cause]:
    """All differing results are a factor of the reference's, those of one step the same factor."""
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


def place_of(question: Question, leaf: Leaf) -> str | None:
    """Where the program under test makes a result, or writes to a variable."""
    seen = question.seen
    if leaf.part == "outputs" and leaf.index < len(seen.output_places):
        return seen.output_places[leaf.index]
    if leaf.part == "state":
        return seen.write_places.get(handle_of(question.watched[leaf.index]))
    return None


def written(question: Question, leaf: Leaf) -> int:
    """How often the program under test writes to a variable in one call."""
    return question.seen.writes[handle_of(question.watched[leaf.index])]


def other_dtype(question: Question) -> Iterator[Cause]:
    """The values are right, and the dtype is another."""
    pairs = [(leaf, leaf.found, leaf.expected) for leaf in question.wrong]
    for _, found, expected in pairs:
        if found is None or expected is None or found.dtype == expected.dtype or found.shape != expected.shape:
            return
        if not np.issubdtype(found.dtype, np.number) or not np.issubdtype(expected.dtype, np.number):
            return
        coarse = max(epsilon_of(found.dtype), epsilon_of(expected.dtype))
        size = float(np.max(np.abs(expected), initial=0.0))
        if not np.allclose(found, expected, rtol=0.0, atol=64.0 * coarse * size, equal_nan=True):
            return
    if pairs:
        leaf, found, expected = pairs[0]
        assert found is not None
        assert expected is not None
        yield Cause(
            f"{leaf.name} is cast to {found.dtype}: its values match the reference's, which are {expected.dtype}",
            place_of(question, leaf),
            next_step=f"return {expected.dtype} from both programs",
        )


def of_another(question: Question) -> Iterator[Cause]:
    """Each variable that differs is changed as the reference changes another one."""
    partner: dict[str, Leaf] = {}
    for leaf in question.wrong:
        if leaf.part != "state" or leaf.start is None or leaf.found is None:
            return
        for other in question.leaves:
            if other is leaf or other.start is None or other.expected is None or other.start.shape != leaf.start.shape:
                continue
            if np.array_equal(other.expected, other.start) or changes_of(leaf) is None:
                continue
            if explained_by_change(leaf, other.expected.astype(np.float64) - other.start):
                partner[leaf.name] = other
    if partner and len(partner) == len(question.wrong):
        first = question.wrong[0]
        yield Cause(
            f"{variables_text([first])} gets the update of {variables_text([partner[first.name]])}: the gradients of "
            "another member, or another layer, are applied to it",
            place_of(question, first),
            next_step="pair each variable with its own gradient",
        )


def swapped(question: Question) -> Iterator[Cause]:
    """Two outputs, or two variables, have each other's values."""
    by_part = [leaf for leaf in question.wrong if leaf.found is not None and leaf.expected is not None]
    if any(leaf.part == "outputs" for leaf in by_part):
        # Gradients of swapped outputs may be swapped too.
        by_part = [leaf for leaf in by_part if leaf.part != "gradients"]
    partner: dict[str, str] = {}
    for leaf in by_part:
        for other in by_part:
            if other is not leaf and other.part == leaf.part and leaf.explained_by(other.expected):
                partner[leaf.name] = other.name
    if len(partner) > 1 and (len(partner) == len(question.wrong) or _gradients_follow(question, partner)):
        names = sorted(partner)
        yield Cause(
            f"{listed(names)} are in the wrong order: {names[0]} has the value of {partner[names[0]]}",
            place_of(question, question.wrong[0]),
            at_join=True,
        )


def _gradients_follow(question: Question, partner: dict[str, str]) -> bool:
    """Whether all that differs besides these outputs are the gradients that the reference has with them swapped."""
    import tensorflow as tf

    rest = [leaf for leaf in question.wrong if leaf.name not in partner]
    number = {leaf.name: leaf.index for leaf in question.leaves if leaf.part == "outputs"}
    if any(leaf.part != "gradients" for leaf in rest) or not set(partner) <= set(number):
        return False

    def exchanged(**inputs: Any) -> Any:
        outputs = in_fields(question.reference.fn(**inputs))
        flat = tf.nest.flatten(outputs)
        other = {number[name]: number[theirs] for name, theirs in partner.items()}
        return tf.nest.pack_sequence_as(outputs, [flat[other.get(at, at)] for at in range(len(flat))])

    return explains(question.run(exchanged), rest)


def rearranged(question: Question) -> Iterator[Cause]:
    """Outputs are transposed, or joined along another axis, so that elements stand elsewhere."""
    how = []
    for leaf in question.wrong:
        if (text := _rearrangement(question, leaf)) is None:
            return
        how.append(text)
    if how:
        yield Cause(f"{question.wrong[0].name} {how[0]}", place_of(question, question.wrong[0]))


def _rearrangement(question: Question, leaf: Leaf) -> str | None:
    found, expected = leaf.found, leaf.expected
    if found is None or expected is None or leaf.part != "outputs" or found.size != expected.size:
        return None
    for one in range(expected.ndim):
        for other in range(one + 1, expected.ndim):
            if leaf.explained_by(np.swapaxes(expected, one, other)):
                stacks = (step for step in searched(question).steps if step.kind == "Pack")
                if any(step.result is not None and leaf.explained_by(step.result) for step in stacks):
                    return f"is transposed: the results of the shards are stacked along axis {other} instead of {one}"
                return f"is transposed: its axes {one} and {other} are exchanged"
    count = len(question.devices)
    for parts in sorted({count, *(size for size in found.shape if size > 1), *range(2, 9)}, key=lambda n: n != count):
        for axis in range(expected.ndim):
            if expected.shape[axis] % parts:
                continue
            pieces = np.split(expected, parts, axis=axis)
            for join in range(expected.ndim):
                if join != axis and leaf.explained_by(np.concatenate(pieces, axis=join)):
                    return f"is joined along axis {join}, but it was split along axis {axis}"
            for join in range(expected.ndim + 1):
                if leaf.explained_by(np.stack(pieces, axis=join)):
                    return f"is stacked along a new axis {join}; the shards' rows have to be concatenated"
    if found.shape != expected.shape and leaf.explained_by(expected.reshape(found.shape)):
        return (
            f"has the shape {list(found.shape)} instead of {list(expected.shape)}, with the elements in the same order"
        )
    return None


def other_signs(question: Question) -> Iterator[Cause]:
    """The numbers are the reference's, but some have the opposite sign."""
    wrong = question.wrong
    for leaf in wrong:
        changes = changes_of(leaf)
        if changes is None or changes[0].size < 2 or not explained_by_change(leaf, np.copysign(*reversed(changes))):
            return
    if wrong:
        yield Cause(
            f"some elements of {listed([leaf.name for leaf in wrong])} have the opposite sign, and are otherwise right",
            place_of(question, wrong[0]),
            next_step="if a decomposition does not determine the signs, choose them alike in both programs: for QR, "
            "multiply the rows of R and the columns of Q by the signs of R's diagonal",
        )


def off_by_a_constant(question: Question) -> Iterator[Cause]:
    """Each element is off by the same number."""
    offsets = []
    for leaf in question.wrong:
        if (changes := changes_of(leaf)) is None or changes[0].size < 2:
            return
        have, want = changes
        offset = float(np.mean(have - want))
        if not np.isfinite(offset) or not explained_by_change(leaf, want + offset):
            return
        offsets.append(offset)
    if offsets:
        wrong = question.wrong
        sentence = f"every element of {listed([leaf.name for leaf in wrong])} is off by {factor_text(offsets[0])}"
        yield Cause(sentence, place_of(question, wrong[0]))
