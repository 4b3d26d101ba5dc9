"""Results are compared in blocks of little memory, and read without a copy: what is found does not depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.judgement import tolerance
from harness.judgement.runs import value_of
from harness.judgement.state import Snapshot
from harness.judgement.tolerance import Sensitivity
from harness.judgement.values import Judged, Subject, compare

SHAPE = (25, 40)


@pytest.mark.parametrize(("scale", "asked"), [(1.0, 0), (1e-4, 1)])
def test_the_rounding_of_each_op_is_measured_only_where_rounding_could_hide_a_fault(scale: float, asked: int) -> None:
    """Gradients that are nothing but rounding error, among gradients of this magnitude; a replay of each op is slow."""
    random = np.random.default_rng(1)
    expected = (1e-9 * random.normal(size=SHAPE)).astype(np.float32)
    change = np.full(SHAPE, 1e-5, np.float32)
    replayed: list[int] = []

    def rounded() -> Sensitivity:
        replayed.append(1)
        return Sensitivity(change, 4)

    judged = Judged()
    compare(
        judged,
        Subject("gradient-value", "gradient for variable bias", "eager"),
        -expected,
        expected,
        exact=False,
        measure=lambda _: Sensitivity(change, 4),
        rounded=rounded,
        scale=lambda: scale,
    )
    assert len(replayed) == asked
    assert len(judged.undecided) == asked
    assert not judged.findings


def compared(found: Any, expected: Any, block: int, monkeypatch: pytest.MonkeyPatch) -> Judged:
    monkeypatch.setattr(tolerance, "_BLOCK", block)
    judged = Judged()
    change = np.random.default_rng(2).uniform(0, 1e-7, SHAPE).astype(np.float32)
    compare(
        judged,
        Subject("value", "output", "eager"),
        found,
        expected,
        exact=False,
        measure=lambda _: Sensitivity(change, 4),
        rounded=lambda: Sensitivity(change * 2, 4, note="; of each op"),
    )
    return judged


@pytest.mark.parametrize("kind", ["equal", "rounding", "wrong", "far", "nan", "infinite", "ill-conditioned"])
def test_blocks_find_what_one_look_finds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    expected = random.normal(size=SHAPE).astype(np.float32)
    found = expected.copy()
    if kind == "rounding":
        found += np.float32(5e-7)
    if kind == "ill-conditioned":
        expected, found = expected * np.float32(1e-9), found * np.float32(2e-9)
    if kind in ("wrong", "far"):
        found[17, 3] += np.float32(1e-4 if kind == "wrong" else 1.0)
        found[20, 1] -= np.float32(2e-5)
    if kind == "nan":
        expected[3, 4] = found[3, 4] = found[9, 9] = np.nan
    if kind == "infinite":
        expected[3, 4] = found[3, 4] = found[9, 9] = np.inf
    whole = compared(found, expected, 10**6, monkeypatch)
    for block in (7, 300):
        assert compared(found, expected, block, monkeypatch) == whole
    assert len(whole.findings) == (kind in ("wrong", "far", "nan", "infinite"))
    if whole.findings:
        assert f"worst at [{17 if kind in ('wrong', 'far') else 9}, " in whole.findings[0].message
    assert len(whole.undecided) == (kind in ("nan", "ill-conditioned"))


@pytest.mark.parametrize("jit", [False, True])
def test_a_value_that_was_read_stays_when_its_variable_is_written_to(jit: bool) -> None:
    # XLA has no compiler for software GPUs.
    with tf.device("CPU:0" if jit else None):
        _read_and_write(jit)


def _read_and_write(jit: bool) -> None:
    start = np.arange(5000, dtype=np.float32)
    variable = tf.Variable(start)
    snapshot = Snapshot.of([variable])
    read = value_of(variable)
    add = tf.function(lambda: variable.assign_add(tf.ones([5000])), autograph=False, jit_compile=jit)
    optimizer = tf.keras.optimizers.SGD(0.5)
    for change in (
        add,
        lambda: variable.scatter_nd_update([[1]], [9.0]),
        lambda: optimizer.apply_gradients([(tf.ones([5000]), variable)]),
    ):
        change()
        assert not np.array_equal(value_of(variable), start)
        np.testing.assert_array_equal(read, start)
        snapshot.restore()
        np.testing.assert_array_equal(value_of(variable), start)
