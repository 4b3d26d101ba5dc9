"""Soft placement on GPUs: what TensorFlow has on the host alone is no fault there, work that it could move is one."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from softgpu_programs import start

from harness.softgpu.compiler import NAMES

_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")


def moved_by_soft_placement() -> None:
    tf = start("softgpu:2")
    import harness

    devices = harness.configure("softgpu:2")
    tf.config.set_soft_device_placement(True)
    weights = tf.Variable(tf.random.stateless_normal((8, 3), (1, 1)))
    texts = {"x": tf.constant(["a b", "c", "b a c", "d", "a"])}
    images = {"x": tf.random.stateless_normal((5, 4, 4, 2), (1, 2))}

    def words(x: Any) -> Any:
        tf.print("words", tf.size(x), output_stream="file:///dev/null")
        found = tf.strings.to_hash_bucket_fast(tf.strings.split(x), 8)
        return tf.matmul(tf.reduce_sum(tf.one_hot(found.to_tensor(-1), 8), 1), weights)

    def enlarged(x: Any) -> Any:
        return tf.image.resize(x, (8, 8), "bicubic")

    def verified(model: Any, inputs: Any, **options: Any) -> Any:
        def towers(x: Any) -> Any:
            results = []
            for device, part in zip(devices, tf.split(x, [3, 2]), strict=True):
                with tf.device(device.name):
                    results.append(model(part))
            return tf.concat(results, 0)

        return harness.verify(harness.colocate_gradients(towers), model, inputs, devices=devices, **options)

    clean = verified(words, texts, variables=[weights])
    assert clean.findings == (), clean
    assert clean.verdict is harness.Verdict.PASS, clean
    for options in ({"gradients": False}, {"gradients": True}):
        found = verified(enlarged, images, **options)
        assert [(finding.kind, finding.mode) for finding in found.findings] == [("op-placement", "eager, graph")], found
        assert "no GPU kernel for the op and its types, so soft placement moved it" in found.findings[0].message

    def on_an_absent_gpu(x: Any) -> Any:
        with tf.device("/GPU:5"):
            return tf.matmul(x, tf.ones([4, 4]))

    rows = {"x": tf.random.stateless_normal((6, 4), (1, 3))}
    found = harness.verify(on_an_absent_gpu, lambda x: tf.matmul(x, tf.ones([4, 4])), rows, devices=devices)
    messages = [finding.message for finding in found.findings if finding.kind == "op-placement"]
    # There is a kernel: it is the device that is not there.
    assert messages, found
    assert all("soft placement moves ops" in message for message in messages), found

    # What is in no scope runs where TensorFlow has a kernel for it, also in the single-device run.
    tf.config.set_soft_device_placement(False)

    def one(ids: Any) -> Any:
        first, second = tf.split(ids, 2)
        return tf.matmul(tf.one_hot(tf.concat([first, second], 0), 8), weights.read_value())

    def two(ids: Any) -> Any:
        results = []
        for device, part in zip(devices, tf.split(ids, 2), strict=True):
            with tf.device(device.name):
                results.append(tf.matmul(tf.one_hot(part, 8), weights.read_value()))
        return tf.concat(results, 0)

    for reference in (one, None):
        found = harness.verify(two, reference, inputs={"ids": tf.range(6)}, devices=devices)
        assert found.passed, found
    assert not tf.config.get_soft_device_placement()


def test_texts_may_be_in_the_scope_of_a_gpu_and_numbers_that_it_has_no_kernel_for_may_not(fresh_process: Any) -> None:
    fresh_process(moved_by_soft_placement, timeout_s=900)
