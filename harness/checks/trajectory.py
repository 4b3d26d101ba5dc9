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
    arrays = list(batches)
    stacked = {name: np.stack([batch[name] for batch in arrays]) for name in arrays[0]}
    dtypes = [variables[0].dtype] * 3

    def flat(tensors: Iterable[Any]) -> Any:
        return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)

    @tf.function  # type: ignore[untyped-decorator]
    def course(**batches: Any) -> Any:
        # All steps in one graph: to call a graph for each takes several times as long as the steps of a small model.
        def step(number: Any, *kept: Any) -> Any:
            with tf.GradientTape() as tape:
                mean = tf.reduce_mean(loss_of_rows(**{name: each[number] for name, each in batches.items()}))
            gradients = tape.gradient(mean, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            found = (mean, flat(gradients), flat(variables))
            return (number + 1, *(array.write(number, each) for array, each in zip(kept, found, strict=True)))

        kept = [tf.TensorArray(dtype, len(arrays)) for dtype in dtypes]
        _, *kept = tf.while_loop(lambda number, *_: number < len(arrays), step, (0, *kept), parallel_iterations=1)
        return [array.stack() for array in kept]

    return Trajectory.of(*(part.numpy() for part in course(**stacked)))


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
