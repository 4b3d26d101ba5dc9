"""Wrong device: work in the scope of another shard's device (P17), and Python functions in a device's scope (P18)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, kinds, planted, soft_placement
from harness.faults.samples import dense, sample, shares, uneven
from harness.lazy import tf

FAULTS: list[Fault[Case]] = []


def _layers() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A dense layer from 3 to 5 features, and one from 5 to 4."""
    weights = tf.Variable(sample(5, 4, seed=3))
    first, _ = dense()
    return first, lambda x: tf.nn.softplus(tf.matmul(x, weights))


def _planted(devices: Devices, place: Callable[[int], str]) -> Case:
    """Two layers; the second one of shard k is in the scope of ``place(k)``."""
    first, second = _layers()

    def on(places: Callable[[int], str]) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            outputs = []
            for index, part in enumerate(tf.split(x, shares(x.shape[0], len(devices)))):
                with tf.device(devices[index].name):
                    hidden = first(part)
                with tf.device(places(index)):
                    outputs.append(second(hidden))
            return tf.concat(outputs, axis=0)

        return program

    inputs = {"x": sample(uneven(len(devices)), 3)}
    twin = on(lambda index: devices[index].name)
    return Case(on(place), twin, lambda x: second(first(x)), inputs, kinds("op-placement"))


@planted(
    FAULTS,
    "P17-hard-coded",
    "a hard-coded device in the second layer",
    "public code",
    "in a device scope that is not the shard's.*MatMul",
)
def _hard_coded(devices: Devices) -> Case:
    return _planted(devices, lambda _: devices[0].name)


@planted(
    FAULTS,
    "P17-copied-index",
    "the second layer runs on the device of a neighbour",
    "public code",
    "in a device scope that is not the shard's.*MatMul",
)
def _copied_index(devices: Devices) -> Case:
    last = len(devices) - 1
    return _planted(devices, lambda index: devices[index - 1 if index == last else index].name)


@planted(
    FAULTS,
    "P17-rare-branch",
    "a rare branch on device 0",
    "public code",
    "in a device scope that is not the shard's.*MatMul",
)
def _in_a_branch(devices: Devices) -> Case:
    """A branch that no shard takes: only the placed graph shows it."""
    first, second = _layers()

    def on(place: Callable[[int], str | None]) -> Callable[..., Any]:
        def tower(part: Any, index: int) -> Any:
            def rare() -> Any:
                with tf.device(place(index)):
                    return tf.exp(second(first(part)))

            return tf.cond(tf.reduce_max(part) > 100.0, rare, lambda: second(first(part)))

        def program(x: Any) -> Any:
            outputs = []
            for index, part in enumerate(tf.split(x, shares(x.shape[0], len(devices)))):
                with tf.device(devices[index].name):
                    outputs.append(tower(part, index))
            return tf.concat(outputs, axis=0)

        return program

    inputs = {"x": sample(uneven(len(devices)), 3)}
    parallel, twin = on(lambda _: devices[0].name), on(lambda index: devices[index].name)
    return Case(parallel, twin, lambda x: second(first(x)), inputs, kinds("op-placement"), modes=("graph",))


@planted(
    FAULTS,
    "P17-all-but-a-scaling",
    "everything but a scaling runs on device 0",
    "public code",
    "in a device scope that is not the shard's.*MatMul",
)
def _all_but_a_scaling(devices: Devices) -> Case:
    """Every device is used, for next to nothing."""
    first, second = _layers()

    def reference(x: Any) -> Any:
        return second(first(x)) * 0.5

    def on(place: Callable[[int], str]) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            outputs = []
            for index, part in enumerate(tf.split(x, shares(x.shape[0], len(devices)))):
                with tf.device(place(index)):
                    hidden = second(first(part))
                with tf.device(devices[index].name):
                    outputs.append(hidden * 0.5)
            return tf.concat(outputs, axis=0)

        return program

    inputs = {"x": sample(uneven(len(devices)), 3)}
    parallel, twin = on(lambda _: devices[0].name), on(lambda index: devices[index].name)
    return Case(parallel, twin, reference, inputs, kinds("op-placement"))


def _python(devices: Devices, call: Callable[[Any], Any], modes: tuple[str, ...]) -> Case:
    first, _ = _layers()

    def on_each(fn: Callable[[Any], Any]) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            outputs = []
            for device, part in zip(devices, tf.split(x, shares(x.shape[0], len(devices))), strict=True):
                with tf.device(device.name):
                    outputs.append(fn(first(part)))
            return tf.concat(outputs, axis=0)

        return program

    def reference(x: Any) -> Any:
        return tf.math.cos(first(x))

    inputs = {"x": sample(uneven(len(devices)), 3)}
    return Case(on_each(call), on_each(tf.math.cos), reference, inputs, kinds("op-placement"), modes=modes)


@planted(
    FAULTS,
    "P18-numpy-function",
    "numpy_function in a device scope",
    "TensorFlow's documentation",
    "a Python function runs on the host.*PyFunc",
)
def _numpy(devices: Devices) -> Case:
    """In eager code TensorFlow calls the function itself, without an op. The op has no GPU kernel."""
    case = _python(devices, lambda x: tf.numpy_function(np.cos, [x], tf.float32), ("graph",))
    return replace(case, surroundings=soft_placement)


@planted(
    FAULTS,
    "P18-py-function",
    "py_function in a device scope",
    "TensorFlow's documentation",
    "a Python function runs on the host.*PyFunc",
)
def _eager_python(devices: Devices) -> Case:
    return _python(devices, lambda x: tf.py_function(tf.math.cos, [x], tf.float32), ("eager", "graph"))
