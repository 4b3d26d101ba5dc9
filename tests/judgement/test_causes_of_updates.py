"""Updates in another order, shards left out of an update, and steps left out are named where the numbers confirm it.

The faults of the catalogue are tried in tests/faults.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verification, make_parallel, verify

X = np.random.default_rng(3).normal(size=(8, 3)).astype(np.float32)


def _averages(devices: Devices, keep: float, **options: Any) -> Verification:
    """A moving average that keeps ``keep`` of itself, where the reference keeps 0.9; the weights are updated before."""
    weights = tf.Variable(X[0], name="weights")
    average = tf.Variable(X[1], name="average", trainable=False)

    def program(x: Any, share: float, mean: Callable[[Any], Any]) -> Any:
        weights.assign_sub(0.1 * mean(x))
        average.assign(share * average + (1 - share) * weights)
        return tf.identity(weights)

    def of_towers(x: Any) -> Any:
        means = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                means.append(tf.reduce_mean(part, axis=0))
        return tf.add_n(means) / len(devices)

    return verify(
        lambda x: program(x, keep, of_towers),
        lambda x: program(x, 0.9, lambda rows: tf.reduce_mean(rows, axis=0)),
        {"x": X},
        devices=devices,
        variables=[weights, average],
        modes=("eager",),
        **options,
    )


def test_an_average_that_keeps_too_much_is_not_said_to_be_in_another_order(devices: Devices) -> None:
    found = _averages(devices[:4], 0.8)
    assert "average" in found.reason, found
    assert "is updated" not in found.reason, found
    assert _averages(devices[:4], 0.9).passed


@pytest.mark.cases(1)
@pytest.mark.parametrize(("share", "said"), [(0.0, True), (0.6, False)])
def test_an_addend_is_left_out_only_if_none_of_it_is_there(devices: Devices, share: float, said: bool) -> None:
    def tower(x: Any, share: float) -> Any:
        return tf.tanh(x) + share * tf.sin(x)

    def program(x: Any) -> Any:
        parts = []
        for device, part in zip(devices[:4], tf.split(x, 4), strict=True):
            with tf.device(device.name):
                parts.append(tower(part, share))
        return tf.concat(parts, axis=0)

    found = verify(program, lambda x: tower(x, 1.0), {"x": X}, devices=devices[:4], modes=("eager",))
    assert ("An addend is left out of output: the reference also adds the result of Mul" in found.reason) == said, found


@pytest.mark.cases("given2")
@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ((0, 0, 0, 0), "every shard is given the rows of lengths that belong to shard 0"),
        ((0, 1, 1, 3), "shard 2 is given the rows of lengths that belong to shard 1"),
        ((0, 1, 2, 3), ""),
    ],
)
def test_an_input_of_another_shard_is_named_and_other_numbers_are_not(
    devices: Devices, given: tuple[int, ...], cause: str
) -> None:
    def mean(rows: Any, lengths: Any, more: int = 0) -> Any:
        mask = tf.cast(tf.sequence_mask(lengths + more, 5), tf.float32)
        return tf.reduce_sum(rows * mask, 1, keepdims=True) / tf.reduce_sum(mask, 1, keepdims=True)

    def towers(rows: Any, lengths: Any) -> Any:
        results, parts = [], tf.split(lengths, 4)
        for number, (device, part) in enumerate(zip(devices[:4], tf.split(rows, 4), strict=True)):
            with tf.device(device.name):
                results.append(mean(part, parts[given[number]], more=number % 2 if not cause else 0))
        return tf.concat(results, 0)

    inputs = {"rows": np.random.default_rng(4).normal(size=(8, 5)).astype(np.float32)}
    inputs["lengths"] = np.array([4, 1, 3, 2, 1, 4, 2, 3], np.int32)
    found = verify(towers, mean, inputs, devices=devices[:4], gradients=False)
    assert not found.passed
    assert found.reason.lower().startswith(cause), found
    assert bool(cause) == ("that belong to shard" in found.reason)


def test_a_metric_that_counts_one_tower_is_not_said_to_be_a_maximum(devices: Devices) -> None:
    total, weights = tf.Variable(0.0, name="total"), tf.constant(X[:3])
    x = X * np.linspace(2.0, 1.0, 8, dtype=np.float32)[:, None]

    def added(rows: Any) -> None:
        total.assign_add(tf.reduce_sum(tf.square(rows)))

    def program(x: Any, counted: int) -> Any:
        parts = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                parts.append(tf.matmul(part, weights))
                if len(parts) <= counted:
                    added(parts[-1])
        return tf.concat(parts, 0)

    def reference(x: Any) -> Any:
        rows = tf.matmul(x, weights)
        added(rows)
        return rows

    def verified(counted: int) -> Verification:
        options: dict[str, Any] = {"devices": devices, "variables": [total], "modes": ("eager",), "gradients": False}
        return verify(lambda x: program(x, counted), reference, {"x": x}, **options)

    found = verified(1)
    assert "update of variable total includes only shard 0" in found.reason, found
    assert [finding.kind for finding in found.findings] == ["value"], found
    assert verified(len(devices)).passed


def _counted(devices: Devices, count: int, times: int) -> tuple[Verification, int]:
    """Verify a program that adds 1 to its variables so many times; also how often the reference ran for that."""
    steps = [tf.Variable(float(number), name=f"steps{number}") for number in range(count)]
    runs = []

    def counted(times: int) -> tf.Tensor:
        for step in steps * times:
            step.assign_add(1.0)
        return tf.add_n([tf.convert_to_tensor(step) for step in steps])

    def program(x: Any) -> Any:
        total, parts = counted(times), []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                parts.append(part * total)
        return tf.concat(parts, 0)

    def reference(x: Any) -> Any:
        runs.append(count)
        return x * counted(1)

    return verify(program, reference, {"x": X}, devices=devices, variables=steps, modes=("eager",)), len(runs)


def test_many_variables_that_are_updated_twice_are_named_after_as_few_runs_as_two(devices: Devices) -> None:
    found, runs = _counted(devices, 2, 2)
    assert "variable steps0 and variable steps1 are updated twice instead of once; the other" in found.reason.lower(), (
        found
    )
    many, runs_of_many = _counted(devices, 12, 2)
    assert "are updated twice instead of once" in many.reason, many
    assert runs_of_many == runs
    assert not [finding for finding in _counted(devices, 2, 1)[0].findings if finding.kind == "value"]


@pytest.mark.cases("False-True", "True-False")
@pytest.mark.parametrize(
    ("means", "sparse", "said"),
    [(False, True, "IndexedSlices with the same sums"), (True, False, "each is a mean"), (False, False, "")],
)
def test_dense_gradients_in_the_place_of_slices_are_told_from_sums_of_means(
    devices: Devices, means: bool, sparse: bool, said: str
) -> None:
    rows = 4 * len(devices)
    words = np.random.default_rng(5).integers(0, 6, (rows, 3)).astype(np.int32)
    wanted = np.random.default_rng(6).normal(size=(rows, 4)).astype(np.float32)
    table = tf.Variable(np.random.default_rng(7).normal(size=(6, 4)).astype(np.float32), name="table")
    optimizer = tf.keras.optimizers.Adagrad(0.1)
    optimizer.build([table])

    def gradient(words: Any, wanted: Any, count: int) -> Any:
        with tf.GradientTape() as tape:
            errors = tf.reduce_mean(tf.gather(table.read_value(), words), axis=1) - wanted
            loss = tf.reduce_sum(tf.square(errors)) / count
        return tape.gradient(loss, table)

    def reference(words: Any, wanted: Any) -> None:
        own = gradient(words, wanted, words.shape[0])
        optimizer.apply_gradients([(own if sparse else tf.convert_to_tensor(own), table)])

    def towers(words: Any, wanted: Any) -> None:
        found = []
        parts = zip(devices, tf.split(words, len(devices)), tf.split(wanted, len(devices)), strict=True)
        for device, own, target in parts:
            with tf.device(device.name):
                found.append(tf.convert_to_tensor(gradient(own, target, own.shape[0] if means else rows)))
        optimizer.apply_gradients([(tf.add_n(found), table)])

    verified = verify(towers, reference, {"words": words, "wanted": wanted}, devices=devices, variables=[table])
    if said:
        assert said in verified.reason, verified
        assert ("each is a mean" in verified.reason) is means, verified
    else:
        assert verified.passed, verified


@pytest.mark.cases("in turn-False")
@pytest.mark.parametrize(
    ("how", "adam", "words"),
    [
        ("in turn", False, "one after the other and with 1/4 of the gradient, instead of once"),
        ("in turn", True, "one after the other and with 1/4 of the gradient, instead of once"),
        ("late", True, "applied 4 times, once with each shard's gradients multiplied by 1/4"),
        ("once", False, ""),
        ("once", True, ""),
    ],
)
def test_a_step_of_each_shard_with_a_part_of_the_gradient_is_named(
    devices: Devices, how: str, adam: bool, words: str
) -> None:
    weights = tf.Variable(X[:3, :3], name="weights")
    optimizer = tf.keras.optimizers.Adam(0.1)
    optimizer.build([weights])

    def gradient(x: Any, share: float) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - 1.0))
        return loss, share * tape.gradient(loss, weights)

    def apply(change: Any) -> None:
        if adam:
            optimizer.apply([change], [weights])
        else:
            weights.assign_sub(0.5 * change)

    def reference(x: Any) -> Any:
        loss, change = gradient(x, 1.0)
        apply(change)
        return loss

    def program(x: Any) -> Any:
        losses, changes = [], []
        for device, part in zip(devices[:4], tf.split(x, 4), strict=True):
            with tf.device(device.name):
                loss, change = gradient(part, 0.25)
                losses.append(loss)
                changes.append(change)
                if how == "in turn":
                    apply(change)
        for change in {"late": changes, "once": [tf.add_n(changes)], "in turn": []}[how]:
            apply(change)
        return tf.add_n(losses) / 4.0

    variables = [weights, *optimizer.variables] if adam else [weights]
    found = verify(program, reference, {"x": X}, devices=devices[:4], variables=variables, gradients=False)
    assert words in found.reason, found
    assert ("value" in {finding.kind for finding in found.findings}) is bool(words), found


@pytest.mark.parametrize(("used", "words"), [(False, "is not row-wise"), (True, "needs all of x, but each")])
def test_an_input_that_has_no_effect_does_not_make_another_one_a_table(
    devices: Devices, used: bool, words: str
) -> None:
    def model(x: Any, other: Any) -> Any:
        if used:
            return tf.matmul(other, x, transpose_b=True) @ x
        return x - tf.reduce_mean(x, axis=0)

    def verified(**options: Any) -> Verification:
        parallel = make_parallel(model, devices[:4], **options)
        return verify(parallel, model, {"x": X, "other": X * 2.0}, devices=devices[:4], gradients=False)

    assert words in verified().reason, verified()
    if used:
        assert verified(broadcast=("x",)).passed


@pytest.mark.parametrize("cleared", [False, True])
def test_a_write_that_is_missing_is_named_by_the_references_line(devices: Devices, cleared: bool) -> None:
    total, count = tf.Variable(X[:2], name="total"), tf.Variable(1, name="count")
    weights = tf.Variable(X[2:4], name="weights")

    def finish(gradient: Any, clear: bool) -> None:
        total.assign_add(gradient)
        count.assign_add(1)
        now = tf.equal(count % 2, 0)
        weights.assign(tf.where(now, weights - 0.05 * total, weights))
        if clear:
            total.assign(tf.where(now, tf.zeros_like(total), total))

    def parallel(x: Any) -> Any:
        parts = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                parts.append(tf.reduce_sum(part, axis=0) * tf.ones([2, 1]))
        finish(tf.add_n(parts), cleared)
        return tf.add_n(parts)

    def reference(x: Any) -> Any:
        gradient = tf.reduce_sum(x, axis=0) * tf.ones([2, 1])
        finish(gradient, True)
        return gradient

    found = verify(parallel, reference, {"x": X}, devices=devices, variables=[weights, total, count])
    assert found.passed is cleared, found
    if not cleared:
        assert re.match(
            r"Variable total is updated once instead of twice: the reference's update 2 of 2 "
            r"\(tests/judgement/test_causes_of_updates\.py:\d+\) is missing",
            found.reason,
        ), found


@pytest.mark.parametrize("updates", [True, False], ids=["updated", "not updated"])
def test_what_is_computed_from_a_variable_that_is_not_updated_follows_from_it(devices: Devices, updates: bool) -> None:
    total = tf.Variable(X[0], name="total")

    def parallel(x: Any) -> Any:
        if updates:
            total.assign_add(tf.reduce_mean(x, axis=0))
        parts = []
        for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                parts.append(tf.tanh(part) * total)
        return tf.concat(parts, axis=0)

    def reference(x: Any) -> Any:
        total.assign_add(tf.reduce_mean(x, axis=0))
        return tf.tanh(x) * total

    found = verify(parallel, reference, {"x": X}, devices=devices, variables=[total], gradients=False)
    assert found.passed is updates, found
    if not updates:
        assert found.reason.startswith("Variable total is not updated: the program never writes to it"), found
        assert {finding.cause for finding in found.findings} == {"C204"}, found
