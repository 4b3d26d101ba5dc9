"""Stages and activations on the wrong device (M01, M02, M04), and Keras weights away from the work (P08)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program, kinds, planted
from harness.faults.samples import sample
from harness.lazy import tf
from harness.parallel.model import pipeline

FAULTS: list[Fault[Case]] = []

_UNITS, _ROWS = 4, 6


def _layers(devices: Devices) -> tuple[list[Callable[[Any], Any]], list[Any]]:
    """A dense layer for each device, with its weights there: the layers, and the weights."""
    weights = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            weights.append(tf.Variable(sample(_UNITS, _UNITS, seed=index) / 2, name=f"weights_{index}"))
    return [lambda x, w=w: tf.tanh(tf.matmul(x, w)) for w in weights], weights  # type: ignore[misc]


def _placed(layers: Sequence[Callable[[Any], Any]], places: Sequence[str]) -> Program:
    """The layers in sequence, each in the scope of its device."""

    def program(x: Any) -> Any:
        for layer, place in zip(layers, places, strict=True):
            with tf.device(place):
                x = layer(x)
        return x

    return program


def _unsplit(layers: Sequence[Callable[[Any], Any]]) -> Program:
    def reference(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    return reference


def _stages(devices: Devices, places: Sequence[str], *found: str) -> Case:
    layers, _ = _layers(devices)
    inputs = {"x": sample(_ROWS, _UNITS, seed=7)}
    twin = _placed(layers, devices.names)
    return Case(_placed(layers, places), twin, _unsplit(layers), inputs, kinds(*found), pattern="stages")


@planted(
    FAULTS,
    "M01-two-stages-on-one-device",
    "a stage runs on the previous stage's device",
    "a slip in a list of devices: one device idles, and another fetches weights in every call",
    "no op of the program ran on|pass tensors only to the next device",
    devices_needed=3,
)
def _two_on_one(devices: Devices) -> Case:
    """The last stage but one runs on the device of the one before it."""
    names = list(devices.names)
    names[-2] = names[-3]
    return _stages(devices, names, "transfer", "variable-placement")


@planted(
    FAULTS,
    "M01-stages-swapped",
    "two stages run on each other's devices",
    "a slip in a list of devices",
    "pass tensors only to the next device",
    devices_needed=3,
)
def _swapped(devices: Devices) -> Case:
    names = list(devices.names)
    names[-1], names[-2] = names[-2], names[-1]
    return _stages(devices, names, "transfer", "variable-placement")


@planted(
    FAULTS,
    "M02-activation-through-the-host",
    "an activation is fetched to the host on its way to the next stage",
    "a check, a print or a clip between two stages, outside their scopes",
    "(pass tensors only to the next device|a device that is not part of the pipeline).*Tanh",
    devices_needed=3,
)
def _through_the_host(devices: Devices) -> Case:
    """The input of the last stage is fetched to the host and clipped there."""
    layers, _ = _layers(devices)

    def parallel(x: Any) -> Any:
        for index, (layer, device) in enumerate(zip(layers, devices, strict=True)):
            if index == len(layers) - 1:
                with tf.device(devices.host):
                    x = tf.clip_by_value(x, -1.0, 1.0)
            with tf.device(device.name):
                x = layer(x)
        return x

    inputs = {"x": sample(_ROWS, _UNITS, seed=7)}
    twin = _placed(layers, devices.names)
    return Case(parallel, twin, _unsplit(layers), inputs, kinds("transfer"), pattern="stages")


@planted(
    FAULTS,
    "P08-keras-weights-away-from-the-work",
    "Keras layers built in a device scope keep their weights there and compute on the default device",
    "tensorflow 53671",
    "no op of the program ran|variable",
)
def _keras_layers(devices: Devices) -> Case:
    """Layers that are built in the scopes of their devices, but called outside: they compute on the default device."""
    layers = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            layer = tf.keras.layers.Dense(_UNITS, activation="tanh")
            layer.build((None, _UNITS))
            layer.kernel.assign(sample(_UNITS, _UNITS, seed=index) / np.float32(2))
            layers.append(layer)
    inputs = {"x": sample(_ROWS, _UNITS, seed=7)}
    pipe = pipeline(layers, devices)
    found = kinds("unused-device", "variable-placement")
    return Case(_unsplit(layers), lambda x: pipe(x), _unsplit(layers), inputs, found, pattern="stages")


@planted(
    FAULTS,
    "M04-gradients-of-micro-batches-added-up-elsewhere",
    "every micro-batch's gradient of a stage's weights is sent to device 0 and added up there",
    "micro-batches in a loop: tf.GradientTape adds up where tape.gradient is called",
    "pass gradients only to the previous device",
    devices_needed=3,
)
def _micro_batches_by_hand(devices: Devices) -> Case:
    """Each stage has a tape of its own on its device, and the outer tape adds up a weight's gradients on device 0."""
    layers, weights = _layers(devices)

    def stage(x: Any, w: Any, device: str) -> Any:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def dense(x: Any, w: Any) -> Any:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([x, w])
                y = tf.tanh(tf.matmul(x, w))

            def gradient(upstream: Any) -> Any:
                with tf.device(device):
                    return tape.gradient(y, [x, w], upstream)

            return y, gradient

        with tf.device(device):
            return dense(x, w.read_value())

    def parallel(x: Any) -> Any:
        done = []
        for part in tf.split(x, 2):
            for w, device in zip(weights, devices, strict=True):
                part = stage(part, w, device.name)
            done.append(part)
        with tf.device(devices[-1].name):
            return tf.concat(done, axis=0)

    inputs = {"x": sample(_ROWS, _UNITS, seed=7)}
    pipe = pipeline(layers, devices, microbatches=2)
    return Case(
        parallel,
        lambda x: pipe(x=x),
        _unsplit(layers),
        inputs,
        kinds("transfer"),
        variables=weights,
        gradients=True,
        pattern="stages",
    )
