"""``training_setups``: random trainings, whose batches can be divided as they are asked to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from harness.distribute.training import POLICIES
from harness.errors import UsageError
from harness.strategies import TrainingSetup, sample, training_setups
from harness.strategies.training import OPTIMIZERS


@given(st.data(), st.integers(1, 4), st.booleans())
def test_batches_are_divided_as_asked(data: st.DataObject, replicas: int, even: bool) -> None:
    setup: TrainingSetup = data.draw(training_setups(replicas=replicas, even=even, max_steps=3))
    left = setup.rows % setup.batch_size
    assert setup.batch_size % replicas == 0
    assert setup.rows >= setup.batch_size
    assert not even or left % replicas == 0
    assert 1 <= setup.steps <= 3
    x, y = setup.data()
    assert x.shape == (setup.rows, 5)
    assert y.shape == (setup.rows, 3)
    assert x.dtype == (np.float64 if setup.policy == "float64" else np.float32)


def test_all_optimizers_and_dtypes_are_drawn_and_most_last_batches_are_uneven() -> None:
    drawn = sample(training_setups(replicas=2), 150, seed=1)
    assert {setup.optimizer for setup in drawn} == set(OPTIMIZERS)
    assert {setup.policy for setup in drawn} == set(POLICIES)
    assert sum(setup.rows % setup.batch_size > 0 for setup in drawn) > 30
    assert any(setup.rows % setup.batch_size % 2 for setup in sample(training_setups(even=False), 150, seed=1))


@pytest.mark.parametrize(
    "change", [{"replicas": 0}, {"max_steps": 0}, {"optimizers": ["Lion"]}, {"policies": ["int8"]}, {"policies": []}]
)
def test_what_is_not_accepted_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="accepted: "):
        training_setups(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_training_can_be_built(optimizer: str, policy: str) -> None:
    made = TrainingSetup(optimizer, 0.01, 4, 2, 1, policy, 3).build()
    assert made.model.compute_output_shape((None, 5)) == (None, 3)
    assert made.model.layers[-1].compute_dtype == ("float64" if policy == "float64" else "float32")
    assert not made.optimizer.built
