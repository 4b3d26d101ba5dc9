"""Looks again with other numbers, where those that were given may hide that the programs differ.

They may, where all rows of a batch are equal, where the reference's results or some of the weights are zeros, and where
a proof shows that the programs differ for some numbers. Then both programs run once more, with each floating variable
and input changed a little; but a variable that the program sets to the value that it was given, such as an accumulator
that is zero between two steps, never has another one. What is proved equal needs no second look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.judgement.runs import Mode, rows_alike, same_bits, to_array, value_of
from harness.judgement.state import Snapshot, put
from harness.judgement.uses import uses_noted
from harness.judgement.verification import VALUE_KINDS, Verification
from harness.lazy import tf
from harness.proof.claim import Proof
from harness.records import Finding, Verdict

if TYPE_CHECKING:
    from harness.judgement.examine import Examination

#: What a PASS says where no second look was possible.
ROWS_ALIKE = ". All rows of the inputs are equal: a wrong order of rows would go unnoticed; give rows that differ"
_SAID = "With these numbers the results agree; with others they do not"
#: The look is taken in the first of these modes that was asked for: the cheaper ones first.
_MODES: tuple[Mode, ...] = ("graph", "dynamic", "eager")


def looked_again(
    found: Verification,
    examination: Examination,
    proof: Proof | None,
    judge: Callable[[Mapping[str, Any], Mode], Verification],
) -> Verification:
    """The verification, or one that fails because the programs differ for other numbers.

    ``judge`` verifies both programs with other inputs in one mode.
    """
    mode = next((mode for mode in _MODES if mode in examination.traces), None)
    if mode is None or found.verdict not in (Verdict.PASS, Verdict.WARN) or not _may_hide(examination, proof):
        return found
    with _changed(examination, ()) as (inputs, given):
        other = judge(inputs, mode)
        by_place = len(_floats(inputs)) == 1
        reset = _reset(examination, mode, given) if _differ(other) else []
    if reset:
        with _changed(examination, reset) as (inputs, _):
            other = judge(inputs, mode)
    differ = _differ(other)
    if not differ or any(each.kind == "nondeterminism" for each in differ):
        return replace(found, reason=found.reason.replace(ROWS_ALIKE, "")) if by_place else found
    reason = f"{_SAID}: {other.reason}"
    return replace(found, verdict=Verdict.FAIL, reason=reason, findings=(*found.findings, *differ))


def _may_hide(examination: Examination, proof: Proof | None) -> bool:
    # Arithmetic that is exact by the caller's word may not be so for other numbers.
    if examination.exact or (proof is not None and proof.proved) or examination.programs == 0:
        return False
    if proof is not None and any(each.refuted for each in proof.results):
        return True
    outputs = [array for each in examination.expected.values() for array in each.outputs]
    floats = [array for array in outputs if array is not None and array.dtype.kind == "f"]
    nothing = bool(floats) and not any(map(np.any, floats))
    return nothing or rows_alike(examination.parallel, examination.inputs) or any(map(_shuts, examination.state))


def _shuts(variable: Any) -> bool:
    """Whether a variable hides what it is multiplied with: a gate or a layer of zeros. A bias hides nothing."""
    if not (variable.dtype.is_floating and getattr(variable, "trainable", False)) or variable.shape.rank == 1:
        return False
    value = value_of(variable)
    return value is not None and value.size > 0 and not np.any(value)


def _differ(other: Verification) -> tuple[Finding, ...]:
    return tuple(each for each in other.findings if each.kind in VALUE_KINDS and each.severity is Verdict.FAIL)


def _reset(examination: Examination, mode: Mode, given: Snapshot) -> list[Any]:
    """The changed variables that the program sets to the values that were given: it starts with no others."""
    changed, program = Snapshot.of(list(examination.state)), examination.tested
    try:
        with uses_noted(changed):  # so that its hash tables are restored too
            program.runner(mode)(*program.arguments(mode))
        starts, ends = changed.starts, [value_of(each) for each in given.variables]
    finally:
        changed.restore()
    return [
        variable
        for variable, end, value in zip(given.variables, ends, given.values, strict=True)
        if same_bits(end, value) and not same_bits(starts[id(variable)], value)
    ]


@contextmanager
def _changed(examination: Examination, kept: Sequence[Any]) -> Iterator[tuple[Mapping[str, Any], Snapshot]]:
    """Change all floating variables but the kept ones for the body, and give it other inputs and the given values."""
    floats = [each for each in examination.state if each.dtype.is_floating]
    before = Snapshot.of([each for each in floats if not any(each is other for other in kept)])
    try:
        for variable, value in zip(before.variables, before.values, strict=True):
            put(variable, _by_value(np.asarray(value)))
        yield _other_inputs(examination), before
    finally:
        before.restore()


def _other_inputs(examination: Examination) -> Mapping[str, Any]:
    leaves = _floats(examination.inputs)

    def other(leaf: Any) -> Any:
        if not any(leaf is each for each in leaves):
            return leaf
        array = to_array(leaf)
        if array is None:
            return leaf
        # Several inputs may be parts of each other, which has to stay so.
        changed = _by_place(array) if len(leaves) == 1 else _by_value(array)
        with tf.device(leaf.device):
            return tf.constant(changed, leaf.dtype)

    return tf.nest.map_structure(other, dict(examination.inputs))  # type: ignore[no-any-return]


def _floats(inputs: Mapping[str, Any]) -> list[Any]:
    return [leaf for leaf in tf.nest.flatten(inputs) if tf.is_tensor(leaf) and leaf.dtype.is_floating]


def _by_value(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers that are changed by what they are: copies, slices and orders stay so, and so do signs, but for zeros."""
    numbers = np.asarray(array, np.float64)
    return (numbers + 0.02 * np.sin(37 * numbers) + 0.03 * (numbers >= 0)).astype(array.dtype)


def _by_place(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers that are changed by where they are, by up to a tenth; zeros only if there is nothing else."""
    drawn = np.random.default_rng(0).uniform(-0.1, 0.1, array.shape)
    numbers = np.asarray(array, np.float64)
    return (numbers * (1 + drawn) if numbers.any() else np.abs(drawn)).astype(array.dtype)
