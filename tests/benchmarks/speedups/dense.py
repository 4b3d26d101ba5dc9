"""A network of dense layers and its training step, on one device or split over several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from programs import by_kind, compiled, held_on

import harness

_LAYERS = 6
_LEARNING_RATE = 1e-3
_GPU_UNITS, _CORE_UNITS = 8192, 512
_GPU_ROWS, _CORE_ROWS = 8_192, 512


@dataclass
class Dense:
    """Layers ``tanh(x @ w)`` whose weights are on the first device. Two of them start from the same weights.

    ``rows`` of the batch ``x`` of float32 ``[rows, units]`` are all devices' together.
    """

    devices: harness.Devices
    weights: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng(0)
        self.units = by_kind(self.devices, gpu=_GPU_UNITS, other=_CORE_UNITS)
        self.rows = len(self.devices) * by_kind(self.devices, gpu=_GPU_ROWS, other=_CORE_ROWS)
        scale = np.float32(self.units**-0.5)
        self.weights = [
            held_on(self.devices[0], random.standard_normal((self.units, self.units), np.float32) * scale)
            for _ in range(_LAYERS)
        ]
        self.x = held_on(self.devices[0], random.standard_normal((self.rows, self.units), np.float32))

    @property
    def forward_flops(self) -> float:
        """Of one forward pass over the whole batch; a training step takes three times as many."""
        return 2.0 * _LAYERS * self.rows * self.units**2

    def forward(self, x: Any) -> Any:
        """float32 ``[rows, units]`` to the same."""
        import tensorflow as tf

        for weights in self.weights:
            x = tf.tanh(tf.matmul(x, weights))
        return x

    def loss_per_row(self, x: Any) -> Any:
        """float32 ``[rows, units]`` to ``[rows]``."""
        import tensorflow as tf

        return tf.reduce_mean(tf.square(self.forward(x)), axis=1)

    def forward_on(self, fn: Callable[[Any], Any]) -> Callable[[], Any]:
        """A call of ``fn`` on the batch, on the first device unless ``fn`` says otherwise."""
        import tensorflow as tf

        def run() -> Any:
            with tf.device(self.devices[0].name):
                return fn(self.x.read_value())

        return compiled(run)

    def step_of(self, loss_per_row: Callable[[Any], Any]) -> Callable[[], Any]:
        """A training step: the gradients of the mean loss are taken by a tape around it, and applied."""
        import tensorflow as tf

        def step() -> Any:
            with tf.device(self.devices[0].name):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(loss_per_row(self.x.read_value()))
                for weights, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
                    weights.assign_sub(_LEARNING_RATE * gradient)
                return loss

        return compiled(step)

    def split_by_hand(self, x: Any) -> Any:
        """The usual towers: each shard's forward ops in its device's scope; a tape around it all is in none."""
        import tensorflow as tf

        losses = []
        for device, shard in zip(self.devices, tf.split(x, len(self.devices)), strict=True):
            with tf.device(device.name):
                losses.append(self.loss_per_row(shard))
        return tf.concat(losses, axis=0)
