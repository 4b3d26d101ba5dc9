"""Trains on several devices, and compares the run with the same one on one device, step by step.

Two runs of the same training in the same dtype differ by their order of summation, and training carries the
difference on. How far is measured: the single-device run is repeated in float64, and its distance from the float32 run
is the effect of rounding on this training. A sharded run has to stay within a small multiple of that distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.checking.tally import Tally
from harness.devices.device import Devices
from harness.distribute.compare import ROUNDING_FACTOR, Apart
from harness.lazy import tf
from harness.records import Exercised

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What a training run went through: arrays whose first axis is the step, all as float64 whatever they ran in."""

    losses: Array
    gradients: Array
    weights: Array

    @classmethod
    def of(cls, losses: Sequence[object], gradients: Sequence[object], weights: Sequence[object]) -> Trajectory:
        """Stack what each step gave: a scalar, and two vectors."""
        return cls(*(np.asarray(part, np.float64).reshape(len(part), -1) for part in (losses, gradients, weights)))


def train(
    loss: Any,
    variables: Sequence[Any],
    optimizer: Any,
    batches: Iterable[Mapping[str, npt.NDArray[Any]]],
    devices: Devices | None,
) -> Trajectory:
    """Take a step for each batch, sharded over ``devices`` or (``None``) on the default device.

    ``loss`` gives the loss of each row of a batch, whose arrays are its keyword arguments.
    """
    from harness.parallel.data import make_parallel

    loss_of_rows = loss if devices is None else make_parallel(loss, devices)
    optimizer.build(variables)

    @tf.function  # type: ignore[untyped-decorator]
    def step(**batch: Any) -> Any:
        with tf.GradientTape() as tape:
            mean = tf.reduce_mean(loss_of_rows(**batch))
        gradients = tape.gradient(mean, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return mean, tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)

    losses, gradients, weights = [], [], []
    for batch in batches:
        mean, gradient = step(**{name: tf.constant(array) for name, array in batch.items()})
        losses.append(mean.numpy())
        gradients.append(gradient.numpy())
        weights.append(np.concatenate([variable.numpy().ravel() for variable in variables]))
    return Trajectory.of(losses, gradients, weights)


def compare(sharded: Trajectory, single: Trajectory, exact: Trajectory, tally: Tally) -> None:
    """Add to ``tally`` a finding for each quantity that leaves its bound, with the first step at which it does.

    ``single`` and ``sharded`` ran in float32, ``exact`` is ``single`` in float64.
    """
    for kind, name in (("value", "losses"), ("gradient", "gradients"), ("value", "weights")):
        _compare(kind, name, getattr(sharded, name), getattr(single, name), getattr(exact, name), tally)
    values = sharded.losses.size + sharded.weights.size
    tally.exercised += Exercised(values=values, gradients=sharded.gradients.size)


def _compare(kind: str, name: str, sharded: Array, single: Array, exact: Array, tally: Tally) -> None:
    if sharded.shape != single.shape:
        message = f"the {name} have a different shape when sharded"
        tally.fail("shape", name, str(single.shape), str(sharded.shape), message)
        return
    if not np.isfinite(single).all() or not np.isfinite(exact).all():
        tally.unproven(f"the {name} of the single-device run are not finite, so nothing can be compared")
        return
    apart = Apart.of(sharded, single, [exact], float(np.finfo(np.float32).eps))
    tally.measured[f"largest_share_of_bound_{name}"] = float(apart.shares.max(initial=0.0))
    if (step := apart.first_outside) is not None:
        error, bound = apart.errors[step], apart.bounds[step]
        tally.fail(
            kind,
            f"{name}, step {step}",
            f"within {bound:.3g} of the single-device run ({ROUNDING_FACTOR:g} x the effect of rounding)",
            f"{error:.3g} away",
            f"diverged from the single-device run at step {step}: {name} differ by {error:.3g}, tolerance {bound:.3g}",
        )
