"""Correct programs that a simple rule would call faulty (P03, P04), each beside a fault that the rule misses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault
from harness.faults.samples import on_each, sample
from harness.faults.slips import Towers, slip
from harness.judgement.runs import soft_placement
from harness.lazy import tf


def _shown_there(t: Towers, x: Any) -> Any:
    """The work is done outside the scopes, and the results pass through them: ``.device`` names each in turn."""
    return on_each(t.names, tf.identity, [t.model(part) for part in t.split(x)])


def _device_of_a_result(devices: Devices) -> Case:
    """In the twin, ``.device`` of the results of a ``tf.function`` is CPU:0 wherever they were computed."""
    case = slip(
        lambda t, x: [t.model(part) for part in t.split(x)],
        _shown_there,
        lambda t, x: t.each(t.model, x),
        "unused-device",
    )(devices)
    return replace(case, twin=tf.function(case.twin))


def _described(hidden: Any, label: Any, result: Any) -> Any:
    counted = tf.cast(label, tf.int32) * 2 + tf.shape(hidden)[1]
    return {"result": result, "count": counted, "text": tf.strings.as_string(counted)}


def _host_tensors(t: Towers, x: Any, label: Any) -> Any:
    """Integers, strings and shapes are on the host whatever their scope, which is no fault."""
    hidden = t.model(x)
    return _described(hidden, label, tf.nn.softmax(hidden))


def _joined(results: list[Any]) -> Any:
    return tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *results)


def _softmax_outside(t: Towers, x: Any, label: Any) -> Any:
    """A float op among them stands outside its scope, and so runs on the host."""
    results = []
    for (name, part), own in zip(t.shards(x), t.split(label), strict=True):
        with tf.device(name):
            hidden = t.model(part)
        results.append(_described(hidden, own, tf.nn.softmax(hidden)))
    return _joined(results)


FAULTS = (
    Fault(
        "P03-device-of-a-result",
        "the `device` attribute of a result names a device that computed nothing",
        "tensorflow 41307",
        _device_of_a_result,
        "no op of the program ran on",
    ),
    Fault(
        "P04-host-tensors",
        "a float op outside of its scope, among ops that belong on the host",
        "tensorflow 34071",
        slip(
            _host_tensors,
            _softmax_outside,
            lambda t, x, label: _joined(t.each(partial(_host_tensors, t), x, label)),
            "op-placement",
            inputs=lambda count: {"x": sample(2 * count, 3), "label": np.arange(2 * count, dtype=np.int32)},
            surroundings=soft_placement,
        ),
        "outside of the shard's device scope.*Softmax",
    ),
)
