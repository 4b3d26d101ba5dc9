"""Programs that compute with integers of 32 bits or texts alone: a shard's work belongs in the scope of its device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=4, kind=["gpu", "logical-cpu"])

_INTEGERS = np.arange(24, dtype=np.int32).reshape(8, 3)
_TEXTS = np.array(["a b", "c", "d e f", "g", "h", "i j", "k", "l m"])


def _hashed(x: Any) -> Any:
    return tf.math.floormod(x * 3 + 1, 7)


def _largest(x: Any) -> Any:
    return tf.reduce_max((x * x - x) * 3 + 1, axis=1)


def _tagged(x: Any) -> Any:
    return tf.strings.join([x, tf.strings.regex_replace(x, "[AEI]", "-")], "+")


def _towers(
    first: Callable[[Any], Any], second: Callable[[Any], Any], devices: harness.Devices, place: Callable[[int], str]
) -> Callable[..., Any]:
    """Two layers: the first on the shard's device, the second where ``place`` says."""

    def towers(x: Any) -> Any:
        results = []
        for part, rows in enumerate(tf.split(x, len(devices))):
            with tf.device(devices[part].name):
                hidden = first(rows)
            with tf.device(place(part)):
                results.append(second(hidden))
        return tf.concat(results, axis=0)

    return towers


@pytest.mark.cases(1)
@pytest.mark.parametrize("layers", [(_hashed, _largest, _INTEGERS), (tf.strings.upper, _tagged, _TEXTS)])
def test_a_layer_in_the_scope_of_another_shards_device_is_found(devices: harness.Devices, layers: Any) -> None:
    first, second, x = layers
    if x is _TEXTS and devices[0].parsed.kind == "GPU":
        first, second, x = _hashed, _hashed, _INTEGERS  # GPUs have no kernels for texts
    names = devices.names

    def verified(place: Callable[[int], str]) -> harness.Verification:
        program = _towers(first, second, devices, place)
        return harness.verify(program, lambda x: second(first(x)), {"x": x}, devices=devices)

    right = verified(lambda part: names[part])
    assert right.verdict is Verdict.PASS, right
    for slip in (lambda _: names[0], lambda part: names[1 if part == 2 else part]):
        wrong = verified(slip)
        assert [finding.kind for finding in wrong.findings] == ["op-placement"], wrong
        assert wrong.reason.startswith("Work on a shard ran in a device scope that is not the shard's (tests/"), wrong
        assert wrong.findings[0].mode == "eager, graph"


def _picked(x: Any) -> Any:
    return tf.reduce_max(x, axis=1) + 1


@pytest.mark.parametrize("place", ["CPU:0", None])
def test_a_row_is_picked_on_the_host(devices: harness.Devices, place: str | None) -> None:
    program = _towers(lambda x: _hashed(_hashed(x)), _picked, devices, lambda _: place)  # type: ignore[arg-type,return-value]
    found = harness.verify(program, lambda x: _picked(_hashed(_hashed(x))), {"x": _INTEGERS}, devices=devices)
    assert found.verdict is Verdict.PASS, found


def test_indices_are_made_where_they_are_made(devices: harness.Devices) -> None:
    table = tf.constant(np.linspace(-1, 1, 80, dtype=np.float32).reshape(20, 4))
    program = _towers(_hashed, lambda ids: tf.tanh(tf.gather(table, ids)), devices, lambda part: devices.names[part])

    def on_the_first(x: Any) -> Any:
        results = []
        for part, rows in enumerate(tf.split(x, len(devices))):
            with tf.device(devices[0].name):
                ids = _hashed(rows)
            with tf.device(devices[part].name):
                results.append(tf.tanh(tf.gather(table, ids)))
        return tf.concat(results, axis=0)

    for each in (program, on_the_first):
        found = harness.verify(each, lambda x: tf.tanh(tf.gather(table, _hashed(x))), {"x": _INTEGERS}, devices=devices)
        assert found.verdict is Verdict.PASS, found


def test_a_shard_meets_its_neighbour_on_its_own_device(devices: harness.Devices) -> None:
    count = len(devices)

    def both(parts: Any) -> Any:
        return [parts[part] + parts[(part + 1) % count] for part in range(count)]

    def ring(x: Any) -> Any:
        parts = list(tf.split(x, count))
        hidden, results = [], []
        for part in range(count):
            with tf.device(devices[part].name):
                hidden.append(_hashed(parts[part]))
        for part in range(count):
            with tf.device(devices[part].name):
                results.append(_largest(hidden[part] + hidden[(part + 1) % count]))
        return tf.concat(results, axis=0)

    def reference(x: Any) -> Any:
        with tf.device(devices.host):
            parts = tf.split(_hashed(x), count)
        return tf.concat([_largest(part) for part in both(parts)], axis=0)

    found = harness.verify(ring, reference, {"x": _INTEGERS}, devices=devices)
    assert found.verdict is Verdict.PASS, found
