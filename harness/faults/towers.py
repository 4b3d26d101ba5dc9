"""Wrong device: work in the scope of another shard's device (P17), and Python functions in a device's scope (P18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault
from harness.faults.samples import uneven
from harness.faults.slips import Towers, elsewhere, second, slip, two_layers
from harness.judgement.runs import soft_placement
from harness.lazy import tf


def _second_there(t: Towers, x: Any, place: str | None) -> Any:
    hidden = t.model(x)
    with tf.device(place):
        return second(t, hidden)


def _of_a_neighbour(t: Towers, index: int) -> str:
    """The last one by mistake."""
    return t.names[index - 1 if index == t.count - 1 else index]


def _there_for_all(t: Towers, x: Any) -> Any:
    """Each shard's second layer runs on the next device."""
    hidden = []
    for name, part in t.shards(x):
        with tf.device(name):
            hidden.append(t.model(part))
    results = []
    for index, each in enumerate(hidden):
        with tf.device(t.names[(index + 1) % t.count]):
            results.append(second(t, each))
    return tf.concat(results, 0)


def _rare_branch(t: Towers, x: Any, place: str | None) -> Any:
    """A branch that no shard takes: only the placed graph shows it."""

    def rare() -> Any:
        with tf.device(place):
            return tf.exp(two_layers(t, x))

    return tf.cond(tf.reduce_max(x) > 100.0, rare, lambda: two_layers(t, x))


def _all_but_a_scaling(t: Towers, x: Any, place: str | None) -> Any:
    """Every device is used, for next to nothing."""
    with tf.device(place):
        result = two_layers(t, x)
    return result * 0.5


def _python(call: Callable[[Any], Any], **options: Any) -> Callable[[Devices], Case]:
    def program(fn: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda t, x: t.joined(lambda part: fn(t.model(part)), x)

    return slip(
        lambda t, x: tf.math.cos(t.model(x)),
        program(call),
        program(lambda x: tf.math.cos(x)),
        "op-placement",
        rows=uneven,
        **options,
    )


_NOT_THE_SHARDS = "in a device scope that is not the shard's.*MatMul"
_ON_THE_HOST = "a Python function runs on the host.*PyFunc"
_DOCUMENTATION = "TensorFlow's documentation"

FAULTS = (
    Fault(
        "P17-hard-coded",
        "a hard-coded device in the second layer",
        "public code",
        elsewhere(_second_there),
        _NOT_THE_SHARDS,
    ),
    Fault(
        "P17-copied-index",
        "the second layer runs on the device of a neighbour",
        "public code",
        elsewhere(_second_there, _of_a_neighbour),
        _NOT_THE_SHARDS,
    ),
    Fault(
        "P17-all-one-further",
        "the second layer of each shard runs on the next device",
        "public code",
        slip(two_layers, _there_for_all, lambda t, x: t.joined(lambda part: two_layers(t, part), x), "op-placement"),
        "a step on each shard ran on the device of another shard.*MatMul",
    ),
    Fault(
        "P17-rare-branch",
        "a rarely taken branch on device 0",
        "public code",
        elsewhere(_rare_branch, modes=("graph",)),
        _NOT_THE_SHARDS,
    ),
    Fault(
        "P17-all-but-a-scaling",
        "everything but a scaling runs on device 0",
        "public code",
        elsewhere(_all_but_a_scaling, reference=lambda t, x: two_layers(t, x) * 0.5),
        _NOT_THE_SHARDS,
    ),
    # In eager code TensorFlow calls the function itself, without an op. The op has no GPU kernel.
    Fault(
        "P18-numpy-function",
        "numpy_function in a device scope",
        _DOCUMENTATION,
        _python(lambda x: tf.numpy_function(np.cos, [x], tf.float32), modes=("graph",), surroundings=soft_placement),
        _ON_THE_HOST,
    ),
    Fault(
        "P18-py-function",
        "py_function in a device scope",
        _DOCUMENTATION,
        _python(lambda x: tf.py_function(tf.math.cos, [x], tf.float32)),
        _ON_THE_HOST,
    ),
)
