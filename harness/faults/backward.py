"""Wrong device: backward ops that run where the gradient is taken, not where their forward ops ran (P01, P02)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault, Program
from harness.faults.samples import on_each, uneven
from harness.faults.slips import Towers, slip, trained
from harness.lazy import tf
from harness.parallel.data import make_parallel


def _towers(twin: Program) -> Callable[[Devices], Case]:
    """Plain towers: the caller who takes the gradient does not see them."""
    return slip(
        Towers.model,
        Towers.joined_model,
        twin,
        "gradient-placement",
        rows=uneven,
        variables=trained,
        gradients=True,
    )


def _colocated_by_hand(t: Towers, x: Any) -> Any:
    """Do without ``make_parallel``: each tower has a custom gradient, which opens the tower's scope."""

    def tower(name: str, part: Any) -> Any:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def run(x: Any) -> Any:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = t.model(x)

            def gradient(upstream: Any, variables: Any = ()) -> Any:
                with tf.device(name):
                    found = tape.gradient(y, [x, *variables], output_gradients=upstream)
                return found[0], found[1:]

            return y, gradient

        return run(part)

    return tf.concat(on_each(t.names, tower, t.names, t.split(x)), axis=0)


def _share(t: Towers, rows: int, x: Any) -> Any:
    """The part of rows ``x`` in the mean loss over ``rows`` rows."""
    return tf.reduce_sum(t.losses(x)) / rows


def _step(t: Towers, x: Any) -> Any:
    return t.step(x, partial(_share, t, x.shape[0]))


def _one_tape(t: Towers, x: Any, *, late: bool = False) -> Any:
    """One tape around all towers, its gradient taken in the default scope, or in that of the last tower."""
    with tf.GradientTape() as tape:
        total = tf.add_n(t.each(partial(_share, t, x.shape[0]), x))
    with tf.device(t.names[-1] if late else None):
        return total, tape.gradient(total, [t.w, t.b])


def _tape_per_tower(t: Towers, x: Any) -> Any:
    return t.sum(lambda part: t.step(part, partial(_share, t, x.shape[0])), x)


def _steps(faulty: Program = _one_tape) -> Callable[[Devices], Case]:
    return slip(_step, faulty, _tape_per_tower, "gradient-placement", rows=uneven)


def _traced_before(devices: Devices) -> Case:
    """Compiled training steps that have run before: no graph is built again, so only the placed graph shows it."""
    case = _steps()(devices)
    compiled, twin = tf.function(case.parallel), tf.function(case.twin)
    for program in (compiled, twin):
        program(x=tf.constant(case.inputs["x"]))
    return replace(case, parallel=compiled, twin=twin)


_AWAY = "backward ops are not on the devices of their forward ops"

FAULTS = (
    Fault(
        "P01-tape-around-towers",
        "backward ops on device 0",
        "tensorflow 54460",
        _towers(lambda t, x: make_parallel(t.model, t.devices)(x=x)),
        _AWAY,
    ),
    Fault(
        "P01-by-hand",
        "backward ops on device 0, in towers without make_parallel",
        "tensorflow 33688",
        _towers(_colocated_by_hand),
        _AWAY,
    ),
    Fault("P01-one-tape", "one tape around all towers, in a training step", "tensorflow 54460", _steps(), _AWAY),
    Fault(
        "P01-last-scope",
        "gradient taken in the last tower's scope",
        "tensorflow 54460",
        _steps(partial(_one_tape, late=True)),
        _AWAY,
    ),
    Fault(
        "P02-traced-before",
        "backward ops on device 0, in a tf.function that ran before",
        "tensorflow 54460",
        _traced_before,
        _AWAY,
    ),
)
