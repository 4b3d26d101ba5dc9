"""Programs that share out a batch or a layer, and run half of the work, or more, on one device; and clean twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness import Devices
from harness.faults.samples import sample

_UNITS = 32
Case = tuple[Callable[..., Any], dict[str, Any], list[Any]]


def _variable(*shape: int, seed: int = 0) -> Any:
    return tf.Variable(sample(*shape, seed=seed) / 6.0)


def _layers(number: int) -> list[Any]:
    return [_variable(_UNITS, _UNITS, seed=seed) for seed in range(number)]


def slices_that_are_cut_twice(devices: Devices, wrong: bool) -> Case:
    """A second loop cuts the same slices once more; its layers are all on the first device."""
    coarse, *fine = weights = _layers(3)

    def program(x: Any) -> Any:
        blocks, seen = tf.reshape(x, [len(devices), -1, _UNITS]), []
        for i in range(len(devices)):
            with tf.device(devices[i].name):
                seen.append(tf.tanh(blocks[i] @ coarse))
        for i in range(len(devices)):
            with tf.device(devices[0 if wrong else i].name):
                seen.append(tf.tanh(tf.tanh(blocks[i] @ fine[0]) @ fine[1]))
        return tf.concat(seen, 0)

    return program, {"x": sample(4 * len(devices), _UNITS)}, weights


def second_convolution_of_slabs(devices: Devices, wrong: bool) -> Case:
    """Slabs of an image get rows of their neighbours or, at the edge, zeros: on one side the first, on one the last."""
    kernels = [_variable(3, 3, 8, 8, seed=seed) for seed in range(2)]

    def convolved(slabs: list[Any], i: int, kernel: Any) -> Any:
        filling = tf.zeros_like(slabs[i][:, :1])
        before = slabs[i - 1][:, -1:] if i else filling
        after = slabs[i + 1][:, :1] if i + 1 < len(slabs) else filling
        padding = [[0, 0], [0, 0], [1, 1], [0, 0]]
        return tf.nn.relu(tf.nn.conv2d(tf.concat([before, slabs[i], after], 1), kernel, 1, padding))

    def program(x: Any) -> Any:
        slabs = tf.split(x, len(devices), axis=1)
        for number, kernel in enumerate(kernels):
            made = []
            for i in range(len(devices)):
                with tf.device(devices[0 if wrong and number else i].name):
                    made.append(convolved(slabs, i, kernel))
            slabs = made
        return tf.concat(slabs, 1)

    return program, {"x": sample(2, 4 * len(devices), 12, 8)}, kernels


def second_input_where_the_losses_meet(devices: Devices, wrong: bool) -> Case:
    """All parts of the second input are on the last device, where their losses are added to those of the first."""
    there, back = weights = _layers(2)

    def loss(rows: Any, first: Any, second: Any) -> Any:
        return tf.reduce_mean(tf.abs(tf.tanh(rows @ first) @ second - rows), 1)

    def program(a: Any, b: Any) -> Any:
        losses = []
        for i, rows in enumerate(tf.split(a, len(devices))):
            with tf.device(devices[i].name):
                losses.append(loss(rows, there, back))
        for i, rows in enumerate(tf.split(b, len(devices))):
            with tf.device(devices[-1 if wrong else i].name):
                losses[i] += 10.0 * loss(rows, back, there)
        return tf.concat(losses, 0)

    number = 4 * len(devices)
    return program, {"a": sample(number, _UNITS), "b": sample(number, _UNITS, seed=1)}, weights


def rows_of_the_second_layer(devices: Devices, wrong: bool) -> Case:
    """Each device has columns of the first layer; the rows of the second one are all used on the first device."""
    blocks = [(_variable(_UNITS, 16, seed=i), _variable(16, _UNITS, seed=9 + i)) for i in range(len(devices))]

    def program(x: Any) -> Any:
        hidden, parts = [], []
        for device, (columns, _) in zip(devices, blocks, strict=True):
            with tf.device(device.name):
                hidden.append(tf.tanh(x @ columns))
        for i, (_, rows) in enumerate(blocks):
            with tf.device(devices[0 if wrong else i].name):
                parts.append(hidden[i] @ rows)
        return tf.add_n(parts)

    return program, {"x": sample(8, _UNITS)}, [each for pair in blocks for each in pair]


def loop_on_the_joined_codes(devices: Devices, wrong: bool) -> Case:
    """A loop in no scope has one layer and many passes."""
    weights = _layers(5)

    def imagined(state: Any) -> Any:
        return tf.while_loop(lambda t, _: t < 8, lambda t, h: (t + 1, tf.tanh(h @ weights[-1])), (0, state))[1]

    def encoded(rows: Any) -> Any:
        for w in weights[:-1]:
            rows = tf.tanh(rows @ w)
        return rows

    def program(x: Any) -> Any:
        seen = []
        for device, rows in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                seen.append(encoded(rows) if wrong else imagined(encoded(rows)))
        return imagined(tf.concat(seen, 0)) if wrong else tf.concat(seen, 0)

    return program, {"x": sample(4 * len(devices), _UNITS)}, weights


def decoder_on_the_joined_codes(devices: Devices, wrong: bool) -> Case:
    """A graph fuses each layer with what follows on it; the decoder, in no scope, has most of the work all the same."""
    layers = [(w, _variable(_UNITS, seed=seed)) for seed, w in enumerate(_layers(5))]

    def applied(x: Any, some: list[Any]) -> Any:
        for w, bias in some:
            x = tf.nn.relu(tf.nn.bias_add(x @ w, bias))
        return x

    def program(x: Any) -> Any:
        codes = []
        for device, rows in zip(devices, tf.split(x, len(devices)), strict=True):
            with tf.device(device.name):
                codes.append(applied(rows, layers[: 2 if wrong else 5]))
        return applied(tf.concat(codes, 0), layers[2:]) if wrong else tf.concat(codes, 0)

    return program, {"x": sample(4 * len(devices), _UNITS)}, [each for pair in layers for each in pair]


def loop_after_a_lookup(devices: Devices, wrong: bool) -> Case:
    """A lookup runs at its table, which costs nothing beside the loop that follows on the shard's device."""
    table, (w, u, out) = _variable(40, _UNITS), _layers(3)

    def recurrent(x: Any) -> Any:
        return tf.while_loop(
            lambda t, _: t < 6, lambda t, h: (t + 1, tf.tanh(x[:, t] @ w + h @ u)), (0, tf.zeros_like(x[:, 0]))
        )[1]

    def program(ids: Any) -> Any:
        states = []
        for i, numbers in enumerate(tf.split(ids, len(devices))):
            with tf.device(devices[i].name):
                rows = tf.gather(table, numbers)
                with tf.device(devices[0 if wrong else i].name):
                    state = recurrent(rows)
                states.append(state @ out)
        return tf.concat(states, 0)

    ids = np.random.default_rng(0).integers(0, 40, (4 * len(devices), 6)).astype("int32")
    return program, {"ids": ids}, [table, w, u, out]


