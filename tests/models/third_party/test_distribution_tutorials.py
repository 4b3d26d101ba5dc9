"""TensorFlow's tutorials on distribution: each training equals that on one device, and its common fault is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tutorial_trainings as tutorials

from harness import Verdict
from harness.distribute import equivalent

pytestmark = [pytest.mark.usefixtures("forked_workers"), pytest.mark.xdist_group("tutorials")]


def _train(strategy: str, build: Any, folder: Path, spec_of: Callable[[int], str], *loops: str) -> Any:
    devices = None if strategy == "multi_worker" else spec_of(2)
    return equivalent(strategy, build, tutorials.images(), 3, devices=devices, loops=loops or ("custom",), logs=folder)


@pytest.mark.parametrize(
    ("strategy", "build", "loops"),
    [
        ("mirrored", tutorials.keras_fit, ("custom", "fit")),
        ("mirrored", tutorials.custom_training, ("custom",)),
        ("multi_worker", tutorials.several_workers, ("custom",)),
        ("dtensor_data", tutorials.dtensor_mlp, ("custom",)),
        ("dtensor_model", tutorials.dtensor_mlp, ("custom",)),
    ],
)
def test_a_tutorial_is_right(
    strategy: str, build: Any, loops: tuple[str, ...], spec_of: Callable[[int], str], tmp_path: Path
) -> None:
    found = _train(strategy, build, tmp_path, spec_of, *loops)
    assert found.verdict is Verdict.PASS, found
    assert found.exercised.gradients > 0, found


@pytest.mark.parametrize(
    ("strategy", "build", "words"),
    [
        ("mirrored", tutorials.keras_fit_with_a_loss_of_one_number, "returns one number for all its rows"),
        ("mirrored", tutorials.custom_training_with_the_mean_of_a_replica, "2 times those of one device"),
        ("multi_worker", tutorials.several_workers_that_read_the_same, "each replica reads all the data"),
    ],
)
def test_the_common_fault_of_a_tutorial_is_named(
    strategy: str, build: Any, words: str, spec_of: Callable[[int], str], tmp_path: Path
) -> None:
    found = _train(strategy, build, tmp_path, spec_of)
    assert found.verdict is Verdict.FAIL, found
    assert words in found.reason, found
