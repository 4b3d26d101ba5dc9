"""Uneven shares: no row is lost, values and gradients are those of one device, and bad shares are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from harness import Devices, ShardingError, make_parallel, trace, verify
from harness.parallel.shards import Batch
from harness.parallel.shares import given_shares, shares_of


@settings(max_examples=60)
@given(rows=st.integers(0, 50), shares=st.lists(st.integers(1, 40), min_size=1, max_size=5), known=st.booleans())
def test_no_row_is_lost_and_each_device_has_its_share(rows: int, shares: list[int], known: bool) -> None:
    x = tf.range(rows)
    batch = Batch((x,), rows if known else tf.size(x), 0)
    places, sizes, pieces = batch.uneven(shares)
    assert [int(size) for size in sizes] == [len(piece[0]) for piece in pieces]
    np.testing.assert_array_equal(tf.concat([piece[0] for piece in pieces], 0), x)
    for place, size in zip(places, sizes, strict=True):
        assert abs(int(size) - rows * shares[place] / sum(shares)) < 1
    assert places[0] == 0
    assert rows == 0 or int(sizes[0]) > 0
    assert not known or rows == 0 or all(int(size) for size in sizes)


@pytest.mark.parametrize("count", [0, 1, 2, 9])
@pytest.mark.parametrize("mode", ["eager", "graph", "unknown batch"])
def test_values_and_gradients_are_those_of_one_device(devices: Devices, count: int, mode: str) -> None:
    weights = tf.Variable(tf.reshape(tf.range(15.0), [3, 5]) / 10)
    parallel = make_parallel(lambda x: tf.tanh(x @ weights), devices[:2], shares=[1, 3])
    x = tf.random.stateless_normal([count, 3], [1, 2])

    def both(call: Any, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(call(x) ** 2)
        return loss, tape.gradient(loss, weights)

    run: Any = lambda x: both(parallel, x)  # noqa: E731
    if mode != "eager":
        run = tf.function(run, input_signature=[tf.TensorSpec([None, 3])] if mode == "unknown batch" else None)
    for found, expected in zip(run(x), both(lambda x: tf.tanh(x @ weights), x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_each_device_gets_its_rows_and_verify_passes(devices: Devices) -> None:
    weights = tf.Variable(tf.ones([3, 5]))
    fn = lambda x: x @ weights  # noqa: E731
    parallel = make_parallel(fn, devices[:2], shares=[3, 1])
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    found = trace(tf.function(lambda: parallel(tf.constant(x))))
    assert len({op.device for op in found.ops if op.type == "MatMul"}) == 2
    verification = verify(parallel, fn, {"x": x}, devices=devices[:2], variables=[weights], prove=True)
    assert verification.verdict == "PASS", verification.findings
    assert str(verification.proof).startswith("proved for every input of these shapes")


def test_measured_shares_follow_the_rates(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares_of([1.0, 1.0, 1.01]) == (1, 1, 1)
    assert shares_of([1.0, 3.0]) == (3, 1)
    assert min(shares_of([1.0, 1e9])) == 1
    parallel = make_parallel(lambda x: x * 2.0, devices[:2], shares="auto")
    with pytest.raises(ShardingError, match=r"the first call is in a tf\.function"):
        tf.function(lambda: parallel(tf.ones([4])))()
    assert parallel(tf.ones([0])).shape == (0,)
    assert vars(parallel)["shares"] is None
    runs = []

    def seconds(run: Any) -> float:
        runs.append(run())
        return 1.0 if len(runs) == 1 else 3.0

    monkeypatch.setattr("harness.parallel.shares._seconds", seconds)
    x = tf.Variable(tf.ones([8]))
    with tf.GradientTape() as tape:
        found = parallel(x)
    assert parallel.shares == (3, 1)
    np.testing.assert_array_equal(tape.gradient(found, x), [2.0] * 8)
    np.testing.assert_array_equal(tf.function(lambda: parallel(x))(), [2.0] * 8)
    assert len(runs) == 2


@pytest.mark.parametrize(
    "shares", [[1], [1, 2, 3], [1, 0], [1, -1], [1, float("nan")], ["1", "2"], 3, "even", [1, 1001]]
)
def test_shares_that_are_not_usable_are_refused_in_one_line(devices: Devices, shares: Any) -> None:
    with pytest.raises(ShardingError, match=r"^shares=.*; accepted: 'auto', or 2 positive numbers") as error:
        make_parallel(lambda x: x, devices[:2], shares=shares)
    assert "\n" not in str(error.value)


def test_shares_may_be_any_numbers() -> None:
    assert given_shares([0.75, 0.25], 2) == (3, 1)
    assert given_shares((2, 4, 6), 3) == (1, 2, 3)
