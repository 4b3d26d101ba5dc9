"""A^n + B^n: one chain of products a device, bound by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import SEVERAL, by_kind, compiled, held_on

import harness

#: Size and power of the original multi-GPU examples; and for cores a size of which a product takes milliseconds, to a
#: power at which bringing the results together is next to nothing.
_GPU_SIZE, _CORE_SIZE = 10_000, 384
_GPU_POWER, _CORE_POWER = 10, 50


@pytest.mark.devices(min=SEVERAL)
def test_powers_of_one_matrix_a_device(speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices) -> None:
    import tensorflow as tf

    size = by_kind(devices, gpu=_GPU_SIZE, other=_CORE_SIZE)
    n = by_kind(devices, gpu=_GPU_POWER, other=_CORE_POWER)
    random = np.random.default_rng(0)
    # Of norm about 2, so that powers neither vanish nor overflow.
    matrices = [random.standard_normal((size, size), np.float32) * np.float32(size**-0.5) for _ in devices]
    own = [held_on(device, matrix) for device, matrix in zip(devices, matrices, strict=True)]
    all_on_one = [held_on(devices[0], matrix) for matrix in matrices]

    def power(matrix: Any) -> Any:
        product = matrix.read_value()
        for _ in range(n - 1):
            product = tf.matmul(product, matrix)
        return product

    def one_after_the_other() -> Any:
        with tf.device(devices[0].name):
            total = power(all_on_one[0])
            for matrix in all_on_one[1:]:
                with tf.control_dependencies([total]):
                    total = total + power(matrix)
        return total

    def at_once() -> Any:
        powers = []
        for device, matrix in zip(devices, own, strict=True):
            with tf.device(device.name):
                powers.append(power(matrix))
        with tf.device(devices[0].name):
            total = powers[0]
            for other in powers[1:]:
                total = total + other
        return total

    flops = len(devices) * (n - 1) * 2.0 * size**3 + (len(devices) - 1) * size**2
    record = speedup(compiled(one_after_the_other), compiled(at_once), devices=devices, work=harness.Work(flops=flops))
    assert record.devices == devices.names
