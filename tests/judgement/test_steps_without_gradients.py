"""A step that updates all of its variables is judged by its results, though it takes no gradients itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify

X = np.random.default_rng(3).normal(size=(16, 3)).astype(np.float32) + np.repeat([[4.0], [-4.0]], 8, 0)
Y = (X[:, 0] > 0).astype(np.float32)

Sums = Callable[[Callable[..., Sequence[Any]], tuple[Any, ...]], list[Any]]


def _whole(fn: Callable[..., Sequence[Any]], batch: tuple[Any, ...]) -> list[Any]:
    return list(fn(*batch))


def _in_towers(devices: Devices, leave_out: int = 0) -> Sums:
    def sums(fn: Callable[..., Sequence[Any]], batch: tuple[Any, ...]) -> list[Any]:
        found = []
        parts = zip(*(tf.split(each, len(devices)) for each in batch), strict=True)
        for device, part in zip(devices, parts, strict=True):
            with tf.device(device.name):
                found.append(fn(*part))
        return [tf.add_n(list(each)) for each in zip(*found[leave_out:], strict=True)]

    return sums


def newton(weights: Any) -> Callable[[Sums], Callable[..., Any]]:
    def parts(x: Any, y: Any) -> tuple[Any, Any]:
        p = tf.sigmoid(tf.linalg.matvec(x, weights))
        slope = tf.linalg.matvec(x, p - y, transpose_a=True)
        return slope, tf.matmul(x * (p * (1.0 - p))[:, None], x, transpose_a=True)

    def made(sums: Sums) -> Callable[..., Any]:
        def step(x: Any, y: Any) -> Any:
            slope, curvature = sums(parts, (x, y))
            weights.assign_sub(tf.linalg.solve(curvature + tf.eye(3), slope[:, None])[:, 0])
            return tf.norm(slope)

        return step

    return made


def means_of_two_groups(means: Any) -> Callable[[Sums], Callable[..., Any]]:
    def parts(x: Any, y: Any) -> tuple[Any, Any, Any]:
        scores = -0.5 * tf.reduce_sum((x[:, None] - means) ** 2, -1)
        likely = tf.reduce_logsumexp(scores, 1)
        shares = tf.exp(scores - likely[:, None])
        return tf.reduce_sum(shares, 0), tf.matmul(shares, x, transpose_a=True), tf.reduce_sum(likely)

    def made(sums: Sums) -> Callable[..., Any]:
        def step(x: Any, y: Any) -> Any:
            count, total, likely = sums(parts, (x, y))
            means.assign(total / count[:, None])
            return likely

        return step

    return made


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("make", "start"), [(newton, np.array([0.1, -0.2, 0.3])), (means_of_two_groups, X[:2] + X[-2:] / 2)]
)
def test_no_derivative_of_an_update_is_asked_for(make: Any, start: Any, devices: Devices) -> None:
    variable = tf.Variable(start, dtype=tf.float32)
    step = make(variable)
    batch = {"x": X.astype(np.float32), "y": Y}

    def judged(leave_out: int, **options: Any) -> Any:
        parallel = step(_in_towers(devices, leave_out))
        return verify(parallel, step(_whole), batch, devices=devices, variables=[variable], **options)

    clean = judged(0)
    assert clean.verdict is Verdict.PASS, clean
    assert clean.exercised.gradients == 0, clean
    faulty = judged(1)
    assert faulty.verdict is Verdict.FAIL, faulty
    assert {finding.kind for finding in faulty.findings if finding.severity is Verdict.FAIL} == {"value"}, faulty
    wanted = judged(0, gradients=True)
    assert [finding.kind for finding in wanted.findings] == ["gradient-placement"], wanted


@pytest.mark.cases(1)
@pytest.mark.parametrize("updated", ["an average", "nothing"])
def test_a_model_that_updates_an_average_has_gradients(updated: str, devices: Devices) -> None:
    weights, average = tf.Variable(np.eye(3, dtype=np.float32)), tf.Variable(tf.zeros(3))

    def model(x: Any) -> Any:
        return tf.tanh(x @ weights)

    def followed(rows: Any) -> Any:
        if updated == "an average":
            average.assign(0.9 * average + 0.1 * tf.reduce_mean(rows, 0))
        return rows

    def parallel(x: Any) -> Any:
        rows = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                rows.append(model(part))
        return followed(tf.concat(rows, 0))

    for named in ([weights, average], [average]):
        verified = verify(
            parallel, lambda x: followed(model(x)), {"x": X.astype(np.float32)}, devices=devices, variables=named
        )
        assert [finding.kind for finding in verified.findings] == ["gradient-placement"], verified
