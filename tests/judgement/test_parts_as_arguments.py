"""Arguments that differ in their rows alone are parts of a batch; others are not."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import harness
from harness.faults.samples import sample
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)

Weights = dict[str, tf.Variable]


def _weights() -> Weights:
    return {
        "image": tf.Variable(sample(6, 5)),
        "text": tf.Variable(sample(4, 5, seed=1)),
        "project": tf.Variable(sample(5, 3, seed=2)),
    }


def _heads(image: Any, text: Any, weights: Weights, first: str | None, second: str | None) -> Any:
    """An encoder on each device; the second one also projects what both have made."""
    with tf.device(first):
        image = tf.tanh(tf.matmul(image, weights["image"]))
    with tf.device(second):
        text = tf.tanh(tf.matmul(text, weights["text"]))
        return tf.sigmoid(tf.matmul(image, weights["project"])), tf.sigmoid(tf.matmul(text, weights["project"]))


def _towers(parts: list[Any], labels: list[Any], weights: Weights, places: list[tuple[str, str]]) -> Any:
    losses = []
    for part, label, (first, second) in zip(parts, labels, places, strict=True):
        with tf.device(first):
            hidden = tf.tanh(tf.matmul(part, weights["image"]))
        with tf.device(second):
            losses.append(tf.square(tf.sigmoid(tf.matmul(hidden, weights["project"])) - label))
    return tf.concat(losses, 0)


def _whole(parts: list[Any], labels: list[Any], weights: Weights) -> Any:
    hidden = tf.tanh(tf.matmul(tf.concat(parts, 0), weights["image"]))
    return tf.square(tf.sigmoid(tf.matmul(hidden, weights["project"])) - tf.concat(labels, 0))


def test_tensors_of_unlike_shapes_are_no_parts_of_one_batch(devices: harness.Devices) -> None:
    weights, (first, second, *_) = _weights(), devices.names
    found = harness.verify(
        lambda image, text: _heads(image, text, weights, first, second),
        lambda image, text: _heads(image, text, weights, None, None),
        {"image": sample(8, 6), "text": sample(8, 4, seed=3)},
        devices=devices[:2],
    )
    assert found.verdict is Verdict.PASS, found


@pytest.mark.parametrize("all_on_first", [False, True])
def test_parts_of_unequal_length_beside_their_labels(devices: harness.Devices, all_on_first: bool) -> None:
    weights, names = _weights(), devices.names
    places = [(name, names[0] if all_on_first else name) for name in names]
    parts = [sample(2 + at, 6, seed=at) for at in range(len(names))]
    labels = [sample(2 + at, 3, seed=at + 50) for at in range(len(names))]
    found = harness.verify(
        lambda parts, labels: _towers(parts, labels, weights, places),
        lambda parts, labels: _whole(parts, labels, weights),
        {"parts": parts, "labels": labels},
        devices=devices,
    )
    if not all_on_first:
        assert found.verdict is Verdict.PASS, found
        return
    assert found.verdict is Verdict.FAIL, found
    assert {each.kind for each in found.findings} == {"op-placement"}, found
    assert {each.mode for each in found.findings} == {"eager, graph"}, found
    assert "Work on a shard ran in a device scope that is not the shard's" in found.reason


@pytest.mark.parametrize("teacher_first", [False, True])
@pytest.mark.parametrize("alike", [False, True])
def test_a_student_and_a_teacher_share_the_rows_without_labels(
    devices: harness.Devices, teacher_first: bool, alike: bool
) -> None:
    """The student works on all rows on one device, its teacher on some of them on another: no device has a part."""
    student, teacher = tf.Variable(sample(6, 5)), tf.Variable(sample(6, 5, seed=1))
    second = devices.names[1]

    def taught(rows: Any, place: str | None) -> Any:
        with tf.device(place):
            logits = tf.matmul(rows, teacher)
            return tf.exp(tf.nn.log_softmax(logits)) if alike else tf.nn.softmax(logits)

    def loss(labelled: Any, free: Any, first: str | None, second: str | None) -> Any:
        targets = taught(free, second) if teacher_first else None
        with tf.device(first):
            known = tf.nn.log_softmax(tf.matmul(labelled, student))
            guessed = tf.nn.log_softmax(tf.matmul(free, student))
        targets = taught(free, second) if targets is None else targets
        return tf.reduce_mean(known[:, 0]) + tf.reduce_mean(tf.reduce_sum(targets * guessed, 1))

    found = harness.verify(
        lambda labelled, free: loss(labelled, free, devices.names[0], second),
        lambda labelled, free: loss(labelled, free, None, None),
        {"labelled": sample(8, 6), "free": sample(6, 6, seed=3)},
        devices=devices[:2],
    )
    assert found.verdict is Verdict.PASS, found


@pytest.mark.parametrize("misplaced", [False, True])
def test_two_networks_on_the_device_of_each_part(devices: harness.Devices, misplaced: bool) -> None:
    """Where each device runs the student and the teacher on its part, a student that is elsewhere is found."""
    student, teacher = tf.Variable(sample(6, 5)), tf.Variable(sample(6, 5, seed=1))
    names = devices.names

    def both(rows: Any, first: str | None, second: str | None) -> Any:
        with tf.device(first):
            guessed = tf.nn.log_softmax(tf.matmul(rows, student))
        with tf.device(second):
            return guessed, tf.nn.log_softmax(tf.matmul(rows, teacher))

    def parallel(parts: list[Any]) -> Any:
        found = [both(part, names[0] if misplaced else name, name) for part, name in zip(parts, names, strict=True)]
        return [tf.concat(each, 0) for each in zip(*found, strict=True)]

    parts = [sample(2 + at, 6, seed=at) for at in range(len(names))]
    found = harness.verify(
        parallel, lambda parts: list(both(tf.concat(parts, 0), None, None)), {"parts": parts}, devices=devices
    )
    assert found.verdict is (Verdict.FAIL if misplaced else Verdict.PASS), found
    assert {each.kind for each in found.findings} == ({"op-placement"} if misplaced else set()), found
