"""What devices compute again is found where each keeps a part, or all is added up, and not where it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=4)
_ROWS = 16


def _numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@dataclass
class Net:
    """Two layers, and a head for each device."""

    names: Sequence[str]

    def __post_init__(self) -> None:
        self.w = tf.Variable(_numbers(1, 32, 64))
        self.v = tf.Variable(_numbers(2, 64, 16))
        self.heads = [tf.Variable(_numbers(3 + at, 16, 4)) for at in range(len(self.names))]
        self.parts = [(_ROWS * at // len(self.names), _ROWS * (at + 1) // len(self.names)) for at in range(self.count)]

    @property
    def count(self) -> int:
        return len(self.names)

    def layers(self, x: Any) -> Any:
        return tf.matmul(tf.nn.relu(tf.matmul(x, self.w)), self.v)

    def loss(self, x: Any) -> Any:
        return tf.reduce_mean(tf.square(self.layers(x)))

    def each(self, fn: Callable[[int], Any]) -> list[Any]:
        found = []
        for at, name in enumerate(self.names):
            with tf.device(name):
                found.append(fn(at))
        return found

    def step(self, loss: Callable[[], Any]) -> list[Any]:
        with tf.GradientTape() as tape:
            value = loss()
        return [value, *tape.gradient(value, [self.w, self.v])]


def _rows(y: Any, part: tuple[int, int]) -> Any:
    return y[part[0] : part[1]]


def _middle(a: Any, b: Any, c: Any) -> Any:
    return tf.maximum(tf.minimum(a, b), tf.minimum(tf.maximum(a, b), c))


#: A wrong program and its right twin, functions of the net, an index and the batch, how to join, and the reference.
Case = tuple[Callable[..., Any], Callable[..., Any], Callable[[list[Any]], Any], Callable[..., Any]]


def _join(parts: list[Any]) -> Any:
    return tf.concat(parts, 0)


def _mean(steps: list[Any]) -> Any:
    return [tf.add_n(each) / len(steps) for each in zip(*steps, strict=True)]


def _of(n: Net, i: int, y: Any) -> Any:
    return _rows(y, n.parts[i])


def _mask(n: Net, i: int) -> Any:
    rows = tf.range(_ROWS)
    return tf.cast((rows >= n.parts[i][0]) & (rows < n.parts[i][1]), tf.float32)[:, None]


FOUND: dict[str, Case] = {
    "the batch is cut behind the layers": (
        lambda n, i, x: _of(n, i, n.layers(x)),
        lambda n, i, x: n.layers(_of(n, i, x)),
        _join,
        Net.layers,
    ),
    "it is split behind them": (
        lambda n, i, x: tf.split(n.layers(x), [b - a for a, b in n.parts])[i],
        lambda n, i, x: n.layers(tf.split(x, [b - a for a, b in n.parts])[i]),
        _join,
        Net.layers,
    ),
    "it is cut behind a sum of two layers": (
        lambda n, i, x: _of(n, i, tf.matmul(x, n.w) + 0.5 * tf.matmul(tf.tanh(x), n.w)),
        lambda n, i, x: tf.matmul(_of(n, i, x), n.w) + 0.5 * tf.matmul(tf.tanh(_of(n, i, x)), n.w),
        _join,
        lambda n, x: tf.matmul(x, n.w) + 0.5 * tf.matmul(tf.tanh(x), n.w),
    ),
    "it is cut behind the first layer": (
        lambda n, i, x: _of(n, i, tf.matmul(x, n.w)) @ n.v,
        lambda n, i, x: tf.matmul(_of(n, i, x), n.w) @ n.v,
        _join,
        lambda n, x: tf.matmul(x, n.w) @ n.v,
    ),
    "all other rows are masked": (
        lambda n, i, x: n.layers(x) * _mask(n, i),
        lambda n, i, x: n.layers(_of(n, i, x)),
        lambda parts: tf.add_n(parts) if parts[0].shape[0] == _ROWS else tf.concat(parts, 0),
        Net.layers,
    ),
    "each step gets the whole batch": (
        lambda n, i, x: n.step(lambda: n.loss(x)),
        lambda n, i, x: n.step(lambda: n.loss(_of(n, i, x))),
        _mean,
        lambda n, x: n.step(lambda: n.loss(x)),
    ),
}
#: What is computed again, and wanted so: a program, how it is joined, and the reference.
WANTED: dict[str, tuple[Callable[..., Any], Callable[[list[Any]], Any], Callable[..., Any]]] = {
    "results of replicas": (lambda n, i, x: n.layers(x), list, lambda n, x: [n.layers(x)] * n.count),
    "stacked results": (lambda n, i, x: n.layers(x), tf.stack, lambda n, x: tf.stack([n.layers(x)] * n.count)),
    "heads of one trunk": (
        lambda n, i, x: n.layers(x) @ n.heads[i],
        tf.add_n,
        lambda n, x: tf.add_n([n.layers(x) @ head for head in n.heads]),
    ),
    "heads on one row": (
        lambda n, i, x: n.layers(x)[:1] @ n.heads[i],
        tf.add_n,
        lambda n, x: tf.add_n([n.layers(x)[:1] @ head for head in n.heads]),
    ),
    "keys for all queries": (
        lambda n, i, x: tf.nn.softmax(_of(n, i, x) @ n.w @ tf.transpose(x @ n.w)) @ (x @ n.w),
        _join,
        lambda n, x: tf.nn.softmax(x @ n.w @ tf.transpose(x @ n.w)) @ (x @ n.w),
    ),
    "neighbours of all nodes": (
        lambda n, i, x: tf.gather(x @ n.w, (np.arange(*n.parts[i]) + 3) % _ROWS) @ n.v,
        _join,
        lambda n, x: tf.gather(x @ n.w, (np.arange(_ROWS) + 3) % _ROWS) @ n.v,
    ),
    "running sums over all rows": (
        lambda n, i, x: _of(n, i, tf.cumsum(tf.nn.relu(x @ n.w))),
        _join,
        lambda n, x: tf.cumsum(tf.nn.relu(x @ n.w)),
    ),
    "checked by another device": (
        lambda n, i, x: (n.layers(_of(n, i, x)), n.layers(_of(n, (i + 1) % n.count, x))),
        lambda made: tf.concat([tf.where(abs(a - made[i - 1][1]) < 1e-3, a, 0.0) for i, (a, _) in enumerate(made)], 0),
        Net.layers,
    ),
    "the middle one of three": (
        lambda n, i, x: [n.layers(_of(n, (i + k) % n.count, x)) for k in range(3)],
        lambda made: tf.concat([_middle(*(made[i - k][k] for k in range(3))) for i in range(len(made))], 0),
        Net.layers,
    ),
    "draws of one model": (
        lambda n, i, x: tf.nn.experimental.stateless_dropout(x @ n.w, 0.5, seed=[i, 0]) @ n.v,
        tf.add_n,
        lambda n, x: tf.add_n(
            [tf.nn.experimental.stateless_dropout(x @ n.w, 0.5, seed=[i, 0]) @ n.v for i in range(n.count)]
        ),
    ),
}


def _verified(
    devices: harness.Devices, fn: Callable[..., Any], join: Callable[..., Any], reference: Callable[..., Any]
) -> harness.Verification:
    net = Net(devices.names)
    return harness.verify(
        lambda x: join(net.each(lambda i: fn(net, i, x))),
        lambda x: reference(net, x),
        {"x": _numbers(0, _ROWS, 32)},
        devices=devices,
        modes=["graph"],
    )


@pytest.mark.parametrize("name", FOUND)
def test_work_that_devices_repeat_is_found_and_the_right_twin_passes(name: str, devices: harness.Devices) -> None:
    wrong, right, join, reference = FOUND[name]
    found = _verified(devices, wrong, join, reference)
    assert [finding.kind for finding in found.findings] == ["repeated-work"], found
    assert __file__.rpartition("/")[2] in found.findings[0].message
    clean = _verified(devices, right, join, reference)
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean


@pytest.mark.parametrize("name", WANTED)
def test_work_that_is_wanted_on_each_device_passes(name: str, devices: harness.Devices) -> None:
    clean = _verified(devices, *WANTED[name])
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean


def test_a_program_without_a_reference_is_judged_too(devices: harness.Devices) -> None:
    net = Net(devices.names)

    def program(x: Any) -> Any:
        return _join(net.each(lambda i: _of(net, i, net.layers(x))))

    found = harness.verify(program, inputs={"x": _numbers(0, _ROWS, 32)}, devices=devices, modes=["graph"])
    assert [finding.kind for finding in found.findings] == ["repeated-work"], found
    assert found.proof is None
