"""Parts that are joined twice, lost or moved are named where that happens, and one fault is one finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness import Devices, Verdict, Verification, verify

X = np.random.default_rng(3).normal(size=(16, 4)).astype(np.float32)
W = np.random.default_rng(4).normal(size=(4, 4)).astype(np.float32) / 2

Parts = Callable[[list[Any]], list[Any]]


def _whole(parts: list[Any]) -> list[Any]:
    return parts


def _first_again(parts: list[Any]) -> list[Any]:
    return [*parts[:-1], parts[0]]


def _without_last(parts: list[Any]) -> list[Any]:
    return parts[:-1]


def _on_each(devices: Devices, fn: Callable[[Any], Any], *batches: Any) -> list[Any]:
    results = []
    for device, parts in zip(
        devices, zip(*(tf.split(each, len(devices)) for each in batches), strict=True), strict=True
    ):
        with tf.device(device.name):
            results.append(fn(*parts))
    return results


def _both(
    make: Callable[[Parts], Callable[..., Any]],
    chosen: Parts,
    reference: Callable[..., Any],
    devices: Devices,
    **how: Any,
) -> tuple[Verification, Verification]:
    faulty, clean = (verify(make(each), reference, devices=devices, **how) for each in (chosen, _whole))
    assert clean.verdict is Verdict.PASS, clean
    assert faulty.verdict is Verdict.FAIL, faulty
    assert sum(finding.severity is Verdict.FAIL for finding in faulty.findings) == 1, faulty
    return faulty, clean


@pytest.mark.parametrize(("chosen", "said"), [(_first_again, "twice, and leaves out"), (_without_last, "leaves out")])
def test_an_addend_that_is_added_twice_or_left_out_is_named(devices: Devices, chosen: Parts, said: str) -> None:
    def make(parts: Parts) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            products = _on_each(devices, lambda rows: tf.matmul(rows, rows, transpose_a=True), x)
            return tf.sqrt(tf.abs(tf.add_n(parts(products))))

        return program

    def reference(x: Any) -> Any:
        return tf.sqrt(tf.abs(tf.matmul(x, x, transpose_a=True)))

    faulty, _ = _both(make, chosen, reference, devices, inputs={"x": X})
    assert said in faulty.reason, faulty
    assert f"on {devices[-1].parsed.short}" in faulty.reason, faulty


def test_a_head_that_is_computed_twice_is_named_where_it_is_computed(devices: Devices) -> None:
    count = len(devices)
    kernel = np.random.default_rng(5).normal(size=(4, 2 * count)).astype(np.float32)
    last = np.random.default_rng(6).normal(size=(2 * count, 3)).astype(np.float32)

    def heads(x: Any, numbers: Sequence[int]) -> Any:
        made = []
        for device, at in zip(devices, numbers, strict=True):
            with tf.device(device.name):
                made.append(tf.nn.softmax(x @ kernel[:, 2 * at : 2 * at + 2]))
        return tf.concat(made, axis=1) @ last

    def reference(x: Any) -> Any:
        made = [tf.nn.softmax(x @ kernel[:, 2 * at : 2 * at + 2]) for at in range(count)]
        return tf.concat(made, axis=1) @ last

    def make(parts: Parts) -> Callable[..., Any]:
        return lambda x: heads(x, parts([*range(count)]))

    faulty, _ = _both(make, _first_again, reference, devices, inputs={"x": X})
    assert f"parts 0 and {count - 1} of ConcatV2" in faulty.reason.replace("Parts", "parts"), faulty
    assert "are both the result of Softmax" in faulty.reason, faulty


def test_a_micro_batch_that_is_not_accumulated_is_named_by_its_rows(devices: Devices) -> None:
    weights = tf.Variable(W, name="weights")
    start = 16 // len(devices) * (len(devices) - 1)

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x @ weights))
        return tape.gradient(loss, weights)

    def make(parts: Parts) -> Callable[..., Any]:
        def step(x: Any) -> None:
            sums = []
            for device, rows in zip(devices, tf.split(x, len(devices)), strict=True):
                with tf.device(device.name):
                    pair = [gradient(half) for half in tf.split(rows, 2)]
                    sums.append(tf.add_n(parts(pair)) if device is devices[-1] else tf.add_n(pair))
            weights.assign_sub(tf.add_n(sums) / 16.0)

        return step

    def reference(x: Any) -> None:
        weights.assign_sub(gradient(x) / 16.0)

    faulty, _ = _both(make, _without_last, reference, devices, inputs={"x": X}, variables=[weights])
    half = (16 - start) // 2
    last = f"{16 - half} to 15" if half > 2 else "14 and 15"
    assert f"rows {last} is missing from the update of variable weights" in faulty.reason, faulty


def test_a_counter_that_each_shard_advances_is_the_cause_of_what_is_computed_from_it(devices: Devices) -> None:
    weights = tf.Variable(W, name="weights")
    steps = tf.Variable(5, name="steps", trainable=False)

    def update(change: Any) -> None:
        weights.assign_sub(tf.pow(0.5, tf.cast(steps, tf.float32) / 3.0) * change)

    def make(parts: Parts) -> Callable[..., Any]:
        def step(x: Any) -> None:
            products = _on_each(devices, lambda rows: tf.matmul(rows, rows, transpose_a=True), x)
            for _ in products if parts is _first_again else [None]:
                steps.assign_add(1)
            update(tf.add_n(products))

        return step

    def reference(x: Any) -> None:
        steps.assign_add(1)
        update(tf.matmul(x, x, transpose_a=True))

    faulty, _ = _both(make, _first_again, reference, devices, inputs={"x": X}, variables=[weights, steps])
    assert f"steps is updated {len(devices)} times instead of once" in faulty.reason, faulty


@pytest.mark.devices(kind="logical-cpu")
def test_texts_of_shards_that_are_joined_in_another_order_are_named(devices: Devices) -> None:
    def make(parts: Parts) -> Callable[..., Any]:
        def program(x: Any, name: Any) -> Any:
            rows = _on_each(devices, tf.tanh, x)
            texts = _on_each(devices, tf.strings.upper, name)
            return tf.concat(rows, axis=0), tf.concat(texts if parts is _whole else texts[::-1], axis=0)

        return program

    def reference(x: Any, name: Any) -> Any:
        return tf.tanh(x), tf.strings.upper(name)

    inputs = {"x": X, "name": np.array([f"row {number}" for number in range(16)])}
    faulty, _ = _both(make, _first_again, reference, devices, inputs=inputs)
    assert "joined in a different order" in faulty.reason, faulty


def test_results_of_a_shard_that_take_the_place_of_others_are_placed_at_the_join(devices: Devices) -> None:
    def make(parts: Parts) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            results = _on_each(devices, lambda rows: tf.tanh(rows @ W), x)
            return tf.concat(parts(results), axis=0)  # the join

        return program

    faulty, _ = _both(make, _first_again, lambda x: tf.tanh(x @ W), devices, inputs={"x": X})
    assert "take the place of" in faulty.reason, faulty
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# the join"))
    assert f"{Path(__file__).name}:{line})" in faulty.reason, faulty


def test_a_sum_without_an_addend_is_named_where_gradients_differ_too(devices: Devices) -> None:
    kernels = [tf.Variable(W * (1 + at), name=f"kernel_{at}") for at in range(len(devices))]

    def make(parts: Parts) -> Callable[..., Any]:
        @harness.colocate_gradients
        def program(x: Any) -> Any:
            members = []
            for device, kernel in zip(devices, kernels, strict=True):
                with tf.device(device.name):
                    members.append(tf.nn.softmax(x @ kernel))
            return tf.add_n(parts(members)) / len(devices)

        return program

    def reference(x: Any) -> Any:
        return tf.add_n([tf.nn.softmax(x @ kernel) for kernel in kernels]) / len(devices)

    faulty, _ = _both(make, _without_last, reference, devices, inputs={"x": X}, variables=kernels)
    assert "left out" in faulty.reason or "leaves out" in faulty.reason, faulty


def test_gradients_that_eager_code_and_a_graph_place_from_other_lines_are_one_finding(devices: Devices) -> None:
    weights = tf.Variable(W)

    def program(x: Any) -> Any:
        return tf.concat(_on_each(devices, lambda rows: tf.nn.elu(rows @ weights) @ W, x), axis=0)

    def reference(x: Any) -> Any:
        return tf.nn.elu(x @ weights) @ W

    found = verify(program, reference, {"x": X}, devices=devices, variables=[weights])
    assert [finding.kind for finding in found.findings] == ["gradient-placement"], found
    colocated = harness.colocate_gradients(program)
    assert verify(colocated, reference, {"x": X}, devices=devices, variables=[weights]).verdict is Verdict.PASS


def test_an_error_of_both_programs_accuses_neither(devices: Devices) -> None:
    def contrast(x: Any) -> Any:
        return tf.image.adjust_contrast(x, 1.3)

    def program(x: Any) -> Any:
        return tf.concat(_on_each(devices, contrast, x), axis=0)

    inputs = {"x": X.reshape(4, 2, 2, 4)}
    assert verify(program, contrast, inputs, devices=devices).verdict is Verdict.PASS
    found = verify(program, contrast, inputs, devices=devices, gradients=True)  # this op has none
    assert found.verdict is Verdict.UNKNOWN, found
    assert "both programs raised LookupError" in found.reason
    alone = verify(program, tf.identity, inputs, devices=devices, gradients=True)
    assert alone.verdict is Verdict.FAIL, alone
    assert [finding.kind for finding in alone.findings] == ["error"]


@pytest.mark.parametrize("rows", [{"shift": 1}, {"first": True}])
def test_labels_of_other_shards_are_named(devices: Devices, rows: dict[str, Any]) -> None:
    labels = np.random.default_rng(7).normal(size=16).astype(np.float32)
    count = len(devices)

    def of(number: int, chosen: Parts) -> int:
        if chosen is _whole:
            return number
        return 0 if "first" in rows else (number + rows["shift"]) % count

    def make(parts: Parts) -> Callable[..., Any]:
        def program(x: Any, y: Any) -> Any:
            shares = tf.split(y, count)
            losses = []
            for number, (device, part) in enumerate(zip(devices, tf.split(x, count), strict=True)):
                with tf.device(device.name):
                    losses.append(tf.square(tf.reduce_sum(part @ W, axis=1) - shares[of(number, parts)]))
            return tf.concat(losses, axis=0)

        return program

    def reference(x: Any, y: Any) -> Any:
        return tf.square(tf.reduce_sum(x @ W, axis=1) - y)

    faulty, _ = _both(make, _first_again, reference, devices, inputs={"x": X, "y": labels})
    whose = "to shard 0" if "first" in rows else "to another shard"
    assert f"Every shard is given the rows of y that belong {whose}" in faulty.reason, faulty


def test_rows_that_a_loss_leaves_out_and_those_that_count_twice_are_named(devices: Devices) -> None:
    weights = tf.Variable(W, name="weights")
    half = 16 // len(devices) // 2

    def make(parts: Parts) -> Callable[..., Any]:
        @harness.colocate_gradients
        def program(x: Any) -> Any:
            sums = []
            for device, rows in zip(devices, tf.split(x, len(devices)), strict=True):
                with tf.device(device.name):
                    halves = [tf.reduce_sum(tf.abs(part @ weights)) for part in tf.split(rows, 2)]
                    sums.append(tf.add_n(parts(halves)) if device is devices[0] else tf.add_n(halves))
            return tf.add_n(sums)

        return program

    def reference(x: Any) -> Any:
        return tf.reduce_sum(tf.abs(x @ weights))

    how: dict[str, Any] = {"inputs": {"x": X}, "variables": [weights]}
    rows = f"{half} to {2 * half - 1}" if half > 2 else f"{half} and {2 * half - 1}"
    faulty, _ = _both(make, _without_last, reference, devices, **how)
    assert f"rows {rows} " in faulty.reason.replace("Rows", "rows"), faulty
    assert "not count in output" in faulty.reason or "missing from output" in faulty.reason, faulty


def test_a_custom_gradient_of_one_shard_that_is_too_large_is_named_by_its_rows(devices: Devices) -> None:
    def scaled(times: float) -> Callable[[Any], Any]:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def sign(x: Any) -> Any:
            return tf.sign(x), lambda upstream: times * upstream

        return sign  # type: ignore[no-any-return]

    right, wrong = scaled(1.0), scaled(3.0)

    def make(parts: Parts) -> Callable[..., Any]:
        @harness.colocate_gradients
        def program(x: Any) -> Any:
            signs = [right] * (len(devices) - 1) + [right if parts is _whole else wrong]
            results = []
            for device, sign, rows in zip(devices, signs, tf.split(x, len(devices)), strict=True):
                with tf.device(device.name):
                    results.append(sign(rows @ W))
            return tf.concat(results, axis=0)

        return program

    faulty, _ = _both(make, _first_again, lambda x: right(x @ W), devices, inputs={"x": X}, gradients=True)
    assert f"those of shard {len(devices) - 1}" in faulty.reason, faulty
    assert "are 3 times those of the single-device run" in faulty.reason, faulty
