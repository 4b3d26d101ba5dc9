"""Where TensorFlow or a device is at fault, the settings that make the difference go away are listed; else none are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness import Devices, verify
from harness.softgpu.compiler import NAMES

X = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)


def _largest(devices: Devices, x: Any, in_graph: float | None = None) -> Any:
    """The largest tanh in each tower; in a graph of TF 2.21, the largest of the whole batch in each."""
    rows = []
    for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
        with tf.device(device.name):
            rows.append(
                tf.reduce_max(tf.tanh(part if in_graph is None or tf.executing_eagerly() else in_graph * part), axis=0)
            )
    return tf.stack(rows)


def _reference(x: Any) -> Any:
    return tf.reduce_max(tf.reshape(tf.tanh(x), [4, 2, 3]), axis=1)


@pytest.mark.cases("False")
@pytest.mark.parametrize("inside", [False, True])
def test_a_rewrite_of_the_graph_that_is_wrong_is_named_with_what_avoids_it(devices: Devices, inside: bool) -> None:
    """Also where the program itself calls a ``tf.function``, which then is wrong in eager code too."""
    own = tf.function(lambda x: _largest(devices[:4], x))
    program = (lambda x: own(x)) if inside else (lambda x: _largest(devices[:4], x))
    found = verify(program, _reference, {"x": X}, devices=devices[:4])
    assert [each.mode for each in found.findings] == ["eager, graph" if inside else "graph"], found
    assert "graph optimization (arithmetic_optimization) changes the result" in found.reason, found
    gone, remains, untried = found.findings[0].follows[:3]
    assert gone.startswith("the difference goes away with: eager code, graph optimization off, arithmetic_")
    assert remains.startswith("the difference stays with: remapping off"), remains
    assert "TF_ENABLE_ONEDNN_OPTS=0" in untried
    assert "another number of shards (needs a program made by make_parallel" in untried
    options = {"arithmetic_optimization": True}
    assert tf.config.optimizer.get_experimental_options().items() >= options.items()


def test_the_number_of_shards_is_a_setting_where_the_program_can_be_made_for_fewer_devices(devices: Devices) -> None:
    def model(x: Any) -> Any:
        parts = [x] if len(x) == len(X) else tf.split(x, 2)
        return tf.concat([tf.reduce_max(tf.tanh(part), axis=1) for part in parts], axis=0)

    found = verify(harness.make_parallel(model, devices[:4]), model, {"x": X}, devices=devices[:4])
    gone, remains = found.findings[0].follows[:2]
    # XLA has no compiler for software GPUs.
    xla = "" if any(device.parsed.kind == "GPU" for device in devices) else "XLA (jit_compile=True), "
    assert gone.endswith(f"arithmetic_optimization off, {xla}1 shard"), found
    assert remains.endswith("2 shards"), found

    def towers(some: Devices) -> Callable[..., Any]:
        return lambda x: _largest(some, x)

    found = verify(towers(devices[:4]), _reference, {"x": X}, devices=devices[:4], shrink=towers)
    untried = found.findings[0].follows[2]
    assert "1 shard (the results' shapes depend on the number of shards), 2 shards (the" in untried, found


@pytest.mark.parametrize("inside", [False, True])
def test_a_program_that_differs_in_a_graph_by_itself_is_at_fault_itself(devices: Devices, inside: bool) -> None:
    own = tf.function(lambda x: _largest(devices[:4], x, 1.1))
    program = (lambda x: own(x)) if inside else (lambda x: _largest(devices[:4], x, 1.1))
    found = verify(program, _reference, {"x": X}, devices=devices[:4])
    assert not found.passed
    assert "changes the result" not in found.reason, found
    assert not any("the difference goes away" in line for each in found.findings for line in each.follows), found


def wrong_card() -> None:
    """Verify on three software GPUs, one of which computes wrongly; then a program at fault on three that do not."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from harness.devices.described.reading import read_description
    from harness.devices.described.state import gpus_of
    from harness.softgpu import switch

    text = 'schema_version = 1\n[cards]\ncount = 3\nmodel = "NVIDIA H100 80GB HBM3"\nsoftware_mib = 64\n'
    fault = '[[fault]]\nkind = "wrong-arithmetic"\ncard = 1\ndtype = "float32"\nrelative_error = 1e-3\n'
    with TemporaryDirectory() as folder:
        path = Path(folder) / "machine.toml"
        path.write_text(text, encoding="utf-8")
        devices = harness.configure(f"softgpu:{path}")
    weights = tf.Variable(X[:3])

    def model(x: Any, factor: float = 1.0) -> Any:
        return tf.tanh(tf.matmul(x, weights) * factor)

    def towers(x: Any, factor: float = 1.0) -> Any:
        parts = []
        for device, part in zip(devices, tf.split(x, 3), strict=True):
            with tf.device(device.name):
                parts.append(model(part, factor if device.name == devices[1].name else 1.0))
        return tf.concat(parts, axis=0)

    def on_the_second(x: Any) -> Any:
        with tf.device(devices[1].name):
            return model(x)

    switch(gpus_of(read_description("machine.toml", text + fault), "machine.toml"))
    found = verify(towers, model, {"x": X[:6]}, devices=devices)
    assert "gives different results on GPU:1 and GPU:0 from the same inputs" in found.reason, found
    gone, remains, untried = found.findings[0].follows[:3]
    assert gone.endswith("goes away with: GPU:0, GPU:2, CPU:0, float64"), gone
    assert remains.startswith("the difference stays with: GPU:1"), remains
    assert remains.endswith("half of the rows at a time, 1 shard, 2 shards"), remains
    assert "TF_DETERMINISTIC_OPS=1" in untried
    found = verify(on_the_second, model, {"x": X[:6]}, devices=devices)
    assert "another number of shards (the op runs on one device only)" in "".join(found.findings[0].follows), found
    switch(gpus_of(read_description("machine.toml", text), "machine.toml"))
    found = verify(lambda x: towers(x, 1.001), model, {"x": X[:6]}, devices=devices)
    assert "GPU:1" in found.reason, found
    assert not any("the difference goes away" in line for each in found.findings for line in each.follows), found
    assert verify(towers, model, {"x": X[:6]}, devices=devices).passed


@pytest.mark.skipif(not any(shutil.which(name) for name in NAMES), reason="needs a C++ compiler, to make software GPUs")
def test_a_device_that_computes_wrongly_is_told_from_a_program_that_does(fresh_process: Callable[..., object]) -> None:
    fresh_process(wrong_card, timeout_s=900)
