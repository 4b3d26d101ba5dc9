"""Wrong device: backward ops that run where the gradient is taken, not where their forward ops ran (P01, P02)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program, kinds, planted
from harness.faults.samples import add_up, dense, in_shards, losses, on_each, per_shard, sample, shares, uneven
from harness.lazy import tf
from harness.parallel.data import make_parallel

FAULTS: list[Fault[Case]] = []


@planted(
    FAULTS,
    "P01-tape-around-towers",
    "backward ops on device 0",
    "tensorflow 54460",
    "backward ops are not on the devices of their forward ops",
)
def _tape_around_towers(devices: Devices) -> Case:
    """Plain towers: the caller who takes the gradient does not see them."""
    model, variables = dense()
    return _gradients_of(devices, make_parallel(model, devices), model, variables)


def _gradients_of(devices: Devices, twin: Program, model: Program, variables: list[Any]) -> Case:
    """Plain towers, and a twin that takes each tower's gradient on its device."""
    return Case(
        in_shards(devices.names, model),
        twin,
        model,
        {"x": sample(uneven(len(devices)), 3)},
        kinds("gradient-placement"),
        variables=variables,
        gradients=True,
    )


@planted(
    FAULTS,
    "P01-by-hand",
    "backward ops on device 0, in towers without make_parallel",
    "tensorflow 33688",
    "backward ops are not on the devices of their forward ops",
)
def _colocated_by_hand(devices: Devices) -> Case:
    """The twin does without ``make_parallel``: each tower has a custom gradient, which opens the tower's scope."""
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

    def twin(x: Any) -> Any:
        parts = tf.split(x, shares(x.shape[0], len(devices)))
        outputs = on_each(devices.names, lambda name, part: tower(name)(part), devices.names, parts)
        return tf.concat(outputs, axis=0)

    return _gradients_of(devices, twin, model, variables)


def _steps(devices: Devices, scope: str | None) -> tuple[Program, Program, Program]:
    """Training steps: one tape around all towers, its gradient taken in ``scope``; a tape per tower; one device."""
    rows = uneven(len(devices))
    sizes = shares(rows, len(devices))
    per_row, variables = losses()

    def loss(x: Any) -> Any:
        return tf.reduce_sum(per_row(x)) / rows

    def reference(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(x)
        return value, tape.gradient(value, variables)

    def parallel(x: Any) -> Any:
        with tf.GradientTape() as tape:
            total = tf.add_n(per_shard(devices, x, sizes, loss))
        with tf.device(scope):
            return total, tape.gradient(total, variables)

    def twin(x: Any) -> Any:
        values, gradients = zip(*per_shard(devices, x, sizes, reference), strict=True)
        return tf.add_n(list(values)), add_up(gradients)

    return parallel, twin, reference


@planted(
    FAULTS,
    "P01-one-tape",
    "a training step with one tape",
    "tensorflow 54460",
    "backward ops are not on the devices of their forward ops",
)
def _one_tape(devices: Devices) -> Case:
    rows = uneven(len(devices))
    parallel, twin, reference = _steps(devices, None)
    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("gradient-placement"))


@planted(
    FAULTS,
    "P01-last-scope",
    "gradient taken in the last scope",
    "tensorflow 54460",
    "backward ops are not on the devices of their forward ops",
)
def _gradient_in_last_scope(devices: Devices) -> Case:
    rows = uneven(len(devices))
    parallel, twin, reference = _steps(devices, devices[-1].name)
    return Case(parallel, twin, reference, {"x": sample(rows, 3)}, kinds("gradient-placement"))


@planted(
    FAULTS,
    "P02-traced-before",
    "backward ops on device 0, in a tf.function that ran before",
    "tensorflow 54460",
    "backward ops are not on the devices of their forward ops",
)
def _traced_before(devices: Devices) -> Case:
    """Compiled training steps that have run before: no graph is built again, so only the placed graph shows it."""
    rows = uneven(len(devices))
    parallel, twin, reference = _steps(devices, None)
    x = tf.constant(sample(rows, 3))
    compiled, compiled_twin = tf.function(parallel), tf.function(twin)
    compiled(x)
    compiled_twin(x)
    return Case(compiled, compiled_twin, reference, {"x": sample(rows, 3)}, kinds("gradient-placement"))
