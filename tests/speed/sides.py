"""Programs to measure: a chain of products on each device, and the same one after the other on one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import harness

SIZE = 48


@dataclass
class Chains:
    """One square matrix a device, made on it, and its products."""

    devices: harness.Devices

    def __post_init__(self) -> None:
        import tensorflow as tf

        tf.random.set_seed(0)
        self.matrices = []
        for device in self.devices:
            with tf.device(device.name):
                self.matrices.append(tf.Variable(tf.random.normal([SIZE, SIZE]) * SIZE**-0.5))
        self.single = tf.function(self.one_after_the_other)
        self.parallel = tf.function(self.side_by_side)

    def chain(self, matrix: Any) -> Any:
        import tensorflow as tf

        product = matrix
        for _ in range(3):
            product = tf.matmul(product, matrix)
        return product

    def one_after_the_other(self) -> Any:
        import tensorflow as tf

        total = tf.zeros([SIZE, SIZE])
        with tf.device(self.devices[0].name):
            for matrix in self.matrices:
                with tf.control_dependencies([total]):
                    total = total + self.chain(tf.identity(matrix))
        return total

    def side_by_side(self) -> Any:
        import tensorflow as tf

        powers = []
        for device, matrix in zip(self.devices, self.matrices, strict=True):
            with tf.device(device.name):
                powers.append(self.chain(matrix.read_value()))
        with tf.device(self.devices[0].name):
            return tf.add_n(powers)


def measure(single: Callable[[], Any], parallel: Callable[[], Any], devices: harness.Devices) -> harness.SpeedupRecord:
    """As short a measurement as there can be: what it says of speed does not matter."""
    return harness.measure_speedup(single, parallel, devices=devices, budget_s=0.02, half_width=0.9)
