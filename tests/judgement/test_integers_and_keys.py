"""Programs whose work is on integers or texts, which live on the host, and results whose keys or fields differ."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=2)

_INTEGERS = np.arange(24, dtype=np.int32).reshape(8, 3)
_TEXTS = np.array(["ab", "Cde", "f", "", "gh I", "jk", "l", "mno"])
_TABLE = np.linspace(-1, 1, 80, dtype=np.float32).reshape(20, 4)


def _squares(x: Any) -> Any:
    return tf.reduce_sum(x * x, axis=1)


def _bits(x: Any) -> Any:
    return tf.bitwise.bitwise_xor(x * 3, x)


def _is_even(x: Any) -> Any:
    return tf.reduce_any(tf.equal(x % 2, 0), axis=1)


def _lengths(x: Any) -> Any:
    return tf.strings.length(tf.strings.upper(x))


def _towers(fn: Callable[[Any], Any], devices: harness.Devices, place: Callable[[int], int]) -> Callable[..., Any]:
    def towers(x: Any) -> Any:
        size, count = int(x.shape[0]), len(devices)
        sizes = [size * (part + 1) // count - size * part // count for part in range(count)]
        results = []
        for part, rows in enumerate(tf.split(x, sizes)):
            with tf.device(devices[place(part)].name):
                results.append(fn(rows))
        return tf.concat(results, axis=0)

    return towers


@pytest.mark.parametrize(
    ("fn", "x"), [(_squares, _INTEGERS), (_bits, _INTEGERS), (_is_even, _INTEGERS), (_lengths, _TEXTS)]
)
def test_work_on_integers_and_texts_uses_the_device_that_its_scope_names(
    devices: harness.Devices, fn: Callable[[Any], Any], x: Any
) -> None:
    right = harness.verify(_towers(fn, devices, lambda part: part), fn, {"x": x}, devices=devices)
    if fn is _lengths and devices[0].parsed.kind == "GPU":
        assert "has no kernel on GPU:0 for String" in right.reason
        return
    assert right.verdict is Verdict.PASS, right
    wrong = harness.verify(_towers(fn, devices, lambda part: 0), fn, {"x": x}, devices=devices)
    assert [finding.kind for finding in wrong.findings] == ["unused-device"], wrong


def test_a_number_made_of_integers_is_work_on_them(devices: harness.Devices) -> None:
    def mean(x: Any) -> Any:
        return tf.cast(tf.reduce_sum(x), tf.float32) / 24.0

    def sums(place: Callable[[int], int]) -> Callable[..., Any]:
        towers = _towers(lambda rows: tf.reduce_sum(rows)[None], devices, place)
        return lambda x: mean(towers(x))

    right = harness.verify(sums(lambda part: part), mean, {"x": _INTEGERS}, devices=devices)
    assert right.verdict is Verdict.PASS, right
    wrong = harness.verify(sums(lambda part: 0), mean, {"x": _INTEGERS}, devices=devices)
    assert [finding.kind for finding in wrong.findings] == ["unused-device"], wrong


def test_indices_are_no_work_where_rows_are_looked_up_with_them(devices: harness.Devices) -> None:
    table = tf.constant(_TABLE)

    def rows_of(x: Any) -> Any:
        return tf.tanh(tf.gather(table, (x * 3 + 1) % 20))

    def program(place: Callable[[int], int]) -> Callable[..., Any]:
        def towers(x: Any) -> Any:
            results = []
            for part, ids in enumerate(tf.split(x, len(devices))):
                with tf.device(devices[part].name):
                    ids = (ids * 3 + 1) % 20
                with tf.device(devices[place(part)].name):
                    results.append(tf.tanh(tf.gather(table, ids)))
            return tf.concat(results, axis=0)

        return towers

    inputs = {"x": np.arange(2 * len(devices), dtype=np.int32)}
    right = harness.verify(program(lambda part: part), rows_of, inputs, devices=devices)
    assert right.verdict is Verdict.PASS, right
    wrong = harness.verify(program(lambda part: 0), rows_of, inputs, devices=devices)
    assert "unused-device" in {finding.kind for finding in wrong.findings}, wrong


_Moments = namedtuple("_Moments", ["mean", "var"])
_Other = namedtuple("_Other", ["mean", "std"])


@pytest.mark.parametrize(
    ("other", "same", "expected", "difference"),
    [
        (lambda y: {"probs": y}, lambda y: {"logits": y}, lambda y: {"logits": y}, "probs instead of logits"),
        (
            lambda y: _Other(y, y + 1),
            lambda y: _Moments(y, y + 1),
            lambda y: _Moments(y, y + 1),
            "mean, std instead of mean, var",
        ),
        (
            lambda y: (y, {"a": y, "b": y}),
            lambda y: (y, {"c": y, "b": y}),
            lambda y: [y, {"b": y, "c": y}],
            "a, b instead of b, c",
        ),
        (lambda y: (y, y), lambda y: [y], lambda y: (y,), "tuple of 2 tensors instead of tuple of 1 tensor"),
    ],
)
def test_results_with_other_keys_or_fields_have_another_structure(
    devices: harness.Devices,
    other: Callable[[Any], Any],
    same: Callable[[Any], Any],
    expected: Callable[[Any], Any],
    difference: str,
) -> None:
    towers = _towers(tf.sin, devices, lambda part: part)
    inputs = {"x": np.linspace(0, 1, 8, dtype=np.float32)}

    def verified(nest: Callable[[Any], Any]) -> harness.Verification:
        return harness.verify(lambda x: nest(towers(x)), lambda x: expected(tf.sin(x)), inputs, devices=devices)

    right, wrong = verified(same), verified(other)
    assert right.verdict is Verdict.PASS, right
    assert wrong.verdict is Verdict.FAIL
    assert wrong.findings[0].kind == "structure"
    assert wrong.reason.startswith(f"outputs: the results have a different structure: {difference}")


def test_an_output_that_is_none_is_named_once_with_its_modes(devices: harness.Devices) -> None:
    inputs = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)}
    run = harness.make_parallel(tf.tanh, devices)

    def program(x: Any) -> Any:
        return {"y": run(x=x), "aux": None}

    found = harness.verify(program, lambda x: {"y": tf.tanh(x), "aux": tf.reduce_sum(x)}, inputs, devices=devices)
    [finding] = found.findings
    assert (finding.kind, finding.mode) == ("structure", "eager, graph"), found
    assert found.reason.count("(eager") == 0, found
    twin = harness.verify(program, lambda x: {"y": tf.tanh(x), "aux": None}, inputs, devices=devices)
    assert twin.verdict is Verdict.PASS, twin
