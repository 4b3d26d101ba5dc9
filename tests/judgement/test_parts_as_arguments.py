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
    assert "Work on a shard is in a device scope that is not the shard's" in found.reason
