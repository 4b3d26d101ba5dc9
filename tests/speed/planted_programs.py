"""Programs with a usual cause of no gain, each beside the same program without it. All on logical CPUs.

The products are large enough for a device to be busy with, and what a cause costs is far beyond what noise can do:
waits are slept, not computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import harness

SIZE = 320
SLEEP_S = 0.03
#: Far longer than a call computes: tf.data makes the next batch meanwhile, even where nobody asked for a prefetch.
SLOW_INPUT_S = 0.3
Program = Callable[[], Any]


@dataclass
class Towers:
    """A matrix and a variable on each device, and programs that work on them."""

    devices: harness.Devices

    def __post_init__(self) -> None:
        import tensorflow as tf

        self.variables = []
        for device in self.devices:
            with tf.device(device.name):
                self.variables.append(tf.Variable(tf.random.normal([SIZE, SIZE]) * SIZE**-0.5))

    def tower(self, variable: Any) -> Any:
        import tensorflow as tf

        product = variable.read_value()
        for _ in range(4):
            product = tf.tanh(tf.matmul(product, variable))
        return product

    def outputs(self) -> list[Any]:
        import tensorflow as tf

        found = []
        for device, variable in zip(self.devices, self.variables, strict=True):
            with tf.device(device.name):
                found.append(self.tower(variable))
        return found

    def side_by_side(self) -> Program:
        """Clean: all towers in one function."""
        import tensorflow as tf

        return tf.function(self.outputs)  # type: ignore[no-any-return]

    def uneven(self) -> Program:
        """The first tower gets four times as much."""
        import tensorflow as tf

        def program() -> list[Any]:
            found = []
            for times, device, variable in zip((4, 1), self.devices, self.variables, strict=True):
                with tf.device(device.name):
                    product = tf.tile(variable.read_value(), [times, 1])
                    for _ in range(4):
                        product = tf.tanh(tf.matmul(product, variable))
                    found.append(product)
            return found

        return tf.function(program)  # type: ignore[no-any-return]

    def eager(self) -> Program:
        """One Python thread starts op after op."""
        return self.outputs

    def read_between(self) -> Program:
        """A value is read after each tower (FAULTS S04)."""

        def program() -> list[Any]:
            import tensorflow as tf

            found = []
            for device, variable in zip(self.devices, self.variables, strict=True):
                with tf.device(device.name):
                    output = self.tower(variable)
                found.append(float(output[0, 0]))
            return found

        return program

    def one_after_the_other(self) -> Program:
        """Control dependencies between the towers of one function."""
        import tensorflow as tf

        def program() -> list[Any]:
            found: list[Any] = []
            for device, variable in zip(self.devices, self.variables, strict=True):
                with tf.control_dependencies(found), tf.device(device.name):
                    found.append(self.tower(variable))
            return found

        return tf.function(program)  # type: ignore[no-any-return]

    def in_turns(self, *, graph: bool = True) -> Program:
        """Products of which each needs the one before, on the other device."""
        import tensorflow as tf

        def program() -> Any:
            product = self.variables[0].read_value()
            for _ in range(4):
                for device, variable in zip(self.devices, self.variables, strict=True):
                    with tf.device(device.name):
                        product = tf.tanh(tf.matmul(product, variable))
            return product

        return tf.function(program) if graph else program

    def backward(self, *, beside: bool) -> Program:
        """Each tower's gradient: ``beside`` its forward ops, or all where the tape is played back (FAULTS P01)."""
        import tensorflow as tf

        def one_device() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(output) for output in self.outputs()])
            return tape.gradient(loss, self.variables)

        def each_its_own() -> list[Any]:
            gradients = []
            for device, variable in zip(self.devices, self.variables, strict=True):
                with tf.device(device.name):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_sum(self.tower(variable))
                    gradients.append(tape.gradient(loss, variable))
            return gradients

        return tf.function(each_its_own if beside else one_device)  # type: ignore[no-any-return]

    def traced_anew(self) -> Program:
        """A Python number that is another one in each call (FAULTS S02)."""
        import tensorflow as tf

        def scaled(factor: float) -> list[Any]:
            time.sleep(SLEEP_S)  # what tracing a large model takes
            return [output * factor for output in self.outputs()]

        function, calls = tf.function(scaled), iter(range(10_000))
        return lambda: function(float(next(calls)))

    def slow_input(self, *, slow: bool) -> Program:
        """A batch that takes longer to make than to use."""
        import tensorflow as tf

        def batches() -> Any:
            while True:
                if slow:
                    time.sleep(SLOW_INPUT_S)
                yield 1.0

        data = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([], tf.float32))
        if not slow:
            data = data.take(1).cache().repeat()
        iterator = iter(data)
        step = tf.function(lambda factor: [output * factor for output in self.outputs()])
        return lambda: step(next(iterator))

    def little_work(self) -> Program:
        """Python does something else most of the time (FAULTS S01)."""
        import tensorflow as tf

        small = tf.function(lambda: [tf.identity(variable[0, 0]) for variable in self.variables])

        def program() -> Any:
            time.sleep(SLEEP_S)
            return small()

        return program
