"""Asynchronous training with a parameter server and two workers, each a real process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sample_trainings as samples

import harness
from harness.distribute import Equivalence, equivalent
from harness.distribute.asynchronous import AsynchronousHistory
from harness.distribute.parameter_server import judge_asynchronous

STEPS = 120


def train(build: Any, folder: Path) -> Equivalence:
    return equivalent("parameter_server", build, samples.data(), STEPS, logs=folder)


@pytest.mark.long
@pytest.mark.usefixtures("forked_workers")
def test_a_lost_update_is_found_and_with_assign_add_none_is_lost(tmp_path: Path) -> None:
    found = train(samples.loses_updates, tmp_path / "planted")
    assert found.verdict is harness.Verdict.FAIL, found
    (lost,) = [each for each in found.findings if each.severity is harness.Verdict.FAIL]
    assert lost.kind == "update-count"
    assert "lost update" in lost.message
    twin = train(samples.loses_none, tmp_path / "twin")
    # Keras's own counter may lag behind, which is a warning.
    assert twin.passed, twin
    assert {each.where for each in twin.findings} <= {"the optimizer's counter of its updates"}
    assert twin.measured["steps_of_worker_1"] > 0
    assert twin.measured["loss_after"] < twin.measured["loss_before"]
    assert twin.measured["staleness_largest_updates"] >= 0


def history(**change: Any) -> AsynchronousHistory:
    given: dict[str, Any] = {
        "steps": 10,
        "added": 10,
        "iterations": 10,
        "by_worker": (6, 4),
        "staleness": (0,) * 10,
        "variable_devices": (("kernel", "/job:ps/replica:0/task:0/device:CPU:0"),),
        "losses": (2.0, 0.5),
        "counters": (("seen", 10),),
        **change,
    }
    return AsynchronousHistory(**given)


def test_each_property_is_judged_both_ways() -> None:
    assert list(judge_asynchronous(history(), [0.6, 0.55])) == []
    planted = {
        "update-count": [history(added=9), history(counters=(("seen", 9),)), history(iterations=9)],
        "unused-device": [history(by_worker=(10, 0))],
        "variable-placement": [history(variable_devices=(("kernel", "/job:chief/replica:0/task:0/device:CPU:0"),))],
        "value": [history(losses=(2.0, 0.7)), history(losses=(2.0, float("nan")))],
    }
    for kind, histories in planted.items():
        for each in histories:
            assert [finding.kind for finding in judge_asynchronous(each, [0.6, 0.55])] == [kind]
