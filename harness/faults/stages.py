"""Stages and activations on the wrong device (M01, M02, M04), and Keras weights away from the work (P08)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds
from harness.faults.samples import sample
from harness.faults.wiring import UNITS, Parts, rows, wired
from harness.lazy import tf
from harness.parallel.model import pipeline


def _stages(
    faulty: Callable[[Parts, Any], Any], *found: str, right: Callable[[Parts, Any], Any] = Parts.stages, **options: Any
) -> Callable[[Devices], Case]:
    return wired("stages", Parts.whole, faulty, right, *found, also=frozenset(), **options)


def _two_on_one(p: Parts, x: Any) -> Any:
    """The last stage but one runs on the device of the one before it."""
    return _placed(p, x, [*p.names[:-2], p.names[-3], p.names[-1]])


def _swapped(p: Parts, x: Any) -> Any:
    return _placed(p, x, [*p.names[:-2], p.names[-1], p.names[-2]])


def _placed(p: Parts, x: Any, places: list[str]) -> Any:
    for index, place in enumerate(places):
        with tf.device(place):
            x = p.layer(x, index)
    return x


def _through_the_host(p: Parts, x: Any) -> Any:
    """The input of the last stage is fetched to the host and clipped there."""
    *others, last = range(len(p.names))
    x = p.stages(x, others)
    with tf.device(p.host):
        x = tf.clip_by_value(x, -1.0, 1.0)
    return p.stages(x, [last])


def _keras_layers(devices: Devices) -> Case:
    """Layers that are built in the scopes of their devices, but called outside: they compute on the default device."""
    layers = []
    for index, device in enumerate(devices):
        with tf.device(device.name):
            layer = tf.keras.layers.Dense(UNITS, activation="tanh")
            layer.build((None, UNITS))
            layer.kernel.assign(sample(UNITS, UNITS, seed=index) / np.float32(2))
            layers.append(layer)

    def unsplit(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    pipe = pipeline(layers, devices)
    found = kinds("unused-device", "variable-placement")
    return Case(unsplit, lambda x: pipe(x), unsplit, rows(), found, pattern="stages")


def _micro_batches_by_hand(p: Parts, x: Any) -> Any:
    """Each stage has a tape of its own on its device, and the outer tape adds up a weight's gradients on device 0."""

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

    done = []
    for part in tf.split(x, 2):
        for w, name in zip(p.weights, p.names, strict=True):
            part = stage(part, w, name)
        done.append(part)
    with tf.device(p.names[-1]):
        return tf.concat(done, axis=0)


def _piped(p: Parts, x: Any) -> Any:
    layers = [partial(p.layer, index=index) for index in range(len(p.names))]
    return pipeline(layers, p.devices, microbatches=2)(x=x)


FAULTS = (
    Fault(
        "M01-two-stages-on-one-device",
        "a stage runs on the previous stage's device",
        "a slip in a list of devices: one device idles, and another fetches weights in every call",
        _stages(_two_on_one, "transfer", "variable-placement"),
        "no op of the program ran on|pass tensors only to the next device",
        devices_needed=3,
    ),
    Fault(
        "M01-stages-swapped",
        "two stages run on each other's devices",
        "a slip in a list of devices",
        _stages(_swapped, "transfer", "variable-placement"),
        "pass tensors only to the next device",
        devices_needed=3,
    ),
    Fault(
        "M02-activation-through-the-host",
        "an activation is fetched to the host on its way to the next stage",
        "a check, a print or a clip between two stages, outside their scopes",
        _stages(_through_the_host, "transfer"),
        "(pass tensors only to the next device|a device that is not part of the pipeline).*Tanh",
        devices_needed=3,
    ),
    Fault(
        "P08-keras-weights-away-from-the-work",
        "Keras layers built in a device scope keep their weights there and compute on the default device",
        "tensorflow 53671",
        _keras_layers,
        "no op of the program ran|variable",
    ),
    Fault(
        "M04-gradients-of-micro-batches-added-up-elsewhere",
        "every micro-batch's gradient of a stage's weights is sent to device 0 and added up there",
        "micro-batches in a loop: tf.GradientTape adds up where tape.gradient is called",
        _stages(_micro_batches_by_hand, "transfer", right=_piped, variables=lambda p: p.weights, gradients=True),
        "pass gradients only to the previous device",
        devices_needed=3,
    ),
)
