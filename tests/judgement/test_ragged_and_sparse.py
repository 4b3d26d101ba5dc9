"""Results that are ragged or sparse: equal ones pass, and values in other places are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, colocate_gradients, verify
from harness.errors import UsageError

X = np.random.default_rng(3).normal(size=(8, 4)).astype(np.float32)


def ragged(lengths: Any) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        return tf.RaggedTensor.from_tensor(tf.tanh(x), lengths=lengths)

    return fn


def sparse(x: Any) -> Any:
    return tf.sparse.from_dense(tf.nn.relu(x))


def halves(devices: Devices, fn: Callable[[Any], Any], join: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    def program(x: Any) -> Any:
        parts = []
        for device, part in zip(devices[:2], tf.split(x, 2), strict=True):
            with tf.device(device.name):
                parts.append(fn(part))
        return join(parts)

    return program


def test_equal_ones_pass(devices: Devices) -> None:
    lengths = [1, 2, 3, 4]
    for fn, join in (
        (ragged(lengths), lambda parts: tf.concat(parts, axis=0)),
        (sparse, lambda parts: tf.sparse.concat(0, parts)),
    ):
        whole = ragged([*lengths, *lengths]) if fn is not sparse else sparse
        found = verify(halves(devices, fn, join), whole, {"x": X}, devices=devices[:2])
        assert found.verdict is Verdict.PASS, found
        assert found.exercised.values > 0


@pytest.mark.cases("True")
@pytest.mark.parametrize("zeros", [False, True])
def test_a_row_that_is_longer_by_zeros_is_found(devices: Devices, zeros: bool) -> None:
    """Padded to one length both are the same."""
    x = X.copy()
    x[:, 3] = 0.0

    def longer(x: Any) -> Any:
        return tf.concat([ragged([3, 3, 3, 3])(x[:4]), ragged([3, 3, 3, 4 if zeros else 3])(x[4:])], axis=0)

    found = verify(longer, ragged([3] * 8), {"x": x}, devices=devices[:1])
    assert {finding.kind for finding in found.findings} == ({"shape"} if zeros else set()), found
    if zeros:
        moved = "values are at different positions: row 7 has 4 values instead of 3"
        assert moved in found.reason, found


def test_the_same_values_at_other_places_are_found(devices: Devices) -> None:
    def moved(x: Any) -> Any:
        right = sparse(x)
        return tf.SparseTensor(tf.reverse(right.indices, [1]), right.values, [4, 8])

    found = verify(moved, sparse, {"x": X}, devices=devices[:1])
    assert "shape" in {finding.kind for finding in found.findings}, found


@pytest.mark.cases("True")
@pytest.mark.parametrize("wrong", [False, True])
def test_sparse_features_are_split_in_every_mode(devices: Devices, wrong: bool) -> None:
    """TensorFlow has no gradient for a sparse input; those of the variables are compared."""
    weights = tf.Variable(np.random.default_rng(4).normal(size=(4, 2)).astype(np.float32))

    def whole(s: Any) -> Any:
        return tf.tanh(tf.sparse.sparse_dense_matmul(s, weights))

    @colocate_gradients
    def parallel(s: Any) -> Any:
        parts = []
        for device, part in zip(devices[:2], tf.sparse.split(sp_input=s, num_split=2, axis=0), strict=True):
            with tf.device(device.name):
                parts.append(whole(tf.sparse.map_values(tf.sign, part) if wrong else part))
        return tf.concat(parts, 0)

    given = {"s": tf.sparse.from_dense(np.maximum(X, 0.0))}
    modes = ("eager", "graph", "dynamic")
    found = verify(parallel, whole, given, devices=devices[:2], variables=[weights], modes=modes)
    assert found.verdict is (Verdict.FAIL if wrong else Verdict.PASS), found
    compared = {each.mode for each in found.comparisons if each.where.startswith("gradient for variable")}
    assert compared == set(modes), found.comparisons
    if wrong:
        assert "gradients.py" not in found.reason, "the line of a wrapper"


def listed(x: Any) -> Any:
    return tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=tf.constant([4]))


def stacked(x: Any) -> Any:
    return tf.raw_ops.TensorListStack(
        input_handle=x, element_shape=tf.constant([4]), element_dtype=tf.float32, num_elements=8
    )


def test_a_list_of_tensors_that_is_given_or_returned_is_refused_in_one_line(devices: Devices) -> None:
    program = halves(devices, tf.tanh, lambda parts: tf.concat(parts, axis=0))
    for parallel, reference, x in (
        (lambda x: listed(program(x)), lambda x: listed(tf.tanh(x)), tf.constant(X)),
        (lambda x: program(stacked(x)), lambda x: tf.tanh(stacked(x)), listed(X)),
    ):
        with pytest.raises(UsageError, match=r"a handle \(dtype variant\), such as that of a TensorList") as caught:
            verify(parallel, reference, {"x": x}, devices=devices)
        assert "\n" not in str(caught.value)

    def within(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, 2, element_shape=(None, 4))
        for number, part in enumerate(tf.split(x, 2)):
            with tf.device(devices[number].name):
                rows = rows.write(number, tf.tanh(part))
        return rows.concat()

    assert verify(tf.function(within), tf.tanh, {"x": X}, devices=devices[:2]).passed
