"""Wrong place: backward ops that run where the gradient is asked for, not where their forward ops ran (P01, P02)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program, kinds
from harness.faults.samples import dense, losses, sample, shares, uneven
from harness.parallel.data import make_parallel


def _towers(devices: Devices, fn: Callable[[Any], Any], x: Any) -> list[Any]:
    """``fn`` of each shard, each on its device."""
    import tensorflow as tf

    results = []
    for device, part in zip(devices, tf.split(x, shares(x.shape[0], len(devices))), strict=True):
        with tf.device(device.name):
            results.append(fn(part))
    return results


def _tape_around_towers(devices: Devices) -> Case:
    """Plain towers; who takes the gradient does not see them."""
    import tensorflow as tf

    rows = uneven(len(devices))
    model, variables = dense()

    def parallel(x: Any) -> Any:
        return tf.concat(_towers(devices, model, x), axis=0)

    twin = make_parallel(model, devices)
    return Case(
        parallel,
        twin,
        model,
        {"x": sample(rows, 3)},
        kinds("gradient-placement"),
        variables=variables,
        gradients=True,
    )


def _colocated_by_hand(devices: Devices) -> Case:
    """Done right without ``make_parallel``: each tower has a gradient of its own, which opens the tower's scope."""
    import tensorflow as tf

    rows = uneven(len(devices))
    model, variables = dense()

    def tower(name: str) -> Callable[[Any], Any]:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def run(x: Any) -> Any:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = model(x)

            def gradient(upstream: Any, variables: Any = ()) -> Any:
                with tf.device(name):
                    found = tape.gradient(y, [x, *variables], output_gradients=upstream)
                return found[0], found[1:]

            return y, gradient

        colocated: Callable[[Any], Any] = run
        return colocated

    def parallel(x: Any) -> Any:
        return tf.concat(_towers(devices, model, x), axis=0)

    def twin(x: Any) -> Any:
        outputs = []
        for device, part in zip(devices, tf.split(x, shares(rows, len(devices))), strict=True):
            with tf.device(device.name):
                outputs.append(tower(device.name)(part))
        return tf.concat(outputs, axis=0)

    return Case(
        parallel,
        twin,
        model,
        {"x": sample(rows, 3)},
        kinds("gradient-placement"),
        variables=variables,
        gradients=True,
    )


def _steps(devices: Devices, scope: str | None) -> tuple[Program, Program, Program]:
    """Training steps: one tape around all towers, its gradient taken in ``scope``; a tape per tower; one device."""
    import tensorflow as tf

    rows = uneven(len(devices))
    per_row, variables = losses()

    def loss(x: Any) -> Any:
        return tf.reduce_sum(per_row(x)) / rows

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(x)
        return value, tape.gradient(value, variables)

    def parallel(x: Any) -> Any:
        with tf.GradientTape() as tape:
            total = tf.add_n(_towers(devices, loss, x))
        with tf.device(scope):
            return total, tape.gradient(total, variables)

    def twin(x: Any) -> Any:
        values, gradients = zip(*_towers(devices, reference, x), strict=True)
        return tf.add_n(list(values)), [tf.add_n(list(parts)) for parts in zip(*gradients, strict=True)]

    return parallel, twin, reference


def _one_tape(devices: Devices) -> Case:
    rows = uneven(len(devices))
    parallel, twin, reference = _steps(devices, None)
    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("gradient-placement"))


def _gradient_in_last_scope(devices: Devices) -> Case:
    rows = uneven(len(devices))
    parallel, twin, reference = _steps(devices, devices[-1].name)
    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("gradient-placement"))


def _traced_before(devices: Devices) -> Case:
    """Compiled training steps that have run before: nothing is built again, the placed graph alone can tell."""
    import tensorflow as tf

    rows = uneven(len(devices))
    parallel, twin, reference = _steps(devices, None)
    x = tf.constant(sample(rows, 3))
    compiled, compiled_twin = tf.function(parallel), tf.function(twin)
    compiled(x)
    compiled_twin(x)
    return Case(compiled, compiled_twin, reference, {"x": sample(rows, 3)}, kinds("gradient-placement"))


FAULTS = (
    Fault("P01-tape-around-towers", "P01", "backward ops on device 0", "tensorflow 54460", _tape_around_towers),
    Fault("P01-by-hand", "P01", "the same, done right without make_parallel", "tensorflow 33688", _colocated_by_hand),
    Fault("P01-one-tape", "P01", "a training step with one tape", "tensorflow 54460", _one_tape),
    Fault("P01-last-scope", "P01", "gradient taken in the last scope", "tensorflow 54460", _gradient_in_last_scope),
    Fault("P02-traced-before", "P02", "inside a tf.function that ran before", "tensorflow 54460", _traced_before),
)
