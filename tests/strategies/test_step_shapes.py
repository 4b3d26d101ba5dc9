from __future__ import annotations

import pytest

from harness.errors import InvalidProgram
from harness.strategies import (
    KINDS,
    Activation,
    Argmax,
    Bias,
    Branch,
    Combine,
    Conv1d,
    Conv2d,
    Dense,
    Einsum,
    Embed,
    Gain,
    Gather,
    Loop,
    Normalise,
    Pick,
    Pool,
    Reduce,
    Remap,
    Reshape,
    Select,
    Slice,
    Step,
    Transpose,
)
from harness.strategies.definition import infer
from harness.strategies.steps.step import Value

TYPES: dict[str, Value] = {
    "x3": Value((3,), "float32", 2.0, stable=True),
    "y3": Value((3,), "float32", 1.0),
    "x53": Value((5, 3), "float32", 2.0),
    "x456": Value((4, 5, 6), "float32", 2.0),
    "scalar": Value((), "float32", 2.0, stable=True),
    "mask5": Value((5,), "bool", 1.0, stable=True),
    "ids2": Value((2,), "int32", 4.0, stable=True, below=5),
    "w3": Value((3,), "float32", 0.5, batched=False),
    "w5": Value((5,), "float32", 0.5, batched=False),
    "w32": Value((3, 2), "float32", 0.5, batched=False),
    "w23": Value((2, 3), "float32", 0.5, batched=False),
    "w53": Value((5, 3), "float32", 0.5, batched=False),
    "k234": Value((2, 3, 4), "float32", 0.5, batched=False),
    "k2367": Value((2, 3, 6, 7), "float32", 0.5, batched=False),
}

FITTING: list[tuple[Step, tuple[int, ...], float]] = [
    (Activation("x3", "tanh"), (3,), 1.0),
    (Activation("x53", "softmax"), (5, 3), 1.0),
    (Activation("scalar", "relu"), (), 2.0),
    (Bias("x53", "w53"), (5, 3), 2.5),
    (Bias("x53", "w3", fused=True), (5, 3), 2.5),
    (Gain("x53", "w3"), (5, 3), 1.0),
    (Dense("x53", "w32"), (5, 2), 3.0),
    (Dense("x53", "w23", transposed=True), (5, 2), 3.0),
    (Combine("add", "x3", "y3"), (3,), 3.0),
    (Combine("mul", "x3", "y3"), (3,), 2.0),
    (Combine("maximum", "x3", "y3"), (3,), 2.0),
    (Combine("concat", "x3", "y3"), (6,), 2.0),
    (Combine("stack", "x3", "y3"), (2, 3), 2.0),
    (Reduce("x53", "sum"), (3,), 10.0),
    (Reduce("x53", "mean", axis=1), (5,), 2.0),
    (Reshape("x53", (3, 5)), (3, 5), 2.0),
    (Transpose("x456", (2, 0, 1)), (6, 4, 5), 2.0),
    (Slice("x53", 1, 2), (5, 2), 2.0),
    (Gather("x53", (2, 2, 0, 1)), (5, 4), 2.0),
    (Normalise("x53", "length"), (5, 3), 1.0),
    (Einsum("bij,jo->bio", "x53", "w32"), (5, 2), 3.0),
    (Einsum("bi,bj->bij", "x3", "y3"), (3, 3), 2.0),
    (Einsum("bij,bj->bi", "x53", "x3"), (5,), 12.0),
    (Conv1d("x53", "k234"), (5, 4), 6.0),
    (Conv1d("x53", "k234", 2, "VALID"), (2, 4), 6.0),
    (Conv2d("x456", "k2367", padding="VALID"), (3, 3, 7), 36.0),
    (Pool("x53"), (2, 3), 2.0),
    (Select("mask5", "x53"), (5, 3), 2.0),
    (Select("x3", "y3", "x3"), (3,), 2.0),
    (Pick("x53", "ids2"), (2, 3), 2.0),
    (Embed("ids2", "w53"), (2, 3), 0.5),
    (Remap("ids2", 3, 1, 7), (2,), 6.0),
    (Argmax("x3"), (), 2.0),
    (Branch("rows", "x53", "w3", "w3"), (5, 3), 2.5),
    (Loop("while", "x53", "w3", 3), (5, 3), 3.5),
    (Loop("rows", "x53", "w32", 2, "w23", "ids2"), (5, 3), 2.0),
]

