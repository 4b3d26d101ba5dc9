"""Random trainings, to compare under a strategy with the single-device run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from harness.distribute.training import POLICIES, Training, dense_training, random_data
from harness.errors import UsageError
from harness.lazy import tf
from harness.strategies.steps.step import Compact

#: Keras optimizers by name, the simplest first.
OPTIMIZERS = ("SGD", "SGD with momentum", "RMSprop", "Adagrad", "Adam", "AdamW")
_FEATURES, _OUTPUTS = 5, 3


@dataclass(frozen=True, repr=False)
class TrainingSetup(Compact):
    """A training of a small dense model on random data.

    Attributes:
        optimizer: one of :data:`OPTIMIZERS`.
        learning_rate: of the optimizer.
        rows: of all the data.
        batch_size: rows of a whole batch, over all replicas; the last batch has the rows that are left.
        steps: how many steps to take.
        policy: one of :data:`~harness.distribute.training.POLICIES`.
        units: of the hidden layer.
        seed: of the data.
    """

    optimizer: str
    learning_rate: float
    rows: int
    batch_size: int
    steps: int
    policy: str
    units: int
    seed: int = 0

    def data(self) -> tuple[Any, Any]:
        """Make the arrays ``x [rows, 5]`` and ``y [rows, 3]``, float32 or float64."""
        return random_data(self.policy, self.rows, _FEATURES, _OUTPUTS, self.seed)

    def build(self) -> Training:
        """Build the training, as ``harness.distribute.equivalent`` needs it."""
        kind, _, momentum = self.optimizer.partition(" with ")
        options = {"momentum": 0.9} if momentum else {}
        optimizer = getattr(tf.keras.optimizers, kind)(self.learning_rate, **options)
        if self.policy == "mixed_float16":
            optimizer = tf.keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**10)
        return dense_training(self.policy, _FEATURES, self.units, _OUTPUTS, optimizer)


def training_setups(
    *,
    replicas: int = 2,
    optimizers: Sequence[str] = OPTIMIZERS,
    policies: Sequence[str] = POLICIES,
    max_steps: int = 5,
    even: bool = True,
) -> SearchStrategy[TrainingSetup]:
    """Generate trainings: optimizer, learning rate, batch size, steps, dtype and mixed precision.

    Raise UsageError if an argument is not accepted.

    Args:
        replicas: how many replicas divide a batch.
        optimizers: names from :data:`OPTIMIZERS` to draw from.
        policies: names from :data:`~harness.distribute.training.POLICIES` to draw from.
        max_steps: the most steps.
        even: whether the last batch can be divided among the replicas too, as Keras's ``fit`` needs it.
    """
    wrong = [*(set(optimizers) - set(OPTIMIZERS)), *(set(policies) - set(POLICIES))]
    if wrong or not optimizers or not policies:
        raise UsageError(
            f"optimizers={tuple(optimizers)!r}, policies={tuple(policies)!r}; accepted: one or more optimizers of "
            f"{', '.join(OPTIMIZERS)}; one or more policies of {', '.join(POLICIES)}"
        )
    if replicas < 1 or max_steps < 1:
        raise UsageError(f"replicas={replicas}, max_steps={max_steps}; accepted: 1 or more")

    @st.composite
    def drawn(draw: DrawFn) -> TrainingSetup:
        batch = draw(st.integers(1, 4)) * replicas
        # The last batch is smaller than the others where possible.
        unit = replicas if even else 1
        left = draw(st.integers(0, (batch - 1) // unit)) * unit
        whole = draw(st.integers(1, 3)) * batch
        return TrainingSetup(
            optimizer=draw(st.sampled_from(tuple(optimizers))),
            learning_rate=draw(st.sampled_from([0.01, 0.05, 0.001, 0.1])),
            rows=whole + left,
            batch_size=batch,
            steps=draw(st.integers(1, max_steps)),
            policy=draw(st.sampled_from(tuple(policies))),
            units=draw(st.integers(2, 8)),
            seed=draw(st.integers(0, 2**16 - 1)),
        )

    return drawn()
