"""Trainings under the other strategies of one process, and what is refused before any process starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_trainings as samples

import harness
from harness.distribute import STRATEGIES, Equivalence, equivalent
from harness.errors import InvalidTarget, RefusedByWorker, TrainingError, UnknownStrategy, UsageError

pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture
def train(spec_of: Callable[[int], str]) -> Callable[..., Equivalence]:
    def run(strategy: str, build: Any, folder: Path, **options: Any) -> Equivalence:
        given: dict[str, Any] = {"loops": ("custom",), "logs": folder, "devices": spec_of(2), **options}
        return equivalent(strategy, build, samples.data(), 3, **given)

    return run


def named(found: Equivalence, kind: str, text: str) -> list[harness.Finding]:
    return [each for each in found.findings if each.kind == kind and text in f"{each.place}: {each.message}"]


def test_central_storage_trains_right_and_reports_wrong_metrics(
    train: Callable[..., Equivalence], tmp_path: Path
) -> None:
    twin = train("central_storage", samples.loss_per_row, tmp_path / "twin")
    assert twin.verdict is harness.Verdict.PASS, twin
    assert len(twin.exercised.devices) == 2
    found = train("central_storage", samples.clean, tmp_path / "metrics")
    assert named(
        found, "value", "metric mae (custom loop): under this strategy, each update of mae adds up what the replicas"
    )
    assert {finding.where.split()[0] for finding in found.findings} == {"metric"}, found


@pytest.mark.parametrize(
    ("strategy", "build"), [("dtensor_data", samples.clean), ("dtensor_model", samples.eight_units)]
)
def test_a_dtensor_layout_is_equal_to_one_device(
    train: Callable[..., Equivalence], strategy: str, build: Any, tmp_path: Path
) -> None:
    found = train(strategy, build, tmp_path)
    assert found.verdict is harness.Verdict.PASS, found
    assert found.exercised.gradients > 0


@pytest.mark.parametrize(
    ("strategy", "build", "options", "said"),
    [
        ("dtensor_model", samples.clean, {}, "no weight has columns that can be divided among 2 devices"),
        ("mirrored", samples.with_keras_distribution, {}, "sets a keras.distribution, which Keras ignores"),
        ("mirrored", samples.second_strategy, {}, "usually caused by a second strategy in one process"),
        ("mirrored", samples.unknown_metric, {}, "metrics: 'acuracy' is not known to Keras; accepted: Keras metrics"),
        ("mirrored", samples.breaks, {}, "sample_trainings:breaks raised KeyError: 'gone'"),
        (
            "mirrored",
            samples.no_training,
            {},
            r"no_training returned an object of type int; accepted: a harness.distribute.Training",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    train: Callable[..., Equivalence], strategy: str, build: Any, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(RefusedByWorker, match=said) as raised:
        train(strategy, build, tmp_path, **options)
    assert "\n" not in str(raised.value)


def test_what_raises_under_the_strategy_alone_is_a_finding_that_says_so(
    train: Callable[..., Equivalence], tmp_path: Path
) -> None:
    twin = train("mirrored", samples.returns_its_variable, tmp_path / "twin")
    assert twin.verdict is harness.Verdict.PASS, twin
    found = train("mirrored", samples.accumulates, tmp_path / "raises")
    said = "runs on one device, and raises under mirrored: RuntimeError: the replicas would have to exchange values"
    assert named(found, "error", said), found
    assert "merge_call" not in str(found)


def test_an_unknown_strategy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        UnknownStrategy, match=r"strategy 'mirored' is not known; accepted: mirrored, central_storage, "
    ):
        equivalent("mirored", samples.clean, samples.data(), 3)
    assert set(STRATEGIES) == {
        *("mirrored", "central_storage", "multi_worker", "parameter_server", "dtensor_data", "dtensor_model")
    }


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"data": 3}, TrainingError, r"data is of type int; accepted: \(x, y\)"),
        ({"data": {"x": np.ones(3)}}, TrainingError, r"data has the keys \['x'\]"),
        ({"data": (np.ones(3), np.ones(4))}, TrainingError, r"data has the shapes \(3,\) and \(4,\)"),
        ({"data": (np.ones([0, 2]), np.ones(0))}, TrainingError, r"data has the shapes \(0, 2\) and \(0,\)"),
        ({"steps": 0}, TrainingError, "steps=0; accepted: 1 or more"),
        ({"batch_size": 0}, TrainingError, "batch_size=0; accepted: 1 or more"),
        (
            {"loops": ("custm",)},
            UsageError,
            r"loops=\('custm',\); accepted: a list or tuple with one or more of 'custom' and 'fit'",
        ),
        ({"devices": "cpus:2"}, UsageError, "device spec 'cpus:2'"),
        ({"strategy": "multi_worker", "devices": "gpu:1"}, UsageError, "trains on one logical CPU in each process"),
        ({"strategy": "parameter_server", "devices": "gpu:1"}, UsageError, "devices='gpu:1' with strategy"),
        ({"build": lambda: None}, InvalidTarget, "is defined inside a function"),
        ({"build": "nothing.py:build"}, InvalidTarget, "there is no file nothing.py"),
        ({"build": "nothing"}, InvalidTarget, "is not of the form FILE.py:FUNCTION or MODULE:FUNCTION"),
        ({"build": 3}, InvalidTarget, "is of type int"),
    ],
)
def test_bad_input_is_refused_before_a_process_starts(change: dict[str, Any], error: type, said: str) -> None:
    given: dict[str, Any] = {"build": samples.clean, "data": samples.data(), "steps": 3, **change}
    with pytest.raises(error, match=said):
        equivalent(**{"strategy": "mirrored", **given})


def test_a_strategy_over_other_devices_is_refused_in_a_process_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.distribute import strategies

    monkeypatch.setattr(strategies, "_made", {("mirrored", ("CPU:0",)): "a strategy"})
    assert strategies.make_strategy("mirrored", ["CPU:0"]) == "a strategy"
    with pytest.raises(harness.UsageError, match="this process already has mirrored over CPU:0"):
        strategies.make_strategy("mirrored", ["CPU:0", "CPU:1"])
