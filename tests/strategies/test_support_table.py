"""Runs what the table says TensorFlow supports, and what it leaves out for want of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.errors import UsageError
from harness.strategies import (
    FLOATS,
    KINDS,
    Activation,
    Argmax,
    Argument,
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
    Program,
    Reduce,
    Remap,
    Reshape,
    Select,
    Slice,
    Step,
    Transpose,
    Variable,
    programs,
    recipes,
)
from harness.strategies.steps.features import NORMALISATIONS, SMOOTH_ACTIVATIONS

ARGUMENTS = (
    Argument("x", (4, 3)),
    Argument("y", (4, 3)),
    Argument("z", (4, 5, 3)),
    Argument("ids", (2,), "int32", below=4),
    Argument("wide", (2,), "int64", below=4),
    Argument("mask", (4,), "bool"),
)
VARIABLES = (
    Variable("w3", (3,), "bias"),
    Variable("w32", (3, 2)),
    Variable("w23", (2, 3)),
    Variable("table", (4, 3), "table"),
    Variable("k234", (2, 3, 4)),
    Variable("k2235", (2, 2, 3, 5)),
)


def steps_for(dtype: str, *, exact: bool) -> tuple[Step, ...]:
    """Every kind and variant that the table has for a type, each on the arguments alone."""
    kinds = recipes.kinds(dtype, exact=exact)
    steps: list[Step] = [
        *(Activation("x", fn) for fn in recipes.activations(dtype, exact=exact)),
        *(Combine(how, "x", "y") for how in recipes.combinations(dtype, exact=exact)),
        *(Reduce("x", how) for how in recipes.reductions(dtype, exact=exact)),
        *(Pool("x", how) for how in recipes.pools(dtype, exact=exact)),
        *(Normalise("x", how, 0.1) for how in NORMALISATIONS),
        *(Branch(on, "x", "w3", "w3") for on in ("variable", "rows", "static")),
        *(Loop(how, "x", "w3", 2, ids="ids" if how == "rows" else None) for how in ("python", "while", "rows")),
        *(Embed(ids, "table", at_variable=at) for ids in ("ids", "wide") for at in (False, True)),
        *(Bias("x", "w3", fused=fused) for fused in (False, True)),
        Gain("x", "w3"),
        Dense("x", "w32"),
        Dense("x", "w23", transposed=True),
        Reshape("x", (3, 4)),
        Transpose("z", (2, 0, 1)),
        Slice("x", 1, 2),
        Gather("x", (2, 0, 2)),
        Einsum("bij,jo->bio", "x", "w32"),
        Einsum("bij,bij->bi", "x", "y"),
        Conv1d("x", "k234"),
        Conv2d("z", "k2235"),
        Conv2d("z", "k2235", 2, "VALID"),
        Select("mask", "x", "y"),
        Select("y", "x"),
        Pick("x", "ids"),
        Pick("x", "wide"),
        Remap("wide", 3, 1, 5),
        Argmax("x"),
    ]
    if not exact and dtype in FLOATS:
        steps.append(Loop("rows", "x", "w32", 2, "w23", "wide"))
    return tuple(step for step in steps if step.KIND in kinds)


@pytest.mark.cases("int32-False")
@pytest.mark.parametrize(
    ("dtype", "exact"), [*((dtype, False) for dtype in FLOATS), ("float16", True), ("int64", False), ("int32", False)]
)
def test_every_step_of_the_table_runs_and_has_a_gradient(dtype: str, exact: bool) -> None:
    steps = steps_for(dtype, exact=exact)
    run_forward_and_backward(steps, dtype, exact=exact, rows=6)
    run_forward_and_backward(tuple(step for step in steps if not step.needs_rows), dtype, exact=exact, rows=0)
    assert {step.KIND for step in steps} == set(recipes.kinds(dtype, exact=exact))


def run_forward_and_backward(steps: tuple[Step, ...], dtype: str, *, exact: bool, rows: int) -> None:
    outputs = tuple((f"o{index}", f"v{index}") for index in range(len(steps)))
    program = Program(ARGUMENTS, VARIABLES, steps, outputs, dtype=dtype, rows=rows, exact=exact)
    built = program.build()

    def forward_and_backward(inputs: dict[str, Any]) -> tuple[Any, Any]:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([inputs["x"], inputs["z"]] if program.differentiable else [])
            results = built.fn(**inputs)
        if not program.differentiable:
            return results, []
        floats = {name: result for name, result in results.items() if result.dtype.is_floating}
        sources = [inputs["x"], inputs["z"], *built.variables]
        return results, {name: tape.gradient(result, sources) for name, result in floats.items()}

    graph = tf.function(forward_and_backward, input_signature=[built.signature], autograph=False)
    inputs = tf.nest.map_structure(tf.constant, program.inputs())
    for run in (forward_and_backward, graph):
        results, gradients = run(inputs)
        for name, result in results.items():
            assert result.shape[0] == rows
            assert np.isfinite(result.numpy().astype(float)).all(), steps[int(name[1:])]
        for name, own in (gradients or {}).items():
            step = steps[int(name[1:])]
            there = [gradient for gradient in own if gradient is not None]
            assert there, step
            for gradient in there:
                assert np.isfinite(tf.convert_to_tensor(gradient).numpy().astype(float)).all(), step


def test_what_gpus_have_no_kernel_for_is_left_out_for_integers_alone() -> None:
    for dtype in ("int32", "int64"):
        assert not set(recipes.NO_INTEGERS_ON_GPUS) & set(recipes.kinds(dtype, exact=False))
        assert set(recipes.NO_INTEGERS_ON_GPUS) <= set(recipes.kinds("float16", exact=True))


NO_KERNEL: list[Step] = [
    *(Activation("x", fn) for fn in SMOOTH_ACTIVATIONS if fn != "gelu"),
    *(Normalise("x", how) for how in NORMALISATIONS),
    Reduce("x", "logsumexp"),
    Conv1d("x", "k"),
    Pool("x", "avg"),
]


@pytest.mark.parametrize("step", NO_KERNEL, ids=repr)
def test_what_is_left_out_for_integers_has_no_kernel(step: Step) -> None:
    numbers = np.arange(1, 25).reshape(2, 4, 3)
    floats = {"x": tf.constant(numbers / 8), "k": tf.ones((2, 3, 4), tf.float64)}
    step.apply(floats)
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError, TypeError, ValueError)):
        step.apply({name: tf.cast(value, tf.int64) for name, value in floats.items()})


def test_half_precision_has_no_kinks_unless_it_is_exact() -> None:
    for dtype in ("float16", "bfloat16"):
        assert set(recipes.activations(dtype, exact=False)) <= set(SMOOTH_ACTIVATIONS)
        assert "maximum" not in recipes.combinations(dtype, exact=False)
        assert "max" not in (*recipes.reductions(dtype, exact=False), *recipes.pools(dtype, exact=False))
        assert "maximum" in recipes.combinations(dtype, exact=True)
    assert {"relu", "abs"} <= set(recipes.activations("float32", exact=False))


def test_floats_have_every_kind_and_unknown_kinds_are_named() -> None:
    for dtype in FLOATS:
        assert recipes.kinds(dtype, exact=False) == KINDS
    with pytest.raises(UsageError, match="kinds=\\('dens',\\)"):
        programs(kinds=("dens",))
