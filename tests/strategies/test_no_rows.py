"""Programs on a batch of 0 rows: no step is generated that oneDNN's kernels abort or fail on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from harness.errors import InvalidProgram
from harness.strategies import (
    Argument,
    Bias,
    Conv1d,
    Conv2d,
    Pool,
    Program,
    Step,
    Variable,
    programs,
    sample,
)


def program(step: Step, *more: Step, rows: int) -> Program:
    return Program(
        (Argument("x", (4, 3)), Argument("z", (4, 5, 3))),
        (Variable("k1", (2, 3, 4)), Variable("k2", (2, 2, 3, 4)), Variable("b", (4,), "bias")),
        (step, *more),
        (("", f"v{len(more)}"),),
        rows=rows,
    )


@pytest.mark.parametrize("step", [Pool("x", "max"), Conv1d("x", "k1"), Conv2d("z", "k2")], ids=repr)
def test_a_step_that_needs_rows_is_refused_without_any(step: Step) -> None:
    accepted = r"rows=0; accepted: 1 or more, because oneDNN fails on 0 rows"
    with pytest.raises(InvalidProgram, match=accepted):
        program(step, rows=0)
    one = program(step, rows=1)
    with pytest.raises(InvalidProgram, match=accepted):
        one.inputs(rows=0)
    assert one.inputs()["x"].shape == (1, 4, 3)


def test_a_step_that_needs_none_is_accepted_without_rows() -> None:
    assert program(Pool("x", "avg"), rows=0).inputs()["x"].shape == (0, 4, 3)


def test_generated_programs_have_such_steps_with_rows_and_none_without() -> None:
    for least, most in ((0, 0), (1, 13)):
        drawn = sample(programs(min_rows=least, max_rows=most), 300, seed=3)
        needing = {step.KIND for one in drawn for step in one.steps if step.needs_rows}
        assert needing == (set() if most == 0 else {"pool", "conv1d", "conv2d"})


def take_a_gradient_of_a_pool() -> None:
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = Pool("x", "max").apply({"x": x})
        return tape.gradient(result, x)

    assert gradient(tf.ones([0, 4, 3])).shape == (0, 4, 3)


def convolve_nothing() -> None:
    import tensorflow as tf

    values = {"x": tf.ones([0, 4, 3]), "k": tf.ones([2, 3, 4]), "b": tf.ones([4])}
    values["v0"] = Conv1d("x", "k").apply(values)
    assert Bias("v0", "b").apply(values).shape == (0, 4, 4)


@pytest.mark.parametrize(
    ("run", "failure"),
    [
        (take_a_gradient_of_a_pool, r"Check failed: dtype\(\) == expected_dtype"),
        (convolve_nothing, "Incompatible shapes"),
    ],
)
def test_what_onednn_does_on_0_rows(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]], run: Callable[[], None], failure: str
) -> None:
    """Facts of TensorFlow 2.21. Where this fails, TensorFlow was mended, and ``Step.needs_rows`` may go."""
    fresh_process(run, TF_ENABLE_ONEDNN_OPTS="0")
    with pytest.raises(AssertionError, match=failure):
        fresh_process(run, TF_ENABLE_ONEDNN_OPTS="1")