UNFITTING: list[tuple[Step, str]] = [
    (Activation("x3", "cosh"), "fn='cosh'"),
    (Activation("scalar", "softmax"), "no features"),
    (Activation("w3", "tanh"), "'w3' has no batch axis"),
    (Bias("x53", "w5"), r"b has shape \(5,\)"),
    (Bias("x53", "w53", fused=True), "a vector"),
    (Bias("x53", "x3"), "b has shape"),
    (Gain("x3", "w53"), "g has shape"),
    (Dense("x53", "w23"), "a last axis of 2"),
    (Dense("w53", "w32"), "'w53' has no batch axis"),
    (Dense("x3", "w3"), "a matrix"),
    (Combine("add", "x3", "x53"), "matching features"),
    (Combine("add", "x3", "w3"), "matching features"),
    (Combine("add", "ids2", "mask5"), "matching features"),
    (Combine("xor", "x3", "y3"), "how='xor'"),
    (Reduce("x53", "sum", axis=2), "axis=2"),
    (Reduce("x53", "median"), "how='median'"),
    (Reshape("x53", (4, 4)), "15 features per row"),
    (Transpose("x53", (0, 0)), "a permutation of the axes"),
    (Slice("x53", 2, 2), "within the last axis"),
    (Gather("x53", (3,)), "indices into the last axis"),
    (Normalise("scalar"), "'scalar' has no features"),
    (Normalise("x3", eps=0.0), "eps=0.0"),
    (Einsum("bij,ij->bi", "x53", "w32"), "'i' is both 5 and 3"),
    (Einsum("bi,bj->bij", "x3", "w3"), "a letter for each axis"),
    (Einsum("bi,i->bz", "x3", "w3"), "letters of the operands"),
    (Einsum("bi->b", "x3", "w3"), "equation="),
    (Conv1d("x456", "k234"), "matching channels"),
    (Conv1d("x53", "k234", 0), "a kernel that fits"),
    (Conv1d("x53", "k234", padding="FULL"), "'SAME' or 'VALID'"),
    (Conv2d("x53", "k2367"), "matching channels"),
    (Pool("x3"), "length of 2"),
    (Pool("x53", "min"), "how='min'"),
    (Pool("w53"), "'w53' has no batch axis"),
    (Select("y3", "x3"), "depends on rounding"),
    (Select("x3", "x53"), "the start of"),
    (Select("mask5", "x53", "x3"), "the shape and type of x"),
    (Select("mask5", "w53"), "x='w53' has no batch axis"),
    (Pick("x3", "ids2"), "ids='ids2' goes up to 4; accepted: integers from 0 to 2"),
    (Embed("ids2", "w32"), "ids='ids2' goes up to 4; accepted: integers from 0 to 2"),
    (Embed("x3", "w53"), "ids='x3' is not an index with the batch axis"),
    (Embed("ids2", "x53"), "table='x53' has shape"),
    (Pick("scalar", "ids2"), "x='scalar' has no features"),
    (Remap("x3", 1, 1, 3), "is not an index"),
    (Remap("ids2", 1, 1, 0), "below >= 1"),
    (Argmax("y3"), "depends on rounding"),
    (Branch("values", "x3", "w3", "w3"), "on='values'"),
    (Branch("rows", "x3", "w5", "w5"), "the shape of the last axis"),
    (Loop("for", "x3", "w3", 1), "how='for'"),
    (Loop("while", "x3", "w3", 5), "trips=5"),
    (Loop("while", "x3", "w3", 1, ids="ids2"), "with how='rows'"),
    (Loop("rows", "x3", "w3", 1), "with how='rows'"),
    (Loop("while", "x3", "w5", 1), "the shape of the last axis"),
    (Loop("while", "x53", "x3", 1), "the shape of the last axis"),
    (Loop("while", "x53", "w32", 1, "w32"), r"w \(i, j\), v \(j, i\)"),
]


@pytest.mark.parametrize(("step", "shape", "bound"), FITTING, ids=repr)
def test_a_step_that_fits_knows_shape_and_largest_magnitude(step: Step, shape: tuple[int, ...], bound: float) -> None:
    value = infer(step, TYPES, exact=False)
    assert value.shape == shape
    assert value.bound == pytest.approx(bound)
    assert value.batched


@pytest.mark.parametrize(("step", "message"), UNFITTING, ids=repr)
def test_a_step_that_does_not_fit_is_refused(step: Step, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        infer(step, TYPES, exact=False)


def test_each_kind_is_seen_to_fit_and_not_to_fit() -> None:
    assert {step.KIND for step, _, _ in FITTING} == {step.KIND for step, _ in UNFITTING} == set(KINDS)


def test_a_step_reads_its_operands_in_order() -> None:
    for step, _, _ in FITTING:
        assert step.reads
        assert all(name in TYPES for name in step.reads)
    assert Loop("rows", "x3", "w3", 2, ids="ids2").reads == ("x3", "w3", "ids2")
    assert Select("x3", "y3").reads == ("x3", "y3")