@pytest.mark.parametrize(
    "program",
    [
        slices_that_are_cut_twice,
        second_convolution_of_slabs,
        second_input_where_the_losses_meet,
        rows_of_the_second_layer,
        loop_on_the_joined_codes,
        decoder_on_the_joined_codes,
        loop_after_a_lookup,
    ],
)
def test_layers_on_one_device_are_found_and_the_clean_twin_passes(
    program: Callable[[Devices, bool], Case], devices: Devices
) -> None:
    for wrong in (True, False):
        parallel, inputs, variables = program(devices, wrong)
        found = harness.verify(parallel, inputs=inputs, devices=devices, variables=variables, gradients=False)
        assert {finding.kind for finding in found.findings} == ({"op-placement"} if wrong else set()), found
        modes = {mode for finding in found.findings for mode in finding.mode.split(", ")}
        assert modes == ({"eager", "graph"} if wrong else set()), found


@pytest.mark.parametrize("idle", [False, True])
def test_rows_that_each_shard_looks_up_in_an_argument_are_work(devices: Devices, idle: bool) -> None:
    """TensorFlow cuts the batch on the first device, which is the last one here; views of the shards are no work."""
    turned = Devices([*reversed(devices)], spec=devices.spec, host=devices.host)

    def model(ids: Any, table: Any) -> Any:
        return tf.gather(table, ids)

    def program(ids: Any, table: Any) -> Any:
        parts = []
        for device, part in zip(turned, tf.split(ids, len(turned)), strict=True):
            with tf.device((turned[-1] if idle else device).name):
                parts.append(model(tf.ensure_shape(part, [3]), table))
        return tf.concat(parts, 0)

    inputs = {"ids": tf.range(3 * len(turned)) % 5, "table": sample(5, 4)}
    parallel = program if idle else harness.make_parallel(model, turned, broadcast=("table",))
    modes: Any = ("graph",) if idle else ("graph", "dynamic")
    found = harness.verify(parallel, model, inputs, devices=turned, modes=modes)
    assert {finding.kind for finding in found.findings} == ({"unused-device"} if idle else set()), found
