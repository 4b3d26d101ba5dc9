"""Flipped bits in the named elements of results: in these and no others, found by ``verify``."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from described_machines import H100, text

from harness.records import Verdict
from harness.softgpu import DescribedGpus
from harness.softgpu.compiler import NAMES

_WITHOUT = not any(shutil.which(name) for name in NAMES)


def described(*faults: str) -> DescribedGpus:
    from harness.devices.described.reading import read_description
    from harness.devices.described.state import gpus_of

    return gpus_of(read_description("two.toml", text(2, H100, *faults, cards="software_mib = 64")), "two.toml")


def flips_in_named_elements() -> None:
    """Compare what a card computes with and without the fault, bit by bit and by ``verify``."""
    import numpy as np
    import tensorflow as tf

    import harness
    from harness.softgpu import load, switch

    load(tf, described())
    devices = harness.configure("gpu:2")
    numbers = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    kinds = (tf.float32, tf.float64, tf.bfloat16, tf.int64, tf.complex64)

    def changed(device: int, kind: tf.DType, rows: int = 6) -> list[int]:
        """Return which elements of a product the fault changes, by their index in the flattened result."""

        def product() -> list[bytes]:
            with tf.device(f"GPU:{device}"):
                made = tf.add(tf.cast(numbers[:rows], kind), tf.cast(1, kind))
            return [each.tobytes() for each in made.numpy().ravel()]

        switch(described(fault))
        faulty = product()
        switch(described())
        return [at for at, (one, other) in enumerate(zip(faulty, product(), strict=True)) if one != other]

    for bits in (1, 4):
        fault = f'bit-flip card = 1, op = "AddV2", probability = 1.0, bits = {bits}, elements = [17, 0, 9, 500]'
        for kind in kinds:
            assert changed(1, kind) == [0, 9, 17], kind
            assert changed(0, kind) == []
        assert changed(1, tf.float32, rows=3) == [0, 9]
    fault = 'bit-flip card = 1, op = "AddV2", dtype = "float64", probability = 1.0, elements = [20]'
    assert [changed(1, kind) for kind in kinds] == [[], [20], [], [], []]
    assert changed(1, tf.float64, rows=3) == [], "it has no such element"
    fault = 'bit-flip card = 1, op = "AddV2", probability = 1.0, elements = [20], least_elements = 25'
    assert changed(1, tf.float32) == []

    weights = tf.constant(numbers[:4])

    def model(x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, weights)

    parallel = harness.make_parallel(model, devices)
    batch = {"x": tf.constant(numbers)}
    assert harness.verify(parallel, model, batch, devices=devices).verdict is Verdict.PASS
    switch(described('bit-flip card = 1, op = "MatMul", probability = 1.0, bits = 8, elements = [7]'))
    report = harness.verify(parallel, model, batch, devices=devices)
    assert report.verdict is Verdict.FAIL
    # Row 1 of the second shard, which has rows 3 to 5.
    assert "[4, 3]" in str(report), report
    switch(described())
    assert harness.verify(parallel, model, batch, devices=devices).verdict is Verdict.PASS


@pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")
def test_a_bit_flips_in_the_named_elements_of_a_result_and_no_others(fresh_process: Callable[..., object]) -> None:
    fresh_process(flips_in_named_elements, timeout_s=900)
